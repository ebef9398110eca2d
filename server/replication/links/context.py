"""Interfaces of the links and the log, for code that exchanges messages with other instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from server.replication.links.registry import LinkPeer
    from server.storage.journal import JournalTopic

_T = TypeVar("_T")


class PeerLinks(Protocol):
    """The links of the instance, reduced to the methods needed here."""

    @property
    def peers(self) -> Mapping[str, LinkPeer]:
        """The instances that this instance has links with, by name."""

    def watch(self, watcher: Callable[[], None]) -> None:
        """Register a callback for links being opened and closed."""

    def register_handler(self, subject: str, listener: Callable[[str, bytes], None]) -> None:
        """Register a callback for messages about a subject: it gets the sender and the body."""

    def may_receive(
        self, peer: str, topic: JournalTopic, path: str, body: bytes | None = None
    ) -> bool:
        """Return whether an instance may receive an entry of the log."""

    def log_denied_request(self, peer: str, topic: JournalTopic) -> None:
        """Log and audit that an instance has asked for a message that it is not entitled to."""

    def send_message(self, peer: str, subject: str, body: bytes) -> None:
        """Send a message to an instance that there is a link with; it may be lost."""
