"""Messages that were published and are not known to be persisted.

A publisher numbers its messages; the number and the client's name identify a message for ever, so
that one sent twice is stored once. The store gives out the numbers and keeps each message until the
server has acknowledged it as persisted, or has refused it. After a reconnect whatever is left is
sent again (AMPS User Guide, Guaranteed Publishing; Durable Publishing).

A successful acknowledgement of a number covers all numbers below it (Acknowledgment Conflation and
Publish Acknowledgments). The numbers kept are therefore one growing run, except for refused
messages that are missing from it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

DEFAULT_CAPACITY: Final = 256 * 1024 * 1024
"""Bytes in a publish store unless it is made with another capacity."""

_OVERHEAD: Final = 200
"""What a message in the store costs besides its header and body, in bytes, roughly."""


_log: Final = logging.getLogger("amperage.client")


class StoredMessage(NamedTuple):
    """A message in a publish store.

    Attributes:
        sequence: its number.
        header: the header of its publish command, encoded.
        body: its data.
    """

    sequence: int
    header: bytes
    body: bytes


class PublishStorage(Protocol):
    """What a client wants of a publish store.

    `PublishStore` has it in memory, `FilePublishStore` in a file; anything else that has these
    methods is as good. A client calls them one at a time.
    """

    def __len__(self) -> int:
        """How many messages are not known to be persisted."""

    def __iter__(self) -> Iterator[StoredMessage]:
        """The messages that are not known to be persisted, oldest first."""

    @property
    def last_sequence(self) -> int:
        """The highest number given out, or known to the server; 0 before the first."""

    @property
    def is_full(self) -> bool:
        """Whether to wait for acknowledgements before the next message."""

    def holds_up_to(self, sequence: int) -> bool:
        """Whether some message with this number or a lower one is not known to be persisted."""

    def add(self, header_start: bytes, body: bytes) -> StoredMessage:
        """Give a message its number, one higher than the last, and keep it; see `PublishStore`."""

    def commit(self) -> None:
        """Make what was added last as safe as it is to be, before any of it is sent.

        Raises:
            StoreError: that cannot be done; the messages added since the last time are not taken.
        """

    def persisted(self, sequence: int) -> None:
        """The server has every message up to a number: they can be let go."""

    def refused(self, sequence: int) -> StoredMessage | None:
        """The server will not take one message: let it go, and return it if it was kept."""

    def logged_on(self, sequence: int, highest: int) -> None:
        """A session has begun.

        Args:
            sequence: the server has every message up to this number of ours, for good.
            highest: the highest number of ours that it has.
        """


class PublishStore:
    """The messages of one client name, in memory.

    Args:
        capacity: bytes from which on the store is full. A full store takes a message none the less;
            whoever publishes asks first, and waits.

    Raises:
        ValueError: nothing would fit into it.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: expected bytes from 1 up, not {capacity}")
        self.capacity = capacity
        self._messages: deque[StoredMessage] = deque()
        self._last = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[StoredMessage]:
        """The messages that are not known to be persisted, oldest first."""
        return iter(self._messages)

    @property
    def last_sequence(self) -> int:
        """The highest number given out, or known to the server; 0 before the first."""
        return self._last

    @property
    def is_full(self) -> bool:
        """Whether to wait for acknowledgements before the next message."""
        return self._bytes >= self.capacity

    def holds_up_to(self, sequence: int) -> bool:
        """Whether some message with this number or a lower one is not known to be persisted."""
        return bool(self._messages) and self._messages[0].sequence <= sequence

    def add(self, header_start: bytes, body: bytes) -> StoredMessage:
        """Number a message and keep it.

        Args:
            header_start: the header's JSON without its closing brace.
            body: the message's data.

        Returns:
            What to send.
        """
        self._last += 1
        message = StoredMessage(self._last, b'%b,"s":%d}' % (header_start, self._last), body)
        self._messages.append(message)
        self._bytes += size_of(message)
        return message

    def commit(self) -> None:
        """Nothing: it is in memory."""

    def persisted(self, sequence: int) -> None:
        """The server has every message up to a number."""
        messages = self._messages
        while messages and messages[0].sequence <= sequence:
            self._bytes -= size_of(messages.popleft())

    def refused(self, sequence: int) -> StoredMessage | None:
        """The server will not take one message, however often it is sent.

        Returns:
            The message; None if the store does not have it.
        """
        for position, message in enumerate(self._messages):
            if message.sequence == sequence:
                del self._messages[position]
                self._bytes -= size_of(message)
                return message
        return None

    def logged_on(self, sequence: int, highest: int) -> None:
        """The server's logon acknowledgement says which number of ours it has persisted last.

        The highest that it has may be one of an earlier run under the same client name: numbering
        goes on behind it, because the server drops what has an old number.
        """
        self.persisted(sequence)
        self._last = max(self._last, highest)


def warn_of_unpersisted(client_name: str, store: PublishStorage) -> None:
    """Have the log say that a client is closed before its messages are known to be persisted."""
    if left := len(store):
        _log.warning(
            "client %s is closed while %d messages are not known to be persisted; publish_flush()"
            " before close() waits for that",
            client_name,
            left,
        )


def size_of(message: StoredMessage) -> int:
    """What a message counts for in a store, in bytes."""
    return len(message.header) + len(message.body) + _OVERHEAD
