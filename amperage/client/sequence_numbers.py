"""Publishes with a sequence number, until they are acknowledged or refused.

Each requests a `persisted` acknowledgement. Acknowledgements of success are conflated: one covers
all numbers up to its own. Refusals are sent for each message (AMPS User Guide, Acknowledgment
Conflation and Publish Acknowledgments). Until its answer, a message is in the publish store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from amperage.client.commands import encoded, publish_header
from amperage.client.errors import CommandError, MessagesRefusedError, command_error, copy_error
from amperage.client.handler_calls import HandlerCalls
from amperage.client.publish_store import PublishStorage, StoredMessage
from amperage.wire.header import Header

RefusalListener = Callable[[StoredMessage, CommandError], None]
"""A callback for a message that the server refuses, with the reason. It must not block."""

AsyncRefusalListener = Callable[[StoredMessage, CommandError], Awaitable[None] | None]
"""The callback of an asyncio client: a function, or a coroutine function, which is awaited."""

MAX_CACHED_TEMPLATES: Final = 256
"""The size of the cache of encoded headers of publishes without options, one for each topic."""


class RefusalCount:
    """The number of refused messages that are not reported to the caller yet."""

    def __init__(self) -> None:
        self._count = 0
        self._first: CommandError | None = None

    def add(self, count: int, first: CommandError) -> None:
        """Count messages.

        Args:
            count: the number of messages.
            first: the reason for the refusal of the first of them.
        """
        self._count += count
        self._first = self._first or first

    def raise_if_any(self) -> None:
        """Raise an error if messages were counted, and reset the count.

        Raises:
            MessagesRefusedError: messages were counted since the last call.
        """
        count, first = self._count, self._first
        self._count, self._first = 0, None
        if first is not None:
            raise MessagesRefusedError(count, copy_error(first))


class PublishSequence:
    """The numbered messages of one client.

    Args:
        store: assigns the numbers, and stores the messages that are not answered.
        on_refused: a callback for each message that the server refuses, except duplicates; None
            counts them in `refusals`.

    Attributes:
        refusals: the count of the refused messages without a callback.
        handler_calls: pending calls of callbacks, which the shell makes; the blocking one makes
            them without holding its lock.
    """

    def __init__(
        self, store: PublishStorage, on_refused: AsyncRefusalListener | None = None
    ) -> None:
        self.store = store
        self._on_refused = on_refused
        self.handler_calls = HandlerCalls()
        self.refusals = RefusalCount()
        self._header_starts: dict[tuple[str, bool], bytes] = {}

    def add_plain(self, topic: str, body: bytes, delta: bool) -> StoredMessage:
        """Store a message without options, with the next number."""
        message = self.store.add(self.plain_header_start(topic, delta), body)
        self.store.commit()
        return message

    def add_with_header(self, header: Header, body: bytes) -> StoredMessage:
        """Store a message with the next number.

        Args:
            header: the header of the command; its number and its acks are set.
            body: the message's body.

        Raises:
            ValueError: the header has a number.
        """
        message = self.store.add(_start(header), body)
        self.store.commit()
        header.sequence = message.sequence
        return message

    def plain_header_start(self, topic: str, delta: bool) -> bytes:
        """Return the encoded header of messages without options, up to the number."""
        key = (topic, delta)
        start = self._header_starts.get(key)
        if start is None:
            if len(self._header_starts) >= MAX_CACHED_TEMPLATES:
                self._header_starts.clear()
            start = self._header_starts[key] = _start(publish_header(topic, delta=delta))
        return start

    def is_answered_up_to(self, sequence: int) -> bool:
        """Return whether all messages up to a number are answered, and their callbacks called."""
        return not self.handler_calls and not self.store.holds_up_to(sequence)

    def process_refusal(self, sequence: int, header: Header, *, is_awaited: bool) -> None:
        """Process a failure acknowledgement.

        Args:
            sequence: the number of the message.
            header: the acknowledgement.
            is_awaited: whether a caller waits for it, and gets the error.
        """
        message = self.store.refused(sequence)
        if message is None or header.reason == "duplicate":
            return
        error = command_error("publish", header.reason, header.detail)
        if self._on_refused is not None:
            self.handler_calls.add("on_refused", partial(self._on_refused, message, error))
        elif not is_awaited:
            self.refusals.add(1, error)


def numbers_in(answer: Header) -> tuple[int, int]:
    """Return the sequence numbers in the acknowledgement of a logon.

    Returns:
        The number up to which all messages are persisted, and the highest number received, from the
        bookmark. They differ while a server waits for synchronous replication.
    """
    persisted = answer.sequence or 0
    _, _, rest = (answer.bookmark or "").partition("|")
    number = rest.partition("|")[0]
    highest = int(number) if number.isascii() and number.isdigit() else 0
    return persisted, max(persisted, highest)


def _start(header: Header) -> bytes:
    if header.sequence is not None:
        raise ValueError("the publish store numbers the messages; leave out sequence")
    acks = header.acks.split(",") if header.acks else ()
    header.acks = ",".join(dict.fromkeys((*acks, "persisted")))
    return encoded(header)[:-1]
