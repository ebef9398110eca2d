"""Publishes with a sequence number: which are not answered yet, and which were refused.

Each asks for a `persisted` acknowledgement. Those of success are conflated: one covers all numbers
up to its own. A refusal is told for each message (AMPS User Guide, Acknowledgment Conflation and
Publish Acknowledgments). Until then a message is in the publish store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from amperage.client.commands import encoded, publish_header
from amperage.client.errors import CommandError, MessagesRefusedError, again, command_error
from amperage.client.handler_calls import HandlerCalls
from amperage.client.publish_store import PublishStorage, StoredMessage
from amperage.wire.header import Header

RefusalListener = Callable[[StoredMessage, CommandError], None]
"""Called with a published message that the server refuses, and the reason. It must not wait."""

AsyncRefusalListener = Callable[[StoredMessage, CommandError], Awaitable[None] | None]
"""The same for an asyncio client: a function, or a coroutine function, which is awaited."""

TEMPLATES_KEPT: Final = 256
"""Headers of plain publishes that are kept prepared, one for each topic."""


class RefusalCount:
    """Refused messages that the caller has not been told of."""

    def __init__(self) -> None:
        self._count = 0
        self._first: CommandError | None = None

    def add(self, count: int, first: CommandError) -> None:
        """Count messages.

        Args:
            count: how many.
            first: why the first of them was refused.
        """
        self._count += count
        self._first = self._first or first

    def raise_if_any(self) -> None:
        """Raise for the messages counted so far, once.

        Raises:
            MessagesRefusedError: there are any.
        """
        count, first = self._count, self._first
        self._count, self._first = 0, None
        if first is not None:
            raise MessagesRefusedError(count, again(first))


class Numbering:
    """The numbered messages of one client.

    Args:
        store: gives the numbers, and keeps what has not been answered.
        on_refused: told about each message that the server refuses; a duplicate is none. None to
            have `refusals` count it.

    Attributes:
        refusals: the messages refused, without those that the listener is told of.
        refusal_calls: calls of the listener that the shell is to make, the blocking one outside of
            its lock.
    """

    def __init__(
        self, store: PublishStorage, on_refused: AsyncRefusalListener | None = None
    ) -> None:
        self.store = store
        self._on_refused = on_refused
        self.refusal_calls = HandlerCalls("on_refused")
        self.refusals = RefusalCount()
        self._starts: dict[tuple[str, bool], bytes] = {}

    def plain(self, topic: str, body: bytes, delta: bool) -> StoredMessage:
        """Number and keep a message that has no options."""
        message = self.store.add(self.plain_start(topic, delta), body)
        self.store.commit()
        return message

    def with_header(self, header: Header, body: bytes) -> StoredMessage:
        """Number and keep a message.

        Args:
            header: that of its command; it is given the number, and the acks to ask for.
            body: its data.

        Raises:
            ValueError: the header has a number.
        """
        message = self.store.add(_start(header), body)
        self.store.commit()
        header.sequence = message.sequence
        return message

    def plain_start(self, topic: str, delta: bool) -> bytes:
        """The header of messages without options, up to the number."""
        key = (topic, delta)
        start = self._starts.get(key)
        if start is None:
            if len(self._starts) >= TEMPLATES_KEPT:
                self._starts.clear()
            start = self._starts[key] = _start(publish_header(topic, delta=delta))
        return start

    def is_settled(self, sequence: int) -> bool:
        """Whether all messages up to a number are answered, and their refusals told."""
        return not self.refusal_calls and not self.store.holds_up_to(sequence)

    def take_refusal(self, sequence: int, header: Header, *, is_awaited: bool) -> None:
        """Take a failure acknowledgement.

        Args:
            sequence: the number of the message.
            header: the acknowledgement.
            is_awaited: whether somebody waits for it, who gets the error.
        """
        message = self.store.refused(sequence)
        if message is None or header.reason == "duplicate":
            return
        error = command_error("publish", header.reason, header.detail)
        if self._on_refused is not None:
            self.refusal_calls.add(partial(self._on_refused, message, error))
        elif not is_awaited:
            self.refusals.add(1, error)


def numbers_in(answer: Header) -> tuple[int, int]:
    """What the acknowledgement of a logon says about the numbers of a client.

    Returns:
        The number up to which everything is persisted, and the highest number that there is, from
        the bookmark: where a server waits for others, they differ.
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
