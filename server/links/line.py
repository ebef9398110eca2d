"""What the parts of a link need of each other, and of what is around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.base.log import Log
    from server.base.slices import Sliced
    from server.links.conflicts import Conflicts
    from server.links.replication import Replication
    from server.replication import Sent

RETRY_SECONDS: Final = 0.25
"""Until the log is looked at again that could not be read, or took nothing."""

NEVER: Final = float("-inf")
"""A moment before all others."""


class Turns(Protocol):
    """Shares out the time of the engine's thread; see server/core/turns.py."""

    @property
    def elapsed(self) -> Callable[[], float]:
        """Seconds since some moment, never going back."""

    def left(self, now: float) -> float:
        """Seconds that are left of the slice at hand."""

    def serve(self, connection: Sliced, size: int, *, is_patient: bool = False) -> bool:
        """Give a slice for what has just been read; whether there is more to do, in turns."""

    def queue(self, work: Sliced) -> None:
        """Do some work in turns with other work."""


class Conduit(Protocol):
    """The connection that a link goes over."""

    @property
    def address(self) -> str:
        """Of the other end, for people."""

    @property
    def is_ready(self) -> bool:
        """Whether it has sent nearly all that it was given."""

    def send(self, *data: bytes) -> None:
        """Send bytes, now or when the other end is ready for them."""

    def pause(self) -> None:
        """Read nothing more, until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Close the connection when what was given has left, or soon."""


class Line(Protocol):
    """A link, as either of its directions sees it."""

    @property
    def replication(self) -> Replication:
        """What the instance has of replication."""

    @property
    def log(self) -> Log:
        """Where is written what happens."""

    @property
    def conflicts(self) -> Conflicts:
        """Says when two messages have one name."""

    @property
    def elapsed(self) -> Callable[[], float]:
        """Seconds since some moment, never going back."""

    @property
    def is_ready(self) -> bool:
        """Whether the connection has sent nearly all that it was given."""

    def send(self, frame: Sent, *, compress: bool = False) -> int:
        """Send a frame; returns how many bytes that are."""

    def go_on_in(self, seconds: float) -> None:
        """Look after both directions after some time, or before."""

    def tell(self, message: str, client: str) -> None:
        """Log that something has happened to a direction of the link; see `Comings.tell`."""

    def complain(self, message: str, *aspects: object, **fields: object) -> None:
        """Log something about the other end that may come again and again: now and then.

        Args:
            message: the id of the entry.
            aspects: what makes it another thing to say, if it differs.
            fields: further values of the entry.
        """
