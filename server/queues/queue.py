"""One queue: what it is told, what it decides, and what it wants recorded.

See server/queues/__init__.py for how it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from server.queues import recovery
from server.queues.acknowledging import Acknowledging
from server.queues.consumers import Consumer
from server.queues.counts import Counters
from server.queues.dispatch import Dispatch, Share
from server.queues.elsewhere import Elsewhere
from server.queues.entries import Room
from server.queues.events import (
    Acked,
    Event,
    Leased,
    Mark,
    Released,
    Sent,
    Transferred,
)
from server.queues.leases import Lease
from server.queues.ledger import Ledger, Watcher
from server.queues.ownership import Title
from server.queues.settings import QueueSettings
from server.queues.sources import Matching
from server.queues.states import BARRIER, GONE, LEASED, SENT

EFFORT: Final = 1024
"""Messages that one call matches against filters, if it is not told otherwise."""

MOST_DELIVERED: Final = 65_536
"""Messages that one call delivers, if it is not told otherwise."""

_NO_LIMIT: Final = 1 << 62

_STAY: Final = frozenset((GONE, LEASED, SENT, BARRIER))
"""States in which a message does not change hands."""


class Delivery(NamedTuple):
    """Messages for one consumer, in order.

    Attributes:
        consumer: who gets them.
        txids: their numbers in the log.
        places: their places in the queue, for questions about them.
        lease_until: when they come back unless they are acknowledged, in microseconds since 1970;
            None for never.
        is_barrier: whether it is a barrier, which everybody gets and nobody acknowledges.
    """

    consumer: Consumer
    txids: Sequence[int]
    places: Sequence[int]
    lease_until: int | None
    is_barrier: bool = False


class Queue:
    """The messages of one queue and its consumers.

    Args:
        settings: how it behaves.
        matching: makes what decides filters; only called when a consumer has one.
        owner: the name of this instance.
        on_room: told when a consumer may have room, also by what it does at other queues: deliver.
        was_recorded: tells whether a message can come no more, because the log has it, or later
            ones of its publisher.
        room: where to put away what is known of messages; None to keep all of it in memory.
        is_missing: tells whether a message may come although later ones of its publisher have: by
            way of another instance.

    Attributes:
        settings: how it behaves.
        owner: see above.
        ledger: its messages: they come by `Ledger.enqueue`.
        elsewhere: what other instances do with them.
        dispatch: its consumers.
        acknowledge: see `Acknowledging`, as for `acknowledge_places`, `refusal` and `extend`.
    """

    def __init__(
        self,
        settings: QueueSettings,
        matching: Callable[[], Matching],
        owner: str = "",
        on_room: Callable[[], None] = lambda: None,
        was_recorded: Callable[[Mark], bool] = lambda _: False,
        room: Room | None = None,
        is_missing: Callable[[Mark], bool] = lambda _: False,
    ) -> None:
        self.settings = settings
        self.owner: Final = owner
        self._was_recorded = was_recorded
        self._is_missing = is_missing
        self.dispatch: Final = Dispatch(settings, matching, on_room)
        self.ledger: Final = Ledger(settings, self.dispatch.offered, room, owner)
        self.elsewhere: Final = Elsewhere(self.ledger, self._is_to_come)
        self.dispatch.ledger = self.ledger
        # Without a step in between: this is the message path.
        acknowledging = Acknowledging(self.ledger, self._is_to_come)
        self.acknowledge: Final = acknowledging.acknowledge
        self.acknowledge_places: Final = acknowledging.acknowledge_places
        self.refusal: Final = acknowledging.refusal
        self.extend: Final = acknowledging.extend
        self._has_more = False

    # consumers

    def attach(self, consumer: Consumer, content_filter: Hashable | None = None) -> None:
        """Deliver to a consumer, or from now on by another filter; what it has, it keeps.

        Args:
            consumer: who.
            content_filter: what it wants, as the `Matching` understands it; None for everything.
        """
        dispatch = self.dispatch
        dispatch.supply(dispatch.seat(consumer), content_filter)

    def detach(self, consumer: Consumer, now: int) -> None:
        """A consumer has gone: what it has not acknowledged comes back, oldest first.

        Under at-most-once it does not come back.
        """
        seat = self.dispatch.seats.get(consumer)
        if seat is None:
            return
        self.dispatch.cut_off(seat)
        self._take_back(sorted(seat.held), now)
        self.dispatch.dismiss(seat)
        self.ledger.flush(now)

    def detach_some(self, consumer: Consumer, now: int, most: int) -> bool:
        """Let come back some of what a consumer has that is about to go, if that is very much.

        Args:
            consumer: who; it gets nothing more.
            now: the moment.
            most: how many messages come back.

        Returns:
            Whether there may be more than so many left; if not, `detach` does the rest.
        """
        seat = self.dispatch.seats.get(consumer)
        if seat is None or len(seat.held) <= most:
            return False
        self.dispatch.cut_off(seat)
        if not seat.returning:
            seat.returning = sorted(seat.held, reverse=True)
        some = seat.returning[: -most - 1 : -1]
        del seat.returning[-most:]
        self._take_back(some, now)
        self.ledger.flush(now)
        return True

    def _take_back(self, places: Iterable[int], now: int) -> None:
        """End the leases on messages whose consumer has gone; under at-most-once they go."""
        for place in places:
            lease = self.ledger.end_lease(place)
            if lease is None:
                continue
            self.ledger.counters.returned += 1
            if self.ledger.entries.state(place) == SENT:
                self.ledger.remove(place)
            else:
                self.ledger.give_back(place, lease, now)

    def retire(self, consumer: Consumer) -> None:
        """A consumer wants no more messages of this queue, and keeps those that it has.

        They are its own until they are acknowledged, their leases end, or it is detached: what a
        replaced subscription does to a queue that it has left.
        """
        seat = self.dispatch.seats.get(consumer)
        if seat is not None:
            self.dispatch.cut_off(seat)
            consumer.limits_changed()

    # delivery

    def deliver(self, now: int, effort: int = EFFORT, most: int = MOST_DELIVERED) -> list[Delivery]:
        """Decide who gets what.

        Args:
            now: the moment; what time has brought about is done first.
            effort: messages that may be matched against filters.
            most: messages to deliver, barriers not counted; and to have back because their leases
                have ended.

        Returns:
            Deliveries, in the order in which they are to be sent. Those of at-most-once may be
            sent when the event that they have caused is stored.
        """
        self.ledger.advance(now, most)
        deliveries: list[Delivery] = []
        self._has_more = (self.ledger.leases.next or now + 1) <= now
        if self.ledger.is_overdue(now):  # nobody is to get what has expired
            self._has_more = True
            return deliveries
        while True:
            most = self._serve(now, effort, most, deliveries)
            barriers = len(self.ledger.barriers)
            if barriers:
                deliveries += self._release_barriers(now)
            if barriers == len(self.ledger.barriers):
                return deliveries

    def _serve(self, now: int, effort: int, most: int, deliveries: list[Delivery]) -> int:
        """Have messages found and handed out; returns how many more may be."""
        dispatch = self.dispatch
        while True:
            left = dispatch.look(effort)
            shares = dispatch.serve(min(self.capacity, most))
            deliveries += [self._hand_over(share, now) for share in shares]
            most -= sum(len(share.places) for share in shares)
            if most <= 0:
                self._has_more = True
                return 0
            if dispatch.is_stalled or (left == effort and not dispatch.is_to_look_again):
                return most
            effort = left

    @property
    def capacity(self) -> int:
        """How many messages may be leased beyond those that are (MaxBacklog)."""
        limit = self.settings.max_backlog
        return _NO_LIMIT if limit is None else limit - len(self.ledger.leases)

    def _hand_over(self, share: Share, now: int) -> Delivery:
        """Lease messages to a consumer."""
        ledger, settings = self.ledger, self.settings
        seat, places, txids = share
        period = settings.lease_period
        until = None if period is None or settings.at_most_once else now + period
        ledger.lease(Lease(seat, now, until, places))
        if settings.at_most_once:
            ledger.events.append(Sent(now, ledger.entries.marks(places)))
        elif settings.records_deliveries:
            ledger.events.append(Leased(now, ledger.entries.marks(places), seat.consumer.name))
        if ledger.watcher is not None:
            ledger.watcher.went(places)
        return Delivery(seat.consumer, txids, places, until)

    def _release_barriers(self, now: int) -> list[Delivery]:
        """Send barriers that nothing is before, to all consumers that they match."""
        ledger = self.ledger
        deliveries: list[Delivery] = []
        while ledger.barriers and ledger.barriers[0] == ledger.entries.head:
            place = ledger.barriers[0]
            consumers = self.dispatch.everybody_for(place)
            if consumers is None:
                if self.dispatch.is_consumed or place not in ledger.passed:
                    break
                consumers = []  # nobody waits for it here, and elsewhere somebody has had it
            txid, mark = ledger.entries.txid(place), ledger.entries.mark(place)
            deliveries += [
                Delivery(consumer, (txid,), (place,), None, is_barrier=True)
                for consumer in consumers
            ]
            ledger.remove(place)
            ledger.events.append(Released(now, [mark]))
        return deliveries

    @property
    def is_behind(self) -> bool:
        """Whether `deliver` has left messages that somebody may wait for: call again."""
        return self._has_more or self.dispatch.is_behind

    @property
    def is_stalled(self) -> bool:
        """Whether `deliver` could not look at messages: call again when that may be otherwise."""
        return self.dispatch.is_stalled

    def _is_to_come(self, mark: Mark) -> bool:
        """Whether a message that is not here may come yet, also from beyond TargetQueueDepth."""
        if self.ledger.entries.has_come(mark):
            return self._is_missing(mark)
        return self.ledger.inactive > 0 or not self._was_recorded(mark)

    # other instances

    def transfer(self, marks: Iterable[Mark], owner: str, now: int) -> list[Mark]:
        """Let another instance own messages, or this one.

        Returns:
            The messages whose owner has changed: those that are here and that nobody has.
        """
        ledger = self.ledger
        moved: list[Mark] = []
        turns: list[int] = []
        for mark in marks:
            place = ledger.entries.find(mark)
            if place is None or ledger.entries.state(place) in _STAY:
                continue
            title = ledger.title(place)
            if title.owner != owner:
                ledger.transfer(place, Title(title.turn + 1, owner), now)
                moved.append(mark)
                turns.append(title.turn + 1)
        if moved:
            ledger.events.append(Transferred(now, moved, owner, turns))
        ledger.flush(now)
        ledger.advance(now, MOST_DELIVERED)
        return moved

    def settle_ownership(self, marks: Iterable[Mark], owner: str, now: int) -> None:
        """Leave messages to one of two instances that own them, as they were published at both.

        This one may be neither of them: the other two need not have heard of each other's message.
        Consumers here keep what they have.

        Args:
            marks: the messages.
            owner: the name of the one of the two that is the later by name: see `Title`.
            now: the moment.
        """
        ledger, title = self.ledger, Title(0, owner)
        left: list[Mark] = []
        for mark in marks:
            place = ledger.entries.find(mark)
            was_ours = place is not None and not ledger.entries.owner(place)
            is_new = ledger.claim(mark, title, now, may_come=self._is_to_come(mark))
            if is_new:
                left.append(mark)
                ledger.counters.owned_twice += was_ours
        if left:
            ledger.events.append(Transferred(now, left, owner, [0] * len(left)))
        ledger.flush(now)

    def hear(self, event: Event, now: int) -> None:
        """Let happen here what another instance has recorded."""
        self.elsewhere.hear(event, now)
        self.ledger.flush(now)

    def correct(self, claims: Iterable[tuple[Mark, Title]], now: int) -> None:
        """Somebody says who owns messages; see `Ledger.claim`."""
        for mark, title in claims:
            self.ledger.claim(mark, title, now, may_come=False)
        self.ledger.flush(now)

    # the record

    def take_events(self) -> list[Event]:
        """What has happened since the last call and is to be recorded, in this order."""
        ledger = self.ledger
        if ledger.taken:
            taken, ledger.taken = ledger.taken, {}
            ledger.events.append(Acked(max(taken.values()), list(taken)))
        if not ledger.events:
            return []
        events, ledger.events = ledger.events, []
        return events

    def replay(self, event: Event, came: int | None = None) -> None:
        """Let an event of the record happen again, in the order of the log.

        Args:
            event: the event.
            came: when it came from another instance, by this one's clock; None if it is its own.
        """
        if came is None:
            recovery.replay(self.ledger, event)
        else:
            self.elsewhere.hear(event, came, is_over=True)

    def finish_recovery(self, now: int) -> None:
        """Everything has been replayed: what must not be delivered once more, expires."""
        self.elsewhere.finish_recovery()
        recovery.finish(self.ledger, now)

    @property
    def oldest_txid(self) -> int | None:
        """The txid of the oldest message in the queue; everything before has left it.

        None if it is empty. The record is needed from there on. Acknowledgements whose messages
        have not come (`ledger.deferred`) may be older, and have to be kept apart.
        """
        ledger = self.ledger
        head = ledger.entries.head
        if head != ledger.entries.end:
            return ledger.entries.txid(head)
        return ledger.resume_txid if ledger.inactive else None

    def restore_deferred(self, acks: Iterable[tuple[Mark, int]]) -> None:
        """Take back acknowledgements whose messages had not come, before anything is replayed.

        Args:
            acks: their bookmarks, each with when it came.
        """
        for mark, came in acks:
            self.ledger.deferred.add((mark,), came)

    # time

    @property
    def next_moment(self) -> int | None:
        """When `deliver` is to be called though nothing has happened, None for never.

        It may be earlier than needed, and never is later.
        """
        return self.ledger.next_moment

    # looking into it

    @property
    def counters(self) -> Counters:
        """What has happened."""
        return self.ledger.counters

    @property
    def depth(self) -> int:
        """Messages in the queue, leased ones included."""
        return self.ledger.depth

    @property
    def leased(self) -> int:
        """Messages that consumers have and have not acknowledged."""
        return len(self.ledger.leases)

    def watch(self, watcher: Watcher | None) -> None:
        """Tell somebody what can be seen of the queue, None for nobody."""
        self.ledger.watcher = watcher
