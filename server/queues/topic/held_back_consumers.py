"""Backpressure for consumers that do not read their messages while the leases end.

Each expired lease would append a further copy of the same messages to the consumer's output buffer.
So a consumer that has had unread messages for the duration of a lease gets no more until it has
read everything. Other consumers get the messages meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from server.queues.core import Consumer
    from server.queues.topic.context import QueueServices
    from server.topics.subscriptions.subscription import Subscription

_CHECK_INTERVAL_S: Final = 0.05
"""Interval between two checks of held-back consumers."""


class HeldBackConsumers:
    """The consumers of one queue that do not read.

    Args:
        services: the server's services for the queue.
    """

    def __init__(self, services: QueueServices) -> None:
        self._services: Final = services
        # by consumer with unread messages: the end of the first lease since then
        self._hold_back_times: dict[Consumer, int] = {}
        self._held_back_consumers: set[Consumer] = set()

    def record_sent(self, consumer: Consumer, lease_until: int | None) -> None:
        """Hold a consumer back if needed, after messages have been sent to it.

        Args:
            consumer: the consumer.
            lease_until: the end of their lease; None for never.
        """
        if lease_until is None or not _is_behind(consumer):
            self._hold_back_times.pop(consumer, None)
        elif self._services.now_us >= self._hold_back_times.setdefault(consumer, lease_until):
            if not self._held_back_consumers:
                self._schedule_check()
            self._held_back_consumers.add(consumer)
            consumer.set_held_back(True)

    def forget_consumer(self, consumer: Consumer | None) -> None:
        """Forget a detached consumer; a no-op for others."""
        if consumer is not None:
            self._hold_back_times.pop(consumer, None)

    def _schedule_check(self) -> None:
        self._services.clock.call_later(_CHECK_INTERVAL_S, self._check_consumers)

    def _check_consumers(self) -> None:
        for consumer in tuple(self._held_back_consumers):
            if not _is_behind(consumer):
                self._held_back_consumers.discard(consumer)
                self._hold_back_times.pop(consumer, None)
                consumer.set_held_back(False)
        if self._held_back_consumers:
            self._schedule_check()


def _is_behind(consumer: Consumer) -> bool:
    """Return True if a consumer is connected and has not read everything."""
    subscriber = cast("Subscription", consumer.subscription).subscriber
    return subscriber.is_open and subscriber.is_behind()
