"""Delivers the messages of a queue: the core assigns messages to consumers, this module sends them.

The work is done in time slices. If the log cannot be read at the moment, all deliveries of the
queue are paused for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from server.queues.core.message_state import earlier
from server.queues.topic.delivery_batch import QueueDeliveryBatch, lease_key
from server.queues.topic.held_back_consumers import HeldBackConsumers
from server.storage.journal import JournalUnreadableError
from server.topics.subscriptions.delivery.delivery import deliver_batch
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.util.clock import MICROSECONDS_PER_SECOND, no_timer

if TYPE_CHECKING:
    from server.queues.core import Consumer, Queue, QueueDelivery
    from server.queues.core.leases import Lease
    from server.queues.topic.context import QueueServices
    from server.queues.topic.depth_refill import DepthRefill
    from server.queues.topic.message_batch import QueueBatchPart
    from server.queues.topic.message_cache import MessageCache
    from server.queues.topic.queue_journal import QueueJournal
    from server.queues.topic.shared_queue import SharedQueue
    from server.topics.subscriptions.delivery.delivery import Delivery as MessageDelivery
    from server.topics.subscriptions.subscription import Subscription

_SEND_BATCH_SIZE: Final = 256
"""Messages delivered per time slice."""
_MATCH_BATCH_SIZE: Final = 512
"""Messages matched against the filters of consumers per time slice."""
_RETRY_INTERVAL_S: Final = 1.0
"""Delay before a failed read of the log is retried."""
_MIN_DELAY: Final = 0.001
_PUBLISHER_AND_KEYS: Final = attrgetter("batch.client", "batch.keys")


class QueueDeliveryTask:
    """Delivers the messages of one queue.

    Args:
        core: the queue.
        name: its name.
        message_cache: reads the messages.
        depth_refill: activates messages beyond TargetQueueDepth.
        queue_journal: appends the queue's events to the log.
        shared_queue: requests messages from other instances, and transfers some.
        delivery_for: makes the delivery that frames messages for subscriptions; see `Topic`.
        services: the server's services for the queue.
    """

    def __init__(
        self,
        core: Queue,
        name: str,
        message_cache: MessageCache,
        depth_refill: DepthRefill,
        queue_journal: QueueJournal,
        shared_queue: SharedQueue,
        delivery_for: Callable[[Sequence[Subscription]], MessageDelivery],
        services: QueueServices,
    ) -> None:
        self._core: Final = core
        self._name: Final = name
        self._message_cache: Final = message_cache
        self._depth_refill: Final = depth_refill
        self._queue_journal: Final = queue_journal
        self._shared_queue: Final = shared_queue
        self._delivery_for: Final = delivery_for
        self._services: Final = services
        self._delivery_by_subscription: dict[Subscription, MessageDelivery] = {}
        self._held_back_consumers: Final = HeldBackConsumers(services)
        self._outgoing: deque[QueueDelivery] = deque()
        self._is_awake = False
        self._is_paused = False
        self._is_closed = False
        self._timer_at: int | None = None
        self._cancel_timer: Callable[[], None] = no_timer

    def wake(self) -> None:
        """Schedule a delivery slice, unless deliveries are paused."""
        if self._is_awake:
            self._services.deliveries.note_addition()
        elif not self._is_paused:
            self._is_awake = True
            self._services.deliveries.add_queue(self)

    def wake_for_room(self) -> None:
        """Schedule a delivery slice if it has something to do, now that consumers have more room.

        An acknowledgement makes room, and most queues have nothing left to deliver then.
        """
        if self._core.has_deliverable or self._shared_queue.is_shared or self._needs_timer():
            self.wake()

    @property
    def is_paused(self) -> bool:
        """True while deliveries are paused because the log cannot be read."""
        return self._is_paused

    def forget_subscription(self, subscription: Subscription) -> None:
        """Forget an ended subscription; a no-op if nothing was delivered to it."""
        self._delivery_by_subscription.pop(subscription, None)
        self._held_back_consumers.forget_consumer(subscription.consumer)

    def pause_on_read_error(self, problem: JournalUnreadableError) -> None:
        """Log an unreadable log, and pause all deliveries for a while."""
        self._services.events.emit("1D-0015", queue=self._name, problem=problem)
        self._is_paused = True
        self._start_timer(_RETRY_INTERVAL_S)

    def close(self) -> None:
        """Deliver nothing more."""
        self._is_closed = True
        self._cancel_timer()
        self._outgoing.clear()

    # slices

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; the work is for all consumers."""
        return "", "queue"

    def step(self) -> bool:
        """Deliver some messages. See `EngineTask.step`."""
        if self._is_closed:
            self._is_awake = False
            return False
        has_more = self._refill()
        is_fresh = not self._outgoing
        if is_fresh:
            self._assign_messages()
        self._send_slice(is_fresh=is_fresh)
        if not self._is_paused:
            if self._outgoing or self._core.is_behind or has_more or not is_fresh:
                return True
            if self._shared_queue.process_transfers():
                return True
            self._schedule_deadline()
        self._is_awake = False
        return False

    def _refill(self) -> bool:
        """Activate more messages; return True if there are more to activate at once."""
        try:
            return self._depth_refill.refill(_SEND_BATCH_SIZE)
        except JournalUnreadableError as problem:
            self.pause_on_read_error(problem)
            return False

    def _assign_messages(self) -> None:
        now_us = self._services.now_us
        deliveries = self._core.assign_messages(now_us, _MATCH_BATCH_SIZE, _SEND_BATCH_SIZE)
        if not self._core.settings.at_most_once:
            self._outgoing += deliveries
        elif deliveries:
            self._queue_journal.when_durable(partial(self._send_recorded, deliveries))
        self._queue_journal.write()

    def _send_recorded(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Send at-most-once messages; their departure is durable, so they cannot go to others."""
        self._outgoing += deliveries
        self.wake()

    # sending

    def _send_slice(self, *, is_fresh: bool) -> None:
        """Send the messages of one slice.

        Args:
            is_fresh: the deliveries were decided in this slice, so no lease can have changed.
        """
        remaining = _SEND_BATCH_SIZE
        while self._outgoing and remaining > 0:
            delivery = self._outgoing.popleft()
            if len(delivery.txids) > remaining:
                self._outgoing.appendleft(_part(delivery, remaining, len(delivery.txids)))
                delivery = _part(delivery, 0, remaining)
            remaining -= len(delivery.txids)
            try:
                self._send(delivery, is_fresh=is_fresh)
            except JournalUnreadableError as problem:
                self._outgoing.appendleft(delivery)
                self.pause_on_read_error(problem)
                return

    def _send(self, delivery: QueueDelivery, *, is_fresh: bool) -> None:
        if delivery.consumer not in self._core.dispatch.slots:
            return  # the consumer has been detached meanwhile, and its leases have ended
        subscription = cast("Subscription", delivery.consumer.subscription)  # the current one
        txids = delivery.txids if is_fresh else self._leased_txids(delivery)
        present = [part for part in self._message_cache.find(txids) if part is not None]
        lease_until, wall_clock_lead_us = delivery.lease_until, self._services.wall_clock_lead_us
        lease = lease_key(None if lease_until is None else lease_until + wall_clock_lead_us)
        for batch in [present] if len(present) == 1 else _by_publisher_and_keys(present):
            self._send_batch(subscription, QueueDeliveryBatch(batch, lease))
        self._held_back_consumers.record_sent(delivery.consumer, lease_until)

    def _leased_txids(self, delivery: QueueDelivery) -> Sequence[int]:
        """Return the txids of a delivery that are still leased to its consumer.

        Any client may acknowledge messages, even before they are sent, and leases may end.
        """
        if delivery.is_barrier:
            return delivery.txids
        consumer = delivery.consumer
        leases = list(map(self._core.lifecycle.leases.by_offset.get, delivery.offsets))
        if not any(_is_over(lease, consumer) for lease in set(leases)):
            return delivery.txids
        return [
            txid
            for txid, lease in zip(delivery.txids, leases, strict=True)
            if not _is_over(lease, consumer)
        ]

    def _send_batch(self, subscription: Subscription, batch: QueueDeliveryBatch) -> None:
        try:
            delivery = self._delivery_by_subscription.get(subscription)
            if delivery is None:
                delivery = self._delivery_by_subscription[subscription] = self._delivery_for(
                    [subscription]
                )
            deliver_batch(batch, delivery)
        except Exception as error:  # of any kind: it must not affect the other consumers
            end_failed_subscriptions((subscription,), error)

    # time

    def _schedule_deadline(self) -> None:
        next_deadline = self._next_deadline()
        if next_deadline is None or not self._needs_timer():
            return
        self._start_timer(
            max((next_deadline - self._services.now_us) / MICROSECONDS_PER_SECOND, _MIN_DELAY)
        )
        self._timer_at = next_deadline

    def _next_deadline(self) -> int | None:
        """Return the time of the next slice if nothing happens before; None for none."""
        return earlier(self._core.next_deadline, self._shared_queue.next_deadline)

    def _needs_timer(self) -> bool:
        """Return True if the next slice is due before the timer would call it."""
        next_deadline = self._next_deadline()
        return next_deadline is not None and (
            self._timer_at is None or next_deadline < self._timer_at
        )

    def _start_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer_at = None
        self._cancel_timer = self._services.clock.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_at = None
        self._cancel_timer = no_timer
        self._is_paused = False
        self.wake()


def _is_over(lease: Lease | None, consumer: Consumer) -> bool:
    """Return True if the current lease of a message is not, or no longer, the consumer's."""
    return lease is None or lease.slot.consumer is not consumer


def _by_publisher_and_keys(parts: Sequence[QueueBatchPart]) -> Iterator[Sequence[QueueBatchPart]]:
    """Group messages of the same publisher with the same header keys."""
    return (list(batch) for _, batch in groupby(parts, _PUBLISHER_AND_KEYS))


def _part(delivery: QueueDelivery, start: int, stop: int) -> QueueDelivery:
    return delivery._replace(
        txids=delivery.txids[start:stop],
        offsets=delivery.offsets[start:stop],
    )
