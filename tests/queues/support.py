"""Queues to test with: messages are numbers, and filters are predicates by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from math import inf
from typing import Any, Final

from server.queues.core import (
    Consumer,
    MessageDetails,
    PublisherSequence,
    Queue,
    QueueDelivery,
    QueueSettings,
    UnmatchedError,
)

PUBLISHER: Final = 77
SECOND: Final = 1_000_000

FILTERS: Final[dict[str, Callable[[int], bool]]] = {
    "even": lambda txid: txid % 2 == 0,
    "odd": lambda txid: txid % 2 == 1,
    "thirds": lambda txid: txid % 3 == 0,
    "nothing": lambda txid: False,
}


class CountingMatching:
    """Decides the filters above, and counts how often it is asked.

    Messages from `unreadable` on cannot be looked at.
    """

    asked = 0
    unreadable: float = inf

    def __init__(self) -> None:
        self.filters: dict[Hashable, int] = {}

    def add(self, content_filter: Hashable) -> None:
        assert content_filter not in self.filters
        self.filters[content_filter] = 0

    def discard(self, content_filter: Hashable) -> None:
        del self.filters[content_filter]

    def is_volatile(self, content_filter: Hashable) -> bool:
        return False

    def match(self, txids: Sequence[int]) -> Sequence[Collection[Hashable]]:
        CountingMatching.asked += len(txids)
        if max(txids) >= CountingMatching.unreadable:
            raise UnmatchedError
        return [[name for name in self.filters if FILTERS[str(name)](txid)] for txid in txids]


class Drawer:
    """Room to put columns away: refused now and then, and spoilt as soon as it is given back.

    Attributes:
        taken: how often there was room.
        held: how much of it has not been given back.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.held = 0
        self._asked = 0

    def allocate(self, size: int) -> memoryview | None:
        """See `ColumnStorage.allocate`."""
        self._asked += 1
        if self._asked % 4 == 0:
            return None
        self.taken += 1
        self.held += 1
        return memoryview(bytearray(b"\xee" * size))

    def release(self, memory: memoryview) -> None:
        """See `ColumnStorage.release`."""
        self.held -= 1
        memory[:] = b"\xdd" * len(memory)


class Bench:
    """A queue with a clock, one publisher, and consumers by name."""

    def __init__(
        self, was_recorded: Callable[[PublisherSequence], bool] = lambda _: False, **settings: Any
    ) -> None:
        settings.setdefault("max_per_subscription_backlog", 100)
        self.queue = Queue(
            QueueSettings(**settings), CountingMatching, "here", was_recorded=was_recorded
        )
        self.now = SECOND
        self.published = 0
        self.consumers: dict[str, Consumer] = {}

    def publish(self, count: int = 1, **details: Sequence[Any]) -> None:
        """Publish the next messages, whose txids count from 1."""
        numbers = range(self.published + 1, self.published + count + 1)
        self.published += count
        self.queue.lifecycle.enqueue(
            numbers, [self.now] * count, PUBLISHER, numbers, MessageDetails(**details)
        )

    def consumer(self, name: str, backlog: int = 1, content_filter: str | None = None) -> Consumer:
        consumer = Consumer(name, name, backlog)
        self.consumers[name] = consumer
        self.queue.attach(consumer, content_filter)
        return consumer

    def deliver(self) -> dict[str, list[int]]:
        """Who gets what, by name."""
        got: dict[str, list[int]] = {}
        for delivery in self.deliveries():
            got.setdefault(delivery.consumer.name, []).extend(delivery.txids)
        return got

    def deliveries(self) -> list[QueueDelivery]:
        deliveries = self.queue.assign_messages(self.now)
        while self.queue.is_behind:
            deliveries += self.queue.assign_messages(self.now)
        return deliveries

    def later(self, microseconds: int) -> None:
        self.now += microseconds


def marks(*txids: int) -> list[PublisherSequence]:
    return [(PUBLISHER, txid) for txid in txids]
