"""Consumers that do not read what a queue sends them, while its leases end.

Each end of a lease would bring them a further copy of the same messages, to wait behind the others.
So who has not read everything for as long as a lease lasts gets nothing until it has. Others get
the messages meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.queues import Consumer
    from server.subscriptions.subscription import Subscription

_LOOK_SECONDS: Final = 0.05
"""Until it is looked again whether a consumer has read everything."""


class Unread:
    """The consumers of one queue that do not read.

    Args:
        clock: has it looked at them again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._behind: dict[Consumer, int] = {}  # with the end of the first lease since
        self._held_back: set[Consumer] = set()

    def sent(self, consumer: Consumer, now: int, lease_until: int | None) -> None:
        """A consumer was sent messages.

        Args:
            consumer: the consumer.
            now: the time, in microseconds since 1970.
            lease_until: when their lease ends; None for never.
        """
        if lease_until is None or not _is_behind(consumer):
            self._behind.pop(consumer, None)
        elif now >= self._behind.setdefault(consumer, lease_until):
            if not self._held_back:
                self._look_later()
            self._held_back.add(consumer)
            consumer.hold_back(True)

    def forget(self, consumer: Consumer | None) -> None:
        """A consumer has gone; harmless for others."""
        if consumer is not None:
            self._behind.pop(consumer, None)

    def _look_later(self) -> None:
        self._clock.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        for consumer in tuple(self._held_back):
            if not _is_behind(consumer):
                self._held_back.discard(consumer)
                self._behind.pop(consumer, None)
                consumer.hold_back(False)
        if self._held_back:
            self._look_later()


def _is_behind(consumer: Consumer) -> bool:
    """Whether a consumer that is still there has not read everything."""
    subscriber = cast("Subscription", consumer.subscription).subscriber
    return subscriber.is_open and subscriber.is_behind()
