"""The interface of queues to other instances.

Queues are created before replication is set up: until `connect` has been called, and in an instance
that does not replicate, there are no other instances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.queues.core import PublisherSequence
    from server.replication.core import DedupWindow
    from server.replication.links.registry import LinkRegistry


OnPeerMessage = Callable[[str, str, bytes], None]
"""Callback for a received peer message: its recipient, its sender, and its body."""


class QueuePeers:
    """The services of replication for shared queues."""

    def __init__(self) -> None:
        self._links: LinkRegistry | None = None
        self._dedup_window: DedupWindow | None = None
        self._handlers: Final[dict[str, OnPeerMessage]] = {}

    def connect(self, links: LinkRegistry, dedup_window: DedupWindow) -> None:
        """Connect queues with other instances from now on.

        Args:
            links: sends messages to them.
            dedup_window: the sequence numbers that this instance has received from each publisher.
        """
        self._links = links
        self._dedup_window = dedup_window

    def register_handler(self, subject: str, handler: OnPeerMessage) -> None:
        """Register the callback for messages with a subject."""
        self._handlers[subject] = handler

    def dispatch_message(self, to: str, sender: str, subject: str, body: bytes) -> None:
        """Dispatch a received message to the handler of its subject.

        It is for this instance, or for one that cannot be reached.
        """
        handler = self._handlers.get(subject)
        if handler is not None:
            handler(to, sender, body)

    def send_message(self, to: str, subject: str, body: bytes) -> None:
        """Send a message to an instance, without a guarantee of arrival."""
        if self._links is not None:
            self._links.send_message(to, subject, body)

    def is_reachable(self, name: str) -> bool | None:
        """Return True if an instance can be reached; None if that is not known."""
        return False if self._links is None else self._links.is_reachable(name)

    def is_missing(self, bookmark: PublisherSequence) -> bool:
        """Return True if a message has not arrived although later ones of its publisher have."""
        if self._dedup_window is None:
            return False
        client, sequence = bookmark
        highest = self._dedup_window.highest_sequence(client)
        return (
            sequence <= highest and len(self._dedup_window.new_positions(client, (sequence,))) > 0
        )
