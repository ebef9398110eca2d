"""The publish store: published messages that are not known to be persisted.

A publisher numbers its messages. The sequence number and the client's name identify a message for
ever, so that a message sent twice is stored once. The store assigns the numbers, and keeps each
message until the server has acknowledged it as persisted, or has refused it. After a reconnection
the remaining messages are sent again (AMPS User Guide, Guaranteed Publishing; Durable Publishing).

A successful acknowledgement of a number covers all numbers below it (Acknowledgment Conflation and
Publish Acknowledgments). The stored numbers are therefore consecutive, except for gaps where
messages were refused.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

DEFAULT_CAPACITY: Final = 256 * 1024 * 1024
"""Default capacity of a publish store, in bytes."""

_OVERHEAD: Final = 200
"""Estimated bytes of memory per message in addition to its header and body."""


_log: Final = logging.getLogger("amperage.client")


class StoredMessage(NamedTuple):
    """A message in a publish store.

    Attributes:
        sequence: its sequence number.
        header: the encoded header of its publish command.
        body: its body.
    """

    sequence: int
    header: bytes
    body: bytes


class PublishStorage(Protocol):
    """The interface of a client's publish store.

    `PublishStore` implements it in memory, `FilePublishStore` in a file. Any other object with
    these methods can be used. A client makes one call at a time.
    """

    def __len__(self) -> int:
        """Return the number of messages that are not known to be persisted."""

    def __iter__(self) -> Iterator[StoredMessage]:
        """Iterate over the messages that are not known to be persisted, oldest first."""

    @property
    def last_sequence(self) -> int:
        """The highest number assigned, or known to the server; 0 before the first."""

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait for acknowledgements before the next message."""

    def holds_up_to(self, sequence: int) -> bool:
        """Return whether any message with this number or a lower one is stored."""

    def add(self, header_start: bytes, body: bytes) -> StoredMessage:
        """Assign the next number to a message, and store the message; see `PublishStore`."""

    def commit(self) -> None:
        """Make the messages added since the last `commit` durable, before any of them is sent.

        Raises:
            StoreError: the messages cannot be stored; they are removed from the store.
        """

    def persisted(self, sequence: int) -> None:
        """Remove all messages up to a number: the server has persisted them."""

    def refused(self, sequence: int) -> StoredMessage | None:
        """Remove and return a message that the server refuses; None if it is not stored."""

    def logged_on(self, sequence: int, highest: int) -> None:
        """Process the numbers in the answer to a logon.

        Args:
            sequence: the server has persisted all messages up to this number of ours.
            highest: the highest number of ours that the server has received.
        """


class PublishStore:
    """The messages of one client name, in memory.

    A full store still accepts messages; a client checks `is_full` first, and waits.

    Args:
        capacity: bytes of messages at which the store is full.

    Raises:
        ValueError: the capacity is less than one byte.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: expected bytes from 1 up, not {capacity}")
        self.capacity = capacity
        self._messages: deque[StoredMessage] = deque()
        self._last_sequence = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[StoredMessage]:
        """Iterate over the messages that are not known to be persisted, oldest first."""
        return iter(self._messages)

    @property
    def last_sequence(self) -> int:
        """The highest number assigned, or known to the server; 0 before the first."""
        return self._last_sequence

    @property
    def is_full(self) -> bool:
        """Whether publishers must wait for acknowledgements before the next message."""
        return self._bytes >= self.capacity

    def holds_up_to(self, sequence: int) -> bool:
        """Return whether any message with this number or a lower one is stored."""
        return bool(self._messages) and self._messages[0].sequence <= sequence

    def add(self, header_start: bytes, body: bytes) -> StoredMessage:
        """Assign the next number to a message, and store the message.

        Args:
            header_start: the header's JSON without its closing brace.
            body: the message's body.

        Returns:
            The message to send.
        """
        self._last_sequence += 1
        message = StoredMessage(
            self._last_sequence, b'%b,"s":%d}' % (header_start, self._last_sequence), body
        )
        self._messages.append(message)
        self._bytes += size_of(message)
        return message

    def commit(self) -> None:
        """Do nothing: the messages are in memory only."""

    def persisted(self, sequence: int) -> None:
        """Remove all messages up to a number: the server has persisted them."""
        messages = self._messages
        while messages and messages[0].sequence <= sequence:
            self._bytes -= size_of(messages.popleft())

    def refused(self, sequence: int) -> StoredMessage | None:
        """Remove a message that the server refuses, because it would refuse it again.

        Returns:
            The message; None if it is not stored.
        """
        for position, message in enumerate(self._messages):
            if message.sequence == sequence:
                del self._messages[position]
                self._bytes -= size_of(message)
                return message
        return None

    def logged_on(self, sequence: int, highest: int) -> None:
        """Process the numbers in the answer to a logon.

        Messages up to `sequence` are persisted, and removed. `highest` may be of an earlier run
        with the same client name. Numbering continues after it, because the server drops messages
        with old numbers.
        """
        self.persisted(sequence)
        self._last_sequence = max(self._last_sequence, highest)


def warn_unpersisted_messages(client_name: str, store: PublishStorage) -> None:
    """Log a warning if a client is closed before its messages are known to be persisted."""
    if left := len(store):
        _log.warning(
            "client %s is closed while %d messages are not known to be persisted; publish_flush()"
            " before close() waits for that",
            client_name,
            left,
        )


def size_of(message: StoredMessage) -> int:
    """Return the bytes of the store's capacity that a message uses."""
    return len(message.header) + len(message.body) + _OVERHEAD
