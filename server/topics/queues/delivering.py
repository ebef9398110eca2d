"""Hands the messages of a queue out: the core decides who gets what, and consumers are sent it.

In slices, between other work. What cannot be read from the log at the moment lets everything wait
for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from server.journal import JournalUnreadable
from server.subscriptions.delivery import deliver_run
from server.subscriptions.failures import give_up_on
from server.topics.queues.messages import QueueRun, lease_key
from server.topics.queues.unread import Unread

if TYPE_CHECKING:
    from server.queues import Consumer, Delivery, Queue
    from server.queues.leases import Lease
    from server.subscriptions.delivery import Delivery as MessageDelivery
    from server.subscriptions.subscription import Subscription
    from server.topics.queues.membership import Membership
    from server.topics.queues.recording import Recording
    from server.topics.queues.refilling import Refilling
    from server.topics.queues.shelf import Shelf
    from server.topics.queues.surroundings import Surroundings
    from server.topics.queues.tray import Part

_MICROSECONDS: Final = 1_000_000
_SENT_AT_ONCE: Final = 256
"""Messages that a slice delivers."""
_MATCHED_AT_ONCE: Final = 512
"""Messages that a slice matches against the filters of consumers."""
_RETRY_SECONDS: Final = 1.0
"""Until it is tried again to read from a log that refuses."""
_LEAST_DELAY: Final = 0.001
_PUBLISHER_AND_KEYS: Final = attrgetter("tray.client", "tray.keys")


class Delivering:
    """Delivers the messages of one queue.

    Args:
        core: the queue.
        name: its name.
        shelf: has the messages.
        refilling: lets more of them count.
        recording: puts into the log what has happened.
        membership: asks other instances for messages, and hands some on.
        delivery_for: makes what frames messages for some subscriptions; see `Topic`.
        surroundings: what the queue needs of the server.
    """

    def __init__(
        self,
        core: Queue,
        name: str,
        shelf: Shelf,
        refilling: Refilling,
        recording: Recording,
        membership: Membership,
        delivery_for: Callable[[Sequence[Subscription]], MessageDelivery],
        surroundings: Surroundings,
    ) -> None:
        self._core: Final = core
        self._name: Final = name
        self._shelf: Final = shelf
        self._refilling: Final = refilling
        self._recording: Final = recording
        self._membership: Final = membership
        self._delivery_for: Final = delivery_for
        self._surroundings: Final = surroundings
        self._deliveries: dict[Subscription, MessageDelivery] = {}
        self._unread: Final = Unread(surroundings.clock)
        self._outgoing: deque[Delivery] = deque()
        self._is_awake = False
        self._is_stalled = False
        self._timer_at: int | None = None
        self._cancel_timer: Callable[[], None] = _nothing

    def wake(self) -> None:
        """Have it looked at who gets what, soon."""
        if not self._is_awake and not self._is_stalled:
            self._is_awake = True
            self._surroundings.queue(self)

    def forget(self, subscription: Subscription) -> None:
        """A subscription has ended; harmless if nothing was delivered to it."""
        self._deliveries.pop(subscription, None)
        self._unread.forget(subscription.consumer)

    def cannot_read(self, problem: JournalUnreadable) -> None:
        """Let everything wait for a while."""
        self._surroundings.events.emit("1D-0015", queue=self._name, problem=problem)
        self._is_stalled = True
        self._later(_RETRY_SECONDS)

    # slices

    @property
    def doing(self) -> tuple[str, str]:
        """See `Sliced.doing`; it is for all consumers."""
        return "", "queue"

    def step(self) -> bool:
        """Deliver some messages. See `Sliced.step`."""
        is_short = self._refill()
        has_decided = not self._outgoing
        if has_decided:
            self._decide()
        self._send_some(is_fresh=has_decided)
        if not self._is_stalled:
            if self._outgoing or self._core.is_behind or is_short or not has_decided:
                return True
            if self._membership.step():
                return True
            self._watch_time()
        self._is_awake = False
        return False

    def _refill(self) -> bool:
        """Let more messages count; whether there are more of them to be let in at once."""
        try:
            return self._refilling.refill(_SENT_AT_ONCE)
        except JournalUnreadable as problem:
            self.cannot_read(problem)
            return False

    def _decide(self) -> None:
        now = self._surroundings.now
        deliveries = self._core.deliver(now, _MATCHED_AT_ONCE, _SENT_AT_ONCE)
        if not self._core.settings.at_most_once:
            self._outgoing += deliveries
        elif deliveries:
            self._recording.when_stored(partial(self._send_recorded, deliveries))
        self._recording.write()

    def _send_recorded(self, deliveries: Sequence[Delivery]) -> None:
        """Send what has left the queue by being sent: now nobody else gets it."""
        self._outgoing += deliveries
        self.wake()

    # sending

    def _send_some(self, *, is_fresh: bool) -> None:
        """Send a slice.

        Args:
            is_fresh: whether nothing may have happened since it was decided who gets it.
        """
        left = _SENT_AT_ONCE
        while self._outgoing and left > 0:
            delivery = self._outgoing.popleft()
            if len(delivery.txids) > left:
                self._outgoing.appendleft(_part(delivery, left, len(delivery.txids)))
                delivery = _part(delivery, 0, left)
            left -= len(delivery.txids)
            try:
                self._send(delivery, is_fresh=is_fresh)
            except JournalUnreadable as problem:
                self._outgoing.appendleft(delivery)
                self.cannot_read(problem)
                return

    def _send(self, delivery: Delivery, *, is_fresh: bool) -> None:
        if delivery.consumer not in self._core.dispatch.seats:
            return  # it has gone meanwhile, and so have its leases
        subscription = cast("Subscription", delivery.consumer.subscription)  # that of now
        txids = delivery.txids if is_fresh else self._still_leased(delivery)
        found = list(self._shelf.find(txids))
        there = [part for part in found if part is not None]
        until, ahead = delivery.lease_until, self._surroundings.ahead
        lease = lease_key(None if until is None else until + ahead)
        for alike in [there] if len(there) == 1 else _alike(there):
            self._hand_over(subscription, QueueRun(alike, lease))
        self._unread.sent(delivery.consumer, self._surroundings.now, until)

    def _still_leased(self, delivery: Delivery) -> Sequence[int]:
        """The messages of a delivery that have not been acknowledged before they are sent.

        Anybody may acknowledge them, also before they come, or their lease may have ended.
        """
        if delivery.is_barrier:
            return delivery.txids
        consumer = delivery.consumer
        leases = list(map(self._core.ledger.leases.by_place.get, delivery.places))
        if not any(_is_over(lease, consumer) for lease in set(leases)):
            return delivery.txids
        return [
            txid
            for txid, lease in zip(delivery.txids, leases, strict=True)
            if not _is_over(lease, consumer)
        ]

    def _hand_over(self, subscription: Subscription, run: QueueRun) -> None:
        try:
            delivery = self._deliveries.get(subscription)
            if delivery is None:
                delivery = self._deliveries[subscription] = self._delivery_for([subscription])
            deliver_run(run, delivery)
        except Exception as error:  # whatever it is, the other consumers must not pay for it
            give_up_on((subscription,), error)

    # time

    def _watch_time(self) -> None:
        moments = (self._core.next_moment, self._membership.next_moment)
        moment = min((one for one in moments if one is not None), default=None)
        if moment is None or (self._timer_at is not None and self._timer_at <= moment):
            return
        self._later(max((moment - self._surroundings.now) / _MICROSECONDS, _LEAST_DELAY))
        self._timer_at = moment

    def _later(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer_at = None
        self._cancel_timer = self._surroundings.clock.call_later(seconds, self._wake_by_timer)

    def _wake_by_timer(self) -> None:
        self._timer_at = None
        self._cancel_timer = _nothing
        self._is_stalled = False
        self.wake()


def _is_over(lease: Lease | None, consumer: Consumer) -> bool:
    """Whether a message is not with a consumer any more, given its lease of now."""
    return lease is None or lease.seat.consumer is not consumer


def _alike(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Messages of the same publisher with the same keys go together."""
    return (list(alike) for _, alike in groupby(parts, _PUBLISHER_AND_KEYS))


def _part(delivery: Delivery, start: int, stop: int) -> Delivery:
    return delivery._replace(
        txids=delivery.txids[start:stop],
        places=delivery.places[start:stop],
    )


def _nothing() -> None:
    """No timer is set."""
