"""One queue: what it is told, what it decides, and what it wants recorded.

See server/queues/__init__.py for how it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from server.queues.consumers import Consumer, Seat
from server.queues.counts import Counters
from server.queues.details import NO_DETAILS, Details
from server.queues.dispatch import Dispatch, Share
from server.queues.events import (
    FORCED_EXPIRE,
    Acked,
    Cancelled,
    Deferred,
    Event,
    Leased,
    Mark,
    Released,
    Sent,
    Transferred,
)
from server.queues.leases import Lease
from server.queues.ledger import Ledger, Watcher
from server.queues.settings import QueueSettings
from server.queues.sources import Matching
from server.queues.states import BARRIER, GONE, LEASED, SENT

EFFORT: Final = 1024
"""Messages that one call matches against filters, if it is not told otherwise."""

MOST_DELIVERED: Final = 65_536
"""Messages that one call delivers, if it is not told otherwise."""

_NO_LIMIT: Final = 1 << 62


class Way(Enum):
    """What an acknowledgement says became of a message."""

    DONE = "done"
    CANCEL = "cancel"
    EXPIRE = "expire"


class Delivery(NamedTuple):
    """Messages for one consumer, in order.

    Attributes:
        consumer: who gets them.
        txids: their numbers in the log.
        places: their places in the queue, for questions about them.
        marks: their bookmarks.
        lease_until: when they come back unless they are acknowledged, in microseconds since 1970;
            None for never.
        is_barrier: whether it is a barrier, which everybody gets and nobody acknowledges.
    """

    consumer: Consumer
    txids: Sequence[int]
    places: Sequence[int]
    marks: Sequence[Mark]
    lease_until: int | None
    is_barrier: bool = False


@dataclass(slots=True)
class AckResult:
    """What became of an acknowledgement.

    Attributes:
        done: how many messages it took effect on, those kept for later not included.
        deferred: bookmarks of messages that have not come; kept until they do.
        refused: what it had no effect on, with the reason in words.
    """

    done: int = 0
    deferred: list[Mark] = field(default_factory=list)
    refused: list[tuple[Mark, str]] = field(default_factory=list)


HAS_LEFT: Final = "the message has left the queue"
NOT_LEASED: Final = "the message is not leased"
LEASED_ELSEWHERE: Final = "the message is leased to another client"
IS_BARRIER: Final = "the message is a barrier, which needs no acknowledgement"
NOT_HERE: Final = "the message is not in the queue"


class Queue:
    """The messages of one queue and its consumers.

    Args:
        settings: how it behaves.
        matching: makes what decides filters; only called when a consumer has one.
        owner: the name of this instance.
        on_room: told when a consumer may have room, also by what it does at other queues: deliver.

    Attributes:
        settings: how it behaves.
    """

    def __init__(
        self,
        settings: QueueSettings,
        matching: Callable[[], Matching],
        owner: str = "",
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._owner = owner
        self._dispatch = Dispatch(settings, matching, on_room)
        self._ledger = Ledger(settings, self._dispatch.offered)
        self._dispatch.ledger = self._ledger
        self._has_more = False

    # messages come

    def enqueue(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: Details = NO_DETAILS,
    ) -> None:
        """Take in messages of one publisher, in the order of the log; also when it is replayed.

        Args:
            txids: their numbers in the log, ascending.
            times: when they were recorded, in microseconds since 1970.
            client: the publisher's client hash.
            sequences: the publisher's numbers for them.
            details: what else is to be known, for each of them.
        """
        self._ledger.enqueue(txids, times, client, sequences, details)

    # consumers

    def attach(self, consumer: Consumer, content_filter: Hashable | None = None) -> None:
        """Deliver to a consumer, or from now on by another filter; what it has, it keeps.

        Args:
            consumer: who.
            content_filter: what it wants, as the `Matching` understands it; None for everything.
        """
        dispatch = self._dispatch
        dispatch.supply(dispatch.seat(consumer), content_filter)

    def detach(self, consumer: Consumer, now: int) -> None:
        """A consumer has gone: what it has not acknowledged comes back, oldest first.

        Under at-most-once it does not come back.
        """
        seat = self._dispatch.seats.get(consumer)
        if seat is None:
            return
        self._dispatch.cut_off(seat)
        for place in sorted(seat.held):
            lease = self._ledger.end_lease(place)
            if lease is None:
                continue
            self._ledger.counters.returned += 1
            if self._ledger.entries.state(place) == SENT:
                self._ledger.remove(place, now)
            else:
                self._ledger.give_back(place, lease, now)
        self._dispatch.dismiss(seat)
        self._ledger.flush(now)

    def retire(self, consumer: Consumer) -> None:
        """A consumer wants no more messages of this queue, and keeps those that it has.

        They are its own until they are acknowledged, their leases end, or it is detached: what a
        replaced subscription does to a queue that it has left.
        """
        seat = self._dispatch.seats.get(consumer)
        if seat is not None:
            self._dispatch.cut_off(seat)
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
        self._ledger.advance(now, most)
        deliveries: list[Delivery] = []
        self._has_more = (self._ledger.leases.next or now + 1) <= now
        while True:
            most = self._serve(now, effort, most, deliveries)
            barriers = len(self._ledger.barriers)
            if barriers:
                deliveries += self._release_barriers(now)
            if barriers == len(self._ledger.barriers):
                return deliveries

    def _serve(self, now: int, effort: int, most: int, deliveries: list[Delivery]) -> int:
        """Have messages found and handed out; returns how many more may be."""
        dispatch = self._dispatch
        while True:
            left = dispatch.look(effort)
            shares = dispatch.serve(min(self._capacity, most))
            deliveries += [self._hand_over(share, now) for share in shares]
            most -= sum(len(share.places) for share in shares)
            if most <= 0:
                self._has_more = True
                return 0
            if dispatch.is_stalled or (left == effort and not dispatch.is_to_look_again):
                return most
            effort = left

    @property
    def _capacity(self) -> int:
        limit = self.settings.max_backlog
        return _NO_LIMIT if limit is None else limit - len(self._ledger.leases)

    def _hand_over(self, share: Share, now: int) -> Delivery:
        """Lease messages to a consumer."""
        ledger, settings = self._ledger, self.settings
        seat, places, txids = share
        period = settings.lease_period
        until = None if period is None or settings.at_most_once else now + period
        ledger.lease(Lease(seat, now, until, places))
        marks = [ledger.entries.mark(place) for place in places]
        if settings.at_most_once:
            ledger.events.append(Sent(now, marks))
        elif settings.max_deliveries:
            ledger.events.append(Leased(now, marks, seat.consumer.name))
        if ledger.watcher is not None:
            ledger.watcher.went(places)
        return Delivery(seat.consumer, txids, places, marks, until)

    def _release_barriers(self, now: int) -> list[Delivery]:
        """Send barriers that nothing is before, to all consumers that they match."""
        ledger = self._ledger
        deliveries: list[Delivery] = []
        while ledger.barriers and ledger.barriers[0] == ledger.entries.head:
            consumers = self._dispatch.everybody_for(ledger.barriers[0])
            if consumers is None:
                break
            place = ledger.barriers[0]
            txid, mark = ledger.entries.txid(place), ledger.entries.mark(place)
            deliveries += [
                Delivery(consumer, (txid,), (place,), (mark,), None, is_barrier=True)
                for consumer in consumers
            ]
            ledger.remove(place, now)
            ledger.events.append(Released(now, [mark]))
        return deliveries

    @property
    def is_behind(self) -> bool:
        """Whether `deliver` has left messages that somebody may wait for: call again."""
        return self._has_more or self._dispatch.is_behind

    @property
    def is_stalled(self) -> bool:
        """Whether `deliver` could not look at messages: call again when that may be otherwise."""
        return self._dispatch.is_stalled

    # acknowledgements

    def acknowledge(
        self,
        marks: Iterable[Mark],
        now: int,
        client: Hashable = None,
        way: Way = Way.DONE,
        delay: int | None = None,
    ) -> AckResult:
        """Acknowledge messages by their bookmarks.

        Args:
            marks: the bookmarks.
            now: the moment.
            client: whose acknowledgement it is; None for the server itself, which may do all.
            way: whether they are done, given back or expired.
            delay: for how many microseconds messages given back stay away; None for as long as
                the queue says.
        """
        result = AckResult()
        entries = self._ledger.entries
        places: list[int] = []
        if not self.settings.keyed and (way is Way.DONE or self.settings.at_most_once):
            holder = client if self.settings.strict else None
            done, marks = self._ledger.acknowledge_leased(marks, holder)
            result.done = len(done)
            if done and not self.settings.at_most_once:
                self._ledger.events.append(Acked(now, done))
        for mark in marks:
            place = entries.find(mark)
            if place is not None and entries.state(place) != GONE:
                places.append(place)
            elif way is Way.DONE and not entries.has_come(mark):
                result.deferred.append(mark)
            else:
                result.refused.append((mark, HAS_LEFT if entries.has_come(mark) else NOT_HERE))
        if result.deferred:
            self._ledger.deferred.add(result.deferred, now)
            self._ledger.events.append(Deferred(now, result.deferred))
        if places:
            self._acknowledge(places, now, client, way, delay, result)
        self._ledger.flush(now)
        return result

    def acknowledge_places(
        self,
        places: Iterable[int],
        now: int,
        client: Hashable = None,
        way: Way = Way.DONE,
        delay: int | None = None,
    ) -> AckResult:
        """Acknowledge messages that were found by key or filter. See `acknowledge`.

        Of many messages, in portions: each call is one event of the record.
        """
        result = AckResult()
        entries = self._ledger.entries
        there = [place for place in places if entries.state(place) not in (GONE, SENT)]
        self._acknowledge(there, now, client, way, delay, result)
        self._ledger.flush(now)
        return result

    def _acknowledge(
        self,
        places: Iterable[int],
        now: int,
        client: Hashable,
        way: Way,
        delay: int | None,
        result: AckResult,
    ) -> None:
        places = dict.fromkeys(places)
        if way is Way.DONE or self.settings.at_most_once:
            self._done(places, now, client, result)
        elif way is Way.EXPIRE:
            self._expire(places, now, client, result)
        else:
            self._cancel(places, now, client, delay, result)

    def _refusal(self, place: int, state: int, client: Hashable) -> str | None:
        """Why an acknowledgement has no effect on a message; None if it has."""
        if state == BARRIER:
            return IS_BARRIER
        if self.settings.strict and state == LEASED and client is not None:
            lease = self._ledger.leases.by_place[place]
            if lease.seat.consumer.client != client:
                return LEASED_ELSEWHERE
        return None

    def _done(self, places: Iterable[int], now: int, client: Hashable, result: AckResult) -> None:
        ledger = self._ledger
        entries = ledger.entries
        acked: list[Mark] = []
        for place in places:
            state = entries.state(place)
            if state == GONE:  # it has expired when the one before it left
                continue
            reason = self._refusal(place, state, client)
            if reason is not None:
                result.refused.append((entries.mark(place), reason))
                continue
            if state in (LEASED, SENT):
                ledger.end_lease(place)
            if state != SENT:
                acked.append(entries.mark(place))
            ledger.remove(place, now)
            ledger.counters.acknowledged += 1
            result.done += 1
        if acked:
            ledger.events.append(Acked(now, acked))

    def _expire(self, places: Iterable[int], now: int, client: Hashable, result: AckResult) -> None:
        ledger = self._ledger
        for place in places:
            state = ledger.entries.state(place)
            if state == GONE:
                continue
            reason = self._refusal(place, state, client)
            if reason is not None:
                result.refused.append((ledger.entries.mark(place), reason))
                continue
            lease = ledger.end_lease(place)
            if lease is not None:
                attempts = ledger.attempt(place)
                attempts.deliveries += 1
                attempts.last_consumer = lease.seat.consumer.name
            ledger.expire(place, now, (FORCED_EXPIRE,))
            result.done += 1

    def _cancel(
        self,
        places: Iterable[int],
        now: int,
        client: Hashable,
        delay: int | None,
        result: AckResult,
    ) -> None:
        ledger = self._ledger
        kept: list[tuple[Mark, int, int]] = []
        for place in places:
            state = ledger.entries.state(place)
            mark = ledger.entries.mark(place)
            reason = self._refusal(place, state, client)
            if reason is None and state != LEASED:
                reason = NOT_LEASED
            lease = None if reason is not None else ledger.end_lease(place)
            if lease is None:
                result.refused.append((mark, reason or NOT_LEASED))
                continue
            attempts = ledger.attempt(place)
            cancels = attempts.cancels + 1
            wait = self.settings.retry_after(cancels) if delay is None else delay
            if ledger.give_back(place, lease, now, now + wait):
                kept.append((mark, cancels, now + wait))
            result.done += 1
        if kept:
            ledger.counters.cancelled += len(kept)
            marks, counts, moments = (list(column) for column in zip(*kept, strict=True))
            ledger.events.append(Cancelled(now, marks, counts, moments))

    def extend(
        self, marks: Iterable[Mark], until: int, now: int, client: Hashable = None
    ) -> AckResult:
        """Let leases end at another moment.

        Args:
            marks: bookmarks of leased messages.
            until: when they end, in microseconds since 1970.
            now: the moment.
            client: whose wish it is; it can extend its own leases only. None for the server.
        """
        result = AckResult()
        ledger = self._ledger
        extended: dict[Seat, list[int]] = {}
        for mark in marks:
            place = ledger.entries.find(mark)
            lease = None if place is None else ledger.leases.by_place.get(place)
            if place is None or lease is None or lease.until is None:
                result.refused.append((mark, NOT_LEASED))
            elif client is not None and lease.seat.consumer.client != client:
                result.refused.append((mark, LEASED_ELSEWHERE))
            else:
                extended.setdefault(lease.seat, []).append(place)
        for seat, places in extended.items():
            ledger.leases.renew(seat, now, until, places)
            result.done += len(places)
        return result

    # other instances

    def transfer(self, marks: Iterable[Mark], owner: str, now: int) -> list[Mark]:
        """Let another instance own messages, or this one.

        Returns:
            The messages whose owner has changed: those that are here and that nobody has.
        """
        ledger = self._ledger
        moved: list[Mark] = []
        new_owner = "" if owner == self._owner else owner
        for mark in marks:
            place = ledger.entries.find(mark)
            if place is None or ledger.entries.state(place) in (GONE, LEASED, SENT):
                continue
            if ledger.entries.owner(place) != new_owner:
                ledger.transfer(place, new_owner, now)
                moved.append(mark)
        if moved:
            ledger.events.append(Transferred(now, moved, owner))
        ledger.flush(now)
        ledger.advance(now, MOST_DELIVERED)
        return moved

    # the record

    def take_events(self) -> list[Event]:
        """What has happened since the last call and is to be recorded, in this order."""
        ledger = self._ledger
        if ledger.taken:
            taken, ledger.taken = ledger.taken, {}
            ledger.events.append(Acked(max(taken.values()), list(taken)))
        if not ledger.events:
            return []
        events, ledger.events = ledger.events, []
        return events

    def replay(self, event: Event) -> None:
        """Let an event of the record happen again, in the order of the log."""
        self._ledger.replay(event, self._owner)

    def finish_recovery(self, now: int) -> None:
        """Everything has been replayed: what must not be delivered once more, expires."""
        self._ledger.finish_recovery(now)

    def checkpoint(self) -> tuple[int | None, list[tuple[Mark, int]]]:
        """From where the record is needed.

        Returns:
            The txid of the oldest message in the queue (everything before has left it), None if it
            is empty; and the acknowledgements whose messages have not come, with when they came,
            which have to be kept apart (see `restore_deferred`).
        """
        return self.oldest_txid, list(self._ledger.deferred)

    @property
    def oldest_txid(self) -> int | None:
        """The txid of the oldest message in the queue, None if it is empty. See `checkpoint`."""
        ledger = self._ledger
        head = ledger.entries.head
        if head != ledger.entries.end:
            return ledger.entries.txid(head)
        return ledger.resume_txid if ledger.inactive else None

    def restore_deferred(self, acks: Iterable[tuple[Mark, int]]) -> None:
        """Take back what `checkpoint` gave, before anything is replayed."""
        for mark, came in acks:
            self._ledger.deferred.add((mark,), came)

    # messages beyond TargetQueueDepth

    @property
    def inactive(self) -> int:
        """Messages in the log that do not count yet."""
        return self._ledger.inactive

    @property
    def wanted(self) -> int:
        """How many of these there is room for: to be read from the log, and admitted."""
        return self._ledger.wanted

    @property
    def resume_txid(self) -> int:
        """The first of these in the log, if there are any."""
        return self._ledger.resume_txid

    def admit(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: Details = NO_DETAILS,
    ) -> None:
        """Take in messages that did not count, in the order of the log. See `enqueue`."""
        self._ledger.admit(txids, times, client, sequences, details)

    # time

    @property
    def next_moment(self) -> int | None:
        """When `deliver` is to be called though nothing has happened, None for never.

        It may be earlier than needed, and never is later.
        """
        return self._ledger.next_moment

    # looking into it

    @property
    def counters(self) -> Counters:
        """What has happened."""
        return self._ledger.counters

    @property
    def depth(self) -> int:
        """Messages in the queue, leased ones included."""
        return self._ledger.depth

    @property
    def leased(self) -> int:
        """Messages that consumers have and have not acknowledged."""
        return len(self._ledger.leases)

    @property
    def ledger(self) -> Ledger:
        """The messages, for those who look into the queue (inspection.py)."""
        return self._ledger

    @property
    def dispatch(self) -> Dispatch:
        """The consumers, for those who look into the queue (inspection.py)."""
        return self._dispatch

    def watch(self, watcher: Watcher | None) -> None:
        """Tell somebody what can be seen of the queue, None for nobody."""
        self._ledger.watcher = watcher
