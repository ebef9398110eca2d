"""The interface of queues to other instances.

Queues are created before replication is set up: until `use` has been called, and in an instance
that does not replicate, there are no other instances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.queues.core import PublisherSequence
    from server.replication.core import DedupWindow


class PeerMessenger(Protocol):
    """Sends messages ("words") to other instances. See `LinkRegistry`."""

    def send_message(self, to: str, subject: str, body: bytes) -> None:
        """Send a message to an instance, without a guarantee of arrival."""

    def is_reachable(self, name: str) -> bool | None:
        """Return True if an instance can be reached; None if that is not known."""


OnPeerMessage = Callable[[str, str, bytes], None]
"""Callback for a received word: the instance that it is for, its sender, and its body."""


class QueuePeers:
    """The services of replication for shared queues."""

    def __init__(self) -> None:
        self._messenger: PeerMessenger | None = None
        self._dedup_window: DedupWindow | None = None
        self._handlers: Final[dict[str, OnPeerMessage]] = {}

    def connect(self, post: PeerMessenger, known: DedupWindow) -> None:
        """Connect queues with other instances from now on.

        Args:
            post: sends words to them.
            known: the sequence numbers that this instance has received from each publisher.
        """
        self._messenger = post
        self._dedup_window = known

    def register_handler(self, subject: str, hear: OnPeerMessage) -> None:
        """Register the callback for words with a subject."""
        self._handlers[subject] = hear

    def dispatch_message(self, to: str, sender: str, subject: str, body: bytes) -> None:
        """Pass on a received word; it is for this instance, or for one that cannot be reached."""
        hear = self._handlers.get(subject)
        if hear is not None:
            hear(to, sender, body)

    def send_message(self, to: str, subject: str, body: bytes) -> None:
        """See `PeerMessenger.send_message`."""
        if self._messenger is not None:
            self._messenger.send_message(to, subject, body)

    def is_reachable(self, name: str) -> bool | None:
        """See `PeerMessenger.is_reachable`."""
        return False if self._messenger is None else self._messenger.is_reachable(name)

    def is_missing(self, mark: PublisherSequence) -> bool:
        """Return True if a message has not arrived although later ones of its publisher have."""
        if self._dedup_window is None:
            return False
        client, sequence = mark
        highest = self._dedup_window.highest_sequence(client)
        return (
            sequence <= highest and len(self._dedup_window.new_positions(client, (sequence,))) > 0
        )
