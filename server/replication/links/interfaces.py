"""Interfaces between the parts of a link, and to their environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.replication.core import OutboundFrame
    from server.replication.links.duplicate_conflicts import DuplicateConflictLog
    from server.replication.links.replication_state import ReplicationState
    from server.util.log_protocol import ServerLog
    from server.util.task import EngineTask

RETRY_SECONDS: Final = 0.25
"""Delay before the log is tried again after it could not be read, or accepted nothing."""

NEVER: Final = float("-inf")
"""A time before all others."""


class LinkScheduler(Protocol):
    """The scheduler of the engine's thread; see server/engine/scheduler.py."""

    @property
    def elapsed(self) -> Callable[[], float]:
        """Seconds of a monotonic clock."""

    def left(self, now: float) -> float:
        """Return the seconds left of the current time slice."""

    def serve(self, connection: EngineTask, size: int, *, is_patient: bool = False) -> bool:
        """Run a time slice for bytes just read; return whether there is more to do, in turns."""

    def queue(self, work: EngineTask) -> None:
        """Queue work to run in time slices, in turns with other work."""


class LinkConnection(Protocol):
    """The connection of a link."""

    @property
    def address(self) -> str:
        """Address of the peer, for operators."""

    @property
    def is_ready(self) -> bool:
        """True if nearly all data given to it have been sent."""

    def send(self, *data: bytes) -> None:
        """Send bytes, now or when the peer is ready for them."""

    def pause(self) -> None:
        """Pause reading, until `resume`."""

    def resume(self) -> None:
        """Resume reading."""

    def close(self) -> None:
        """Close the connection when the data given to it have been sent, or soon."""


class LinkContext(Protocol):
    """A link, as either of its directions sees it."""

    @property
    def replication(self) -> ReplicationState:
        """The replication state of the instance."""

    @property
    def log(self) -> ServerLog:
        """The event log."""

    @property
    def conflicts(self) -> DuplicateConflictLog:
        """Logs pairs of messages that have the same bookmark."""

    @property
    def elapsed(self) -> Callable[[], float]:
        """Seconds of a monotonic clock."""

    @property
    def is_ready(self) -> bool:
        """True if the connection has sent nearly all data given to it."""

    def send(self, frame: OutboundFrame, *, compress: bool = False) -> int:
        """Send a frame, and return its size in bytes."""

    def go_on_in(self, seconds: float) -> None:
        """Schedule a step of the link after a delay at the latest."""

    def tell(self, message: str, client: str) -> None:
        """Log an event of a direction of the link; see `LinkFlapLog.tell`."""

    def complain(self, message: str, *aspects: object, **fields: object) -> None:
        """Write an event log entry about the peer that may recur, rate-limited.

        Args:
            message: the id of the entry.
            aspects: values that make this a different entry for the rate limit.
            fields: further values of the entry.
        """
