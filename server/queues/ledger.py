"""What becomes of the messages of a queue: coming, staying, coming back, leaving.

The ledger is the part of a queue that its record brings back (server/queues/recovery.py). It does
not know whose turn it is. It tells whoever delivers of messages that can be delivered where they
were passed over already (`on_offer`), and of consumers that have room again (`freed`).

Source: AMPS User Guide, Message Flow for Queues; Acknowledging Messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from server.queues.consumers import Consumer
from server.queues.counts import Attempts, Counters
from server.queues.deferred import DeferredAcks
from server.queues.details import NO_DETAILS, Details
from server.queues.entries import Entries, Room
from server.queues.events import (
    MAX_CANCELS,
    MAX_DELIVERIES,
    TIME_LIMIT,
    Departure,
    Event,
    Expired,
    Mark,
)
from server.queues.keyed import KeyChains
from server.queues.leases import Lease, Leases
from server.queues.moments import Moments
from server.queues.order import LogOrder, Order, PriorityOrder, stored_priority
from server.queues.ownership import Title, Titles
from server.queues.settings import DEFERRED_ACKS, QueueSettings
from server.queues.states import (
    AVAILABLE,
    BARRIER,
    BEHIND,
    DELAYED,
    FOREIGN,
    GONE,
    SENT,
)


class Watcher(Protocol):
    """Told what is available in a queue: what views and aggregates over it follow."""

    def came(self, places: Sequence[int]) -> None:
        """Messages can be seen from now on."""

    def went(self, places: Sequence[int]) -> None:
        """Messages can be seen no more; they may still be asked about."""


_IN_AN_EVENT: Final = 4096
"""Messages that expire with one event: it has to fit into a journal, however many do at once."""

_LONG_AGO: Final = 0
"""A moment at which nothing had expired yet."""

VISIBLE: Final = frozenset((AVAILABLE, BEHIND, BARRIER))
"""States in which a query of the queue sees a message: unleased, and ours to deliver."""


class Ledger:
    """The messages of one queue.

    Args:
        settings: how the queue behaves.
        on_offer: told of a place that is available, and may have been passed over.
        room: see `Entries`.
        instance: the name of this instance.

    Attributes:
        entries: the messages, by place.
        order: of those that are available.
        foreign: the order of those that other instances own, and that nothing else is against.
        titles: who owns messages that have changed hands.
        passed: barriers that another instance has passed, and this one has not.
        leases: of those that consumers have.
        events: what is to be recorded, oldest first.
        counters: what has happened.
        barriers: places of the barriers that have not been passed, in order.
        deferred: acknowledgements that came before their messages.
        taken: messages that such acknowledgements were for, of which no event says so yet, with
            when they came. One has to: the record may be read from behind the acknowledgement on.
        freed: consumers that have got rid of messages.
        inactive: messages that are in the log and do not count yet (TargetQueueDepth).
        resume_txid: the first of these.
        watcher: told what is visible, None if nobody is.
    """

    def __init__(
        self,
        settings: QueueSettings,
        on_offer: Callable[[int], None],
        room: Room | None = None,
        instance: str = "",
    ) -> None:
        self.settings = settings
        self.entries = Entries(room)
        self.order = self._order_of(AVAILABLE)
        self.foreign = self._order_of(FOREIGN)
        self.titles = Titles()
        self.passed: set[int] = set()
        self._instance = instance
        self.leases = Leases()
        self.events: list[Event] = []
        self.counters = Counters()
        self.barriers: deque[int] = deque()
        self.deferred = DeferredAcks(DEFERRED_ACKS)
        self.taken: dict[Mark, int] = {}
        self.freed: set[Consumer] = set()
        self.inactive = 0
        self.resume_txid = 0
        self.watcher: Watcher | None = None
        self._on_offer = on_offer
        self._attempts: dict[int, Attempts] = {}
        self._chains = KeyChains()
        self._delayed: dict[int, int] = {}  # place -> when it is offered again
        self._retries = Moments(lambda place: self._delayed.get(place, 0))
        self._expirations = Moments(self._expires)
        self._departures: list[tuple[Mark, Departure]] = []

    def _order_of(self, state: int) -> Order:
        """The order of the messages in a state."""
        if self.settings.prioritized:
            return PriorityOrder(self.entries)
        return LogOrder(self.entries, state)

    @property
    def depth(self) -> int:
        """Messages in the queue, leased ones included, inactive ones not."""
        counts = self.entries.counts
        return sum(counts) - counts[GONE] - counts[SENT]

    # coming

    def enqueue(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: Details = NO_DETAILS,
    ) -> None:
        """Take in messages of one publisher, in the order of the log.

        Args:
            txids: their numbers in the log.
            times: when they were recorded, in microseconds since 1970.
            client: the publisher's client hash.
            sequences: the publisher's numbers for them.
            details: what else is to be known.
        """
        room = self._room(len(txids))
        if room < len(txids):
            if not self.inactive:
                self.resume_txid = txids[room]
            self.inactive += len(txids) - room
            if not room:
                return
            txids, times, sequences = txids[:room], times[:room], sequences[:room]
            details = details.part(0, room)
        self._take_in(txids, times, client, sequences, details)

    @property
    def wanted(self) -> int:
        """How many inactive messages there is room for, to be read from the log and admitted."""
        target = self.settings.target_depth
        if target is None or not self.inactive:
            return 0
        return max(min(target - self.depth, self.inactive), 0)

    def admit(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: Details = NO_DETAILS,
    ) -> None:
        """Take in messages that were inactive, from `resume_txid` on. See `enqueue`."""
        self.inactive = max(self.inactive - len(txids), 0)
        self.resume_txid = txids[-1] + 1
        self._take_in(txids, times, client, sequences, details)

    def _room(self, count: int) -> int:
        target = self.settings.target_depth
        if target is None:
            return count
        return 0 if self.inactive else max(min(target - self.depth, count), 0)

    def _take_in(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: Details,
    ) -> None:
        settings = self.settings
        first = self.entries.append(txids, times, client, sequences)
        places = range(first, self.entries.end)
        self.counters.enqueued += len(places)
        is_plain = not (
            settings.prioritized
            or settings.expiration is not None
            or self.deferred
            or self.titles.early
        )
        if is_plain and (owner := details.only_owner):
            self.entries.give_to(places, owner, FOREIGN)
        elif details != NO_DETAILS or not is_plain:
            for index, place in enumerate(places):
                self._describe(place, times[index], details, index)
                self._enter(place, details, index)
        if self.watcher is not None:
            seen = [place for place in places if self.entries.state(place) in VISIBLE]
            self.watcher.came(seen)

    def _describe(self, place: int, time: int, details: Details, index: int) -> None:
        """Fill in what is known of a message."""
        entries = self.entries
        lifetime = None if details.lifetimes is None else details.lifetimes[index]
        expires = self.settings.expires(time, lifetime)
        if expires is not None:
            entries.set_expires(place, max(expires, 1))
        if details.priorities is not None:
            entries.set_priority(place, stored_priority(details.priorities[index]))
        if details.keys is not None and details.keys[index]:
            entries.set_key(place, details.keys[index])
        if details.sow_keys is not None and details.sow_keys[index]:
            entries.set_sow_key(place, details.sow_keys[index])
        owner = "" if details.owners is None else details.owners[index]
        if self.titles.early:
            title = self.titles.come(entries.mark(place), place)
            if title is not None:
                owner = "" if title.owner == self._instance else title.owner
        if owner:
            entries.set_owner(place, owner)

    def _enter(self, place: int, details: Details, index: int) -> None:
        """Give a message its first state."""
        entries = self.entries
        expiration = self.settings.deferred_ack_expiration
        if self.deferred and self.deferred.take(
            entries.mark(place), entries.time(place) - expiration
        ):
            self.taken[entries.mark(place)] = entries.time(place)
            entries.remove(place)
            self.counters.acknowledged += 1
            return
        if expires := entries.expires(place):
            self._expirations.add(place, expires)
        key = entries.key(place)
        if details.barriers is not None and details.barriers[index]:
            entries.set_state(place, BARRIER)
            self.barriers.append(place)
        elif key and self.settings.keyed and not self._chains.append(key, place):
            entries.set_state(place, BEHIND)
        elif entries.owner(place):
            self._leave_to_others(place)
        else:
            self.order.add(place)
            if self.settings.prioritized:
                self._on_offer(place)

    def _leave_to_others(self, place: int) -> None:
        """A message that could be delivered is another instance's."""
        self.entries.set_state(place, FOREIGN)
        self.foreign.add(place)

    # being delivered

    def lease(self, lease: Lease) -> None:
        """Somebody has got messages, whose states have been set."""
        self.leases.add(lease)
        lease.seat.held.update(lease.places)
        lease.seat.delivered += len(lease.places)
        self.counters.delivered += len(lease.places)

    def end_lease(self, place: int) -> Lease | None:
        """A message is not with its consumer any more; None if it was with nobody."""
        lease = self.leases.end(place)
        if lease is not None:
            seat = lease.seat
            seat.held.discard(place)
            seat.consumer.outstanding -= 1
            self.freed.add(seat.consumer)
        return lease

    # coming back

    def offer(self, place: int, now: int) -> None:
        """A message may be delivered, if it is this instance's and has not expired."""
        entries = self.entries
        expires = entries.expires(place)
        if entries.owner(place):
            self._leave_to_others(place)
            return
        was_visible = entries.state(place) in VISIBLE
        entries.set_state(place, AVAILABLE)
        self.order.add(place)
        if expires and expires <= now:
            self.expire(place, (TIME_LIMIT,))
            return
        self._on_offer(place)
        if self.watcher is not None and not was_visible:
            self.watcher.came((place,))

    def give_back(self, place: int, lease: Lease, now: int, retry_at: int | None = None) -> bool:
        """A lease has ended without an acknowledgement.

        Args:
            place: of the message.
            lease: that has ended.
            now: the moment.
            retry_at: when the message may be delivered again, if it was cancelled.

        Returns:
            Whether the message is still in the queue.
        """
        settings = self.settings
        attempts = self.attempt(place)
        attempts.deliveries += 1
        attempts.last_consumer = lease.seat.consumer.name
        attempts.last_leased = lease.since
        reasons: list[str] = []
        expires = self.entries.expires(place)
        if expires and expires <= now:
            reasons.append(TIME_LIMIT)
        if retry_at is not None:
            attempts.cancels += 1
            if settings.max_cancels and attempts.cancels >= settings.max_cancels:
                reasons.append(MAX_CANCELS)
        if settings.max_deliveries and attempts.deliveries >= settings.max_deliveries:
            reasons.append(MAX_DELIVERIES)
        if reasons:
            self.expire(place, tuple(reasons))
            return False
        if retry_at is not None and retry_at > now:
            self.delay(place, retry_at)
        else:
            self.offer(place, now)
        return True

    def delay(self, place: int, until: int) -> None:
        """A message may be delivered at a moment, and not before."""
        state = self.entries.state(place)
        if state == AVAILABLE:
            self.order.discard(place)
        elif state == FOREIGN:
            self.foreign.discard(place)
        self.entries.set_state(place, DELAYED)
        self._delayed[place] = until
        self._retries.add(place, until)

    def attempt(self, place: int) -> Attempts:
        """What has been tried with a message, to be added to."""
        attempts = self._attempts.get(place)
        if attempts is None:
            attempts = self._attempts[place] = Attempts()
        return attempts

    def attempts(self, place: int) -> Attempts | None:
        """What has been tried in vain with a message, None if nothing has."""
        return self._attempts.get(place)

    @property
    def all_attempts(self) -> Mapping[int, Attempts]:
        """The same for all messages that have been delivered in vain, by place."""
        return self._attempts

    def forget_attempts(self, places: Iterable[int]) -> None:
        """Messages have left the queue: what has been tried with them does not matter any more."""
        if self._attempts:
            for place in places:
                self._attempts.pop(place, None)

    # leaving

    def remove(self, place: int) -> None:
        """A message leaves the queue; a lease on it has been ended before."""
        entries = self.entries
        state = entries.state(place)
        if state == AVAILABLE:
            self.order.discard(place)
        elif state == FOREIGN:
            self.foreign.discard(place)
        elif state == BARRIER:
            self.barriers.remove(place)
            self.passed.discard(place)
        elif state == DELAYED:
            del self._delayed[place]
        if self.watcher is not None and state in VISIBLE:
            self.watcher.went((place,))
        self.titles.forget(place)
        if self._attempts:
            self._attempts.pop(place, None)
        key = entries.key(place) if self.settings.keyed and state != BARRIER else 0
        entries.remove(place)
        if key and state != BEHIND:
            following = self._chains.remove_first(
                key, place, lambda later: entries.state(later) != GONE
            )
            if following is not None:  # if it has expired as well, its own moment takes it along
                self.offer(following, _LONG_AGO)

    def expire(self, place: int, reasons: tuple[str, ...]) -> None:
        """A message is removed without having been acknowledged; `flush` records it."""
        attempts = self._attempts.get(place) or Attempts()
        departure = Departure(
            self.entries.txid(place),
            reasons,
            attempts.deliveries,
            attempts.cancels,
            attempts.last_consumer,
        )
        self._departures.append((self.entries.mark(place), departure))
        self.counters.expired += 1
        self.remove(place)

    def flush(self, now: int) -> None:
        """Make events of what has expired, and have consumers with room looked at."""
        if self._departures:
            expired, self._departures = self._departures, []
            for start in range(0, len(expired), _IN_AN_EVENT):
                some = expired[start : start + _IN_AN_EVENT]
                marks = [mark for mark, _ in some]
                departures = [departure for _, departure in some]
                self.events.append(Expired(now, marks, departures, self.settings.dead_letters))
        if self.freed:
            freed, self.freed = self.freed, set()
            for consumer in freed:
                consumer.changed()

    # time

    @property
    def next_moment(self) -> int | None:
        """When `advance` has something to do, None for never; it may be earlier than that."""
        moments = (self.leases.next, self._retries.next, self._expirations.next, self._forget_at)
        known = [moment for moment in moments if moment is not None]
        return min(known) if known else None

    @property
    def _forget_at(self) -> int | None:
        oldest = self.deferred.oldest if self.deferred else None
        if oldest is None or self.inactive:
            return None
        return oldest + self.settings.deferred_ack_expiration

    def is_overdue(self, now: int) -> bool:
        """Whether `advance` has left messages that expired a while ago."""
        return self._expirations.are_overdue(now)

    def advance(self, now: int, most: int) -> None:
        """Do what time does: end leases, offer again, expire, forget.

        Args:
            now: the moment.
            most: about how many messages of each kind; the others come with the next call.
        """
        moment = self.next_moment
        if moment is None or moment > now:
            return
        for place in self.leases.due(now, most):
            lease = self.end_lease(place)
            if lease is not None:
                self.counters.expired_leases += 1
                self.give_back(place, lease, now)
        for place in self._retries.due(now, most):
            if self.entries.state(place) == DELAYED:
                del self._delayed[place]
                self.offer(place, now)
        for place in self._expirations.due(now, most):
            state = self.entries.state(place)  # the one before it may have taken it along
            if state == BARRIER or (
                state in (AVAILABLE, BEHIND, DELAYED) and not self.entries.owner(place)
            ):
                self.expire(place, (TIME_LIMIT,))
        if (self._forget_at or now + 1) <= now:
            self.deferred.drop_before(now - self.settings.deferred_ack_expiration + 1)
        self.flush(now)

    def _expires(self, place: int) -> int:
        return 0 if self.entries.state(place) == GONE else self.entries.expires(place)

    # what other instances say

    def title(self, place: int) -> Title:
        """Who owns a message, and how many times it has changed hands."""
        return Title(self.titles.turn(place), self.entries.owner(place) or self._instance)

    def transfer(self, place: int, title: Title, now: int) -> None:
        """A message gets another owner. Whoever has it here keeps it."""
        entries = self.entries
        owner = "" if title.owner == self._instance else title.owner
        was_ours = not entries.owner(place)
        self.titles.note(place, title.turn)
        entries.set_owner(place, owner)
        state = entries.state(place)
        if was_ours and owner:
            self.counters.transferred_out += 1
            if state == AVAILABLE:
                self.order.discard(place)
                self._leave_to_others(place)
                if self.watcher is not None:
                    self.watcher.went((place,))
        elif not was_ours and not owner:
            self.counters.transferred_in += 1
            if expires := entries.expires(place):
                self._expirations.add(place, expires)
            if state == FOREIGN:
                self.foreign.discard(place)
                self.offer(place, now)

    def claim(self, mark: Mark, title: Title, now: int, *, may_come: bool) -> bool:
        """Somebody says who owns a message; believed if that is news.

        Args:
            mark: the message.
            title: what they say.
            now: the moment.
            may_come: whether to remember it for when the message comes, if it is not here.

        Returns:
            Whether the owner is another one than before.
        """
        place = self.entries.find(mark)
        if place is None or self.entries.state(place) in (GONE, SENT):
            if may_come:
                self.titles.expect(mark, title)
            return False
        known = self.title(place)
        if title <= known:
            return False
        self.transfer(place, title, now)
        return title.owner != known.owner

    def known(self, marks: Iterable[Mark]) -> Iterator[tuple[int, int]]:
        """Of some messages those that are in the queue: which of them, and their places."""
        for index, mark in enumerate(marks):
            place = self.entries.find(mark)
            if place is not None and self.entries.state(place) != GONE:
                yield index, place
