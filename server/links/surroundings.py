"""What those have to do with who speak with other instances: its links, and the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from server.journal import Journal, Topic
    from server.links.links import Peer
    from server.topics.transaction_log import Mender

_T = TypeVar("_T")


class Neighbours(Protocol):
    """The links of the instance, as far as this is concerned."""

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The instances that there are links with, by name."""

    def watch(self, watcher: Callable[[], None]) -> None:
        """Tell somebody whenever a link has come to be, or is over."""

    def listen(self, subject: str, listener: Callable[[str, bytes], None]) -> None:
        """Tell somebody of words about a subject: who says them, and what."""

    def may_have(self, peer: str, topic: Topic, path: str, body: bytes | None = None) -> bool:
        """Return whether an instance may be told of an entry of the log."""

    def refuse(self, peer: str, topic: Topic) -> None:
        """Log and audit that an instance has asked for a message that it may not have."""

    def say(self, peer: str, subject: str, body: bytes) -> None:
        """Say something to an instance that there is a link with; it may be lost."""


class TransactionLog(Protocol):
    """The log, as far as this is concerned."""

    @property
    def journal(self) -> Journal:
        """The journal."""

    def use_mender(self, mender: Mender) -> None:
        """Tell somebody of damaged entries."""

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call back when everything appended so far is on stable storage."""

    def do_aside(self, work: Callable[[], _T], then: Callable[[_T], None]) -> None:
        """Have something that takes long done by the helper, and go on with what that gives."""
