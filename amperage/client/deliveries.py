"""Delivery reports: the outcome of each published message whose publisher requests one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from amperage.client.errors import ClientError, copy_error
from amperage.client.handler_calls import HandlerCalls


class DeliveryReport(NamedTuple):
    """The outcome of a published message.

    Attributes:
        topic: the topic.
        body: the message's body.
        error: None if the message is stored. A `CommandError` if the server refused it; another
            `ClientError` if the connection or the client ended before the answer, so that the
            outcome is unknown.
    """

    topic: str
    body: bytes
    error: ClientError | None

    @property
    def is_stored(self) -> bool:
        """Whether the server has stored the message."""
        return self.error is None


DeliveryListener = Callable[[DeliveryReport], None]
"""A callback for the outcome of a message. It must not block."""

AsyncDeliveryListener = Callable[[DeliveryReport], Awaitable[None] | None]
"""The callback of an asyncio client: a function, or a coroutine function, which is awaited."""


class _Delivery(NamedTuple):
    serial: int
    topic: str
    body: bytes
    listener: AsyncDeliveryListener


class Deliveries:
    """The messages with a requested report that are not answered yet.

    Args:
        calls: the queue for the calls of the listeners.
    """

    def __init__(self, calls: HandlerCalls) -> None:
        self._calls = calls
        self._last_serial = 0
        self._by_sequence: OrderedDict[int, _Delivery] = OrderedDict()
        self._by_command: OrderedDict[str, _Delivery] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_sequence) + len(self._by_command)

    @property
    def last_serial(self) -> int:
        """The number of messages added so far."""
        return self._last_serial

    def add(self, key: int | str, topic: str, body: bytes, listener: AsyncDeliveryListener) -> None:
        """Add a message.

        Args:
            key: its sequence number, or the id of its command if it has no number.
            topic: the topic.
            body: its body.
            listener: the callback for the report.
        """
        self._last_serial += 1
        delivery = _Delivery(self._last_serial, topic, body, listener)
        if isinstance(key, int):
            self._by_sequence[key] = delivery
        else:
            self._by_command[key] = delivery

    def is_reported_up_to(self, serial: int) -> bool:
        """Return whether the first `serial` messages are reported, and their listeners called."""
        oldest = [next(iter(it.values())) for it in (self._by_sequence, self._by_command) if it]
        return not self._calls and all(delivery.serial > serial for delivery in oldest)

    def report_stored(self, sequence: int) -> None:
        """Report all messages up to a sequence number as stored."""
        while self._by_sequence and next(iter(self._by_sequence)) <= sequence:
            self._report(self._by_sequence.popitem(last=False)[1], None)

    def report(self, key: int | str | None, error: ClientError | None) -> bool:
        """Report one message; return whether its report was requested."""
        delivery = (
            self._by_sequence.pop(key, None)
            if isinstance(key, int)
            else self._by_command.pop(key or "", None)
        )
        if delivery is None:
            return False
        self._report(delivery, error)
        return True

    def report_all(self, error: ClientError) -> None:
        """Report all messages, because their answers will not arrive."""
        remaining = [*self._by_sequence.values(), *self._by_command.values()]
        self._by_sequence.clear()
        self._by_command.clear()
        for delivery in sorted(remaining, key=lambda it: it.serial):
            self._report(delivery, copy_error(error))

    def _report(self, delivery: _Delivery, error: ClientError | None) -> None:
        report = DeliveryReport(delivery.topic, delivery.body, error)
        self._calls.add("on_delivery", partial(delivery.listener, report))
