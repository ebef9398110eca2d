"""The life cycle of a queue's messages: arrival, delivery, return, removal.

This is the part of a queue that recovery restores from the journal
(server/queues/core/recovery.py). It does not know which consumer is next. It notifies the
dispatcher of messages that became available where scans may have passed already (`on_available`),
and of consumers that have room again (`freed_consumers`).

Source: AMPS User Guide, Message Flow for Queues; Acknowledging Messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from server.queues.core.consumers import Consumer
from server.queues.core.counts import DeliveryAttempts, QueueCounters
from server.queues.core.details import NO_MESSAGE_DETAILS, MessageDetails
from server.queues.core.early_acks import EarlyAcks
from server.queues.core.events import (
    MAX_CANCELS,
    MAX_DELIVERIES,
    TIME_LIMIT,
    Expired,
    PublisherSequence,
    QueueEvent,
    RemovalDetails,
)
from server.queues.core.key_order import KeyChains
from server.queues.core.leases import Lease, Leases
from server.queues.core.message_table import ColumnStorage, MessageTable
from server.queues.core.order import DeliveryOrder, LogOrder, PriorityOrder, stored_priority
from server.queues.core.ownership import OwnershipClaim, OwnershipTable
from server.queues.core.settings import MAX_EARLY_ACKS, QueueSettings
from server.queues.core.states import (
    AVAILABLE,
    BARRIER,
    BEHIND,
    DELAYED,
    FOREIGN,
    GONE,
    SENT,
)
from server.queues.core.timer_buckets import TimerBuckets

if TYPE_CHECKING:
    from server.queues.topic.browser import QueueBrowser


_EVENT_BATCH_SIZE: Final = 4096
"""Messages per `Expired` event: an event has to fit into a journal, however many expire at once."""

_BEFORE_ALL: Final = 0
"""A timestamp before all expirations."""

VISIBLE: Final = frozenset((AVAILABLE, BEHIND, BARRIER))
"""States in which a query of the queue sees a message: unleased, and not owned elsewhere."""


class MessageLifecycle:
    """The messages of one queue.

    Args:
        settings: the configuration of the queue.
        on_available: called with the offset of a message that has become available, and that scans
            may have passed.
        storage: see `MessageTable`.
        instance: the name of this instance.

    Attributes:
        entries: the messages, by offset.
        order: the order of the available messages.
        foreign_order: the order of messages that only their ownership by other instances keeps from
            being delivered here.
        ownership: ownership of messages that were transferred.
        peer_released_barriers: barriers that another instance has released, and this one has not.
        leases: the leases of messages that consumers have.
        events: events to be recorded, oldest first.
        counters: totals of events.
        barriers: offsets of the barriers that have not been released, in order.
        early_acks: acknowledgements that arrived before their messages.
        unrecorded_early_acks: messages that a deferred acknowledgement has ended and no event
            records yet, with their arrival times. An event is necessary: recovery may read the
            journal from behind the acknowledgement on.
        freed_consumers: consumers that hold fewer messages than before.
        inactive_count: number of messages in the log that do not count yet (TargetQueueDepth).
        resume_txid: the txid of the first inactive message.
        watcher: follows the visible messages, None for no watcher.
    """

    def __init__(
        self,
        settings: QueueSettings,
        on_available: Callable[[int], None],
        storage: ColumnStorage | None = None,
        instance: str = "",
    ) -> None:
        self.settings = settings
        self.entries = MessageTable(storage)
        self.order = self._order_of(AVAILABLE)
        self.foreign_order = self._order_of(FOREIGN)
        self.ownership = OwnershipTable()
        self.peer_released_barriers: set[int] = set()
        self._instance = instance
        self.leases = Leases()
        self.events: list[QueueEvent] = []
        self.counters = QueueCounters()
        self.barriers: deque[int] = deque()
        self.early_acks = EarlyAcks(MAX_EARLY_ACKS)
        self.unrecorded_early_acks: dict[PublisherSequence, int] = {}
        self.freed_consumers: set[Consumer] = set()
        self.inactive_count = 0
        self.resume_txid = 0
        self.watcher: QueueBrowser | None = None
        self._on_available = on_available
        self._attempts: dict[int, DeliveryAttempts] = {}
        self._key_chains = KeyChains()
        self._retry_times: dict[int, int] = {}  # offset -> when it is offered again
        self._retry_timers = TimerBuckets(lambda offset: self._retry_times.get(offset, 0))
        self._expiration_timers = TimerBuckets(self._expiration_time)
        self._unrecorded_removals: list[tuple[PublisherSequence, RemovalDetails]] = []

    def _order_of(self, state: int) -> DeliveryOrder:
        """Return the order of the messages in a state."""
        if self.settings.prioritized:
            return PriorityOrder(self.entries)
        return LogOrder(self.entries, state)

    @property
    def depth(self) -> int:
        """Number of messages in the queue, leased ones included, inactive ones not."""
        state_counts = self.entries.state_counts
        return sum(state_counts) - state_counts[GONE] - state_counts[SENT]

    # arrival

    def enqueue(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: MessageDetails = NO_MESSAGE_DETAILS,
    ) -> None:
        """Append messages of one publisher, in log order.

        Args:
            txids: their txids.
            times: when they were recorded, in microseconds since 1970.
            client: the publisher's client hash.
            sequences: their sequence numbers.
            details: their other attributes.
        """
        admitted_count = self._count_admissible(len(txids))
        if admitted_count < len(txids):
            if not self.inactive_count:
                self.resume_txid = txids[admitted_count]
            self.inactive_count += len(txids) - admitted_count
            if not admitted_count:
                return
            txids, times, sequences = (
                txids[:admitted_count],
                times[:admitted_count],
                sequences[:admitted_count],
            )
            details = details.part(0, admitted_count)
        self._append_messages(txids, times, client, sequences, details)

    @property
    def refill_count(self) -> int:
        """Number of inactive messages that there is room for, to be read from the log."""
        target = self.settings.target_depth
        if target is None or not self.inactive_count:
            return 0
        return max(min(target - self.depth, self.inactive_count), 0)

    def enqueue_inactive(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: MessageDetails = NO_MESSAGE_DETAILS,
    ) -> None:
        """Append messages that were inactive, from `resume_txid` on. See `enqueue`."""
        self.inactive_count = max(self.inactive_count - len(txids), 0)
        self.resume_txid = txids[-1] + 1
        self._append_messages(txids, times, client, sequences, details)

    def _count_admissible(self, count: int) -> int:
        target = self.settings.target_depth
        if target is None:
            return count
        return 0 if self.inactive_count else max(min(target - self.depth, count), 0)

    def _append_messages(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: MessageDetails,
    ) -> None:
        settings = self.settings
        first = self.entries.append(txids, times, client, sequences)
        offsets = range(first, self.entries.end)
        self.counters.enqueued += len(offsets)
        is_plain = not (
            settings.prioritized
            or settings.expiration is not None
            or self.early_acks
            or self.ownership.early_claims
        )
        if is_plain and (owner := details.only_owner):
            self.entries.set_owner_and_state(offsets, owner, FOREIGN)
        elif details != NO_MESSAGE_DETAILS or not is_plain:
            for index, offset in enumerate(offsets):
                self._set_attributes(offset, times[index], details, index)
                self._set_initial_state(offset, details, index)
        if self.watcher is not None:
            visible_offsets = [
                offset for offset in offsets if self.entries.state(offset) in VISIBLE
            ]
            self.watcher.record_appeared(visible_offsets)

    def _set_attributes(self, offset: int, time: int, details: MessageDetails, index: int) -> None:
        """Set the attributes of a message."""
        entries = self.entries
        lifetime = None if details.lifetimes is None else details.lifetimes[index]
        expires = self.settings.expiration_time(time, lifetime)
        if expires is not None:
            entries.set_expires_at(offset, max(expires, 1))
        if details.priorities is not None:
            entries.set_priority(offset, stored_priority(details.priorities[index]))
        if details.keys is not None and details.keys[index]:
            entries.set_key(offset, details.keys[index])
        if details.sow_keys is not None and details.sow_keys[index]:
            entries.set_sow_key(offset, details.sow_keys[index])
        owner = "" if details.owners is None else details.owners[index]
        if self.ownership.early_claims:
            claim = self.ownership.apply_early_claim(entries.bookmark(offset), offset)
            if claim is not None:
                owner = "" if claim.owner == self._instance else claim.owner
        if owner:
            entries.set_owner(offset, owner)

    def _set_initial_state(self, offset: int, details: MessageDetails, index: int) -> None:
        """Set the first state of a message."""
        entries = self.entries
        expiration = self.settings.deferred_ack_expiration
        if self.early_acks and self.early_acks.consume_ack(
            entries.bookmark(offset), entries.recorded_at(offset) - expiration
        ):
            self.unrecorded_early_acks[entries.bookmark(offset)] = entries.recorded_at(offset)
            entries.remove(offset)
            self.counters.acknowledged += 1
            return
        if expires := entries.expires_at(offset):
            self._expiration_timers.add(offset, expires)
        key = entries.key(offset)
        if details.barriers is not None and details.barriers[index]:
            entries.set_state(offset, BARRIER)
            self.barriers.append(offset)
        elif key and self.settings.keyed and not self._key_chains.append(key, offset):
            entries.set_state(offset, BEHIND)
        elif entries.owner(offset):
            self._mark_foreign(offset)
        else:
            self.order.add(offset)
            if self.settings.prioritized:
                self._on_available(offset)

    def _mark_foreign(self, offset: int) -> None:
        """Mark a message that is ready for delivery as owned by another instance."""
        self.entries.set_state(offset, FOREIGN)
        self.foreign_order.add(offset)

    # delivery

    def lease(self, lease: Lease) -> None:
        """Register a lease; the states of its messages have been set."""
        self.leases.add(lease)
        lease.slot.held_offsets.update(lease.offsets)
        lease.slot.delivered_count += len(lease.offsets)
        self.counters.delivered += len(lease.offsets)

    def end_lease(self, offset: int) -> Lease | None:
        """End the lease on a message and return the lease; None if the message is not leased."""
        lease = self.leases.end(offset)
        if lease is not None:
            slot = lease.slot
            slot.held_offsets.discard(offset)
            slot.consumer.outstanding -= 1
            self.freed_consumers.add(slot.consumer)
        return lease

    # return to the queue

    def make_available(self, offset: int, now: int) -> None:
        """Make a message available, if this instance owns it and it has not expired."""
        entries = self.entries
        expires = entries.expires_at(offset)
        if entries.owner(offset):
            self._mark_foreign(offset)
            return
        was_visible = entries.state(offset) in VISIBLE
        entries.set_state(offset, AVAILABLE)
        self.order.add(offset)
        if expires and expires <= now:
            self.expire(offset, (TIME_LIMIT,))
            return
        self._on_available(offset)
        if self.watcher is not None and not was_visible:
            self.watcher.record_appeared((offset,))

    def return_message(
        self, offset: int, lease: Lease, now: int, retry_at: int | None = None
    ) -> bool:
        """Return a message to the queue: its lease ended without an acknowledgement.

        Args:
            offset: the offset of the message.
            lease: the ended lease.
            now: the current time.
            retry_at: when the message may be delivered again, if it was cancelled.

        Returns:
            Whether the message is still in the queue.
        """
        settings = self.settings
        attempts = self.get_or_create_attempts(offset)
        attempts.add_delivery(lease.slot.consumer.name, lease.leased_at)
        reasons: list[str] = []
        expires = self.entries.expires_at(offset)
        if expires and expires <= now:
            reasons.append(TIME_LIMIT)
        if retry_at is not None:
            attempts.cancels += 1
            if settings.max_cancels and attempts.cancels >= settings.max_cancels:
                reasons.append(MAX_CANCELS)
        if settings.max_deliveries and attempts.deliveries >= settings.max_deliveries:
            reasons.append(MAX_DELIVERIES)
        if reasons:
            self.expire(offset, tuple(reasons))
            return False
        if retry_at is not None and retry_at > now:
            self.delay(offset, retry_at)
        else:
            self.make_available(offset, now)
        return True

    def delay(self, offset: int, until: int) -> None:
        """Keep a message from being delivered until a point in time."""
        state = self.entries.state(offset)
        if state == AVAILABLE:
            self.order.discard(offset)
        elif state == FOREIGN:
            self.foreign_order.discard(offset)
        self.entries.set_state(offset, DELAYED)
        self._retry_times[offset] = until
        self._retry_timers.add(offset, until)

    def get_or_create_attempts(self, offset: int) -> DeliveryAttempts:
        """Return the attempts of a message, created if there are none, for an update."""
        attempts = self._attempts.get(offset)
        if attempts is None:
            attempts = self._attempts[offset] = DeliveryAttempts()
        return attempts

    def find_attempts(self, offset: int) -> DeliveryAttempts | None:
        """Return the unsuccessful attempts of a message, None if there are none."""
        return self._attempts.get(offset)

    @property
    def all_attempts(self) -> Mapping[int, DeliveryAttempts]:
        """The attempts of all messages that were delivered unsuccessfully, by offset."""
        return self._attempts

    def forget_attempts(self, offsets: Iterable[int]) -> None:
        """Drop the attempts of messages that have left the queue."""
        if self._attempts:
            for offset in offsets:
                self._attempts.pop(offset, None)

    # removal

    def remove(self, offset: int) -> None:
        """Remove a message from the queue; the caller has ended its lease."""
        entries = self.entries
        state = entries.state(offset)
        if state == AVAILABLE:
            self.order.discard(offset)
        elif state == FOREIGN:
            self.foreign_order.discard(offset)
        elif state == BARRIER:
            self.barriers.remove(offset)
            self.peer_released_barriers.discard(offset)
        elif state == DELAYED:
            del self._retry_times[offset]
        if self.watcher is not None and state in VISIBLE:
            self.watcher.record_disappeared((offset,))
        self.ownership.drop_transfer_count(offset)
        if self._attempts:
            self._attempts.pop(offset, None)
        key = entries.key(offset) if self.settings.keyed and state != BARRIER else 0
        entries.remove(offset)
        if key and state != BEHIND:
            following = self._key_chains.remove_first(
                key, offset, lambda later: entries.state(later) != GONE
            )
            if following is not None:  # if it has expired too, its own expiration removes it
                self.make_available(following, _BEFORE_ALL)

    def expire(self, offset: int, reasons: tuple[str, ...]) -> None:
        """Remove a message that was not acknowledged; `flush` records it."""
        attempts = self._attempts.get(offset) or DeliveryAttempts()
        removal = RemovalDetails(
            self.entries.txid(offset),
            reasons,
            attempts.deliveries,
            attempts.cancels,
            attempts.last_consumer,
        )
        self._unrecorded_removals.append((self.entries.bookmark(offset), removal))
        self.counters.expired += 1
        self.remove(offset)

    def flush(self, now: int) -> None:
        """Append events for expired messages, and notify queues of consumers with room."""
        if self._unrecorded_removals:
            expired, self._unrecorded_removals = self._unrecorded_removals, []
            for start in range(0, len(expired), _EVENT_BATCH_SIZE):
                batch = expired[start : start + _EVENT_BATCH_SIZE]
                bookmarks = [bookmark for bookmark, _ in batch]
                removals = [removal for _, removal in batch]
                self.events.append(Expired(now, bookmarks, removals, self.settings.dead_letters))
        if self.freed_consumers:
            freed_consumers, self.freed_consumers = self.freed_consumers, set()
            for consumer in freed_consumers:
                consumer.notify_queues()

    # timeouts

    @property
    def next_deadline(self) -> int | None:
        """The time at which to call `process_deadlines`, or an earlier one; None for never."""
        earliest = earlier(self.leases.next_deadline, self._retry_timers.next_deadline)
        earliest = earlier(earliest, self._expiration_timers.next_deadline)
        return earlier(earliest, self._early_ack_deadline)

    @property
    def _early_ack_deadline(self) -> int | None:
        oldest = self.early_acks.oldest_arrival if self.early_acks else None
        if oldest is None or self.inactive_count:
            return None
        return oldest + self.settings.deferred_ack_expiration

    def has_overdue_messages(self, now: int) -> bool:
        """Return whether `process_deadlines` has left messages that expired a while ago."""
        return self._expiration_timers.has_overdue(now)

    def process_deadlines(self, now: int, limit: int) -> None:
        """Process timeouts: end leases, retry, expire messages, drop deferred acknowledgements.

        Args:
            now: the current time.
            limit: approximate limit of messages of each kind; the next call processes the others.
        """
        deadline = self.next_deadline
        if deadline is None or deadline > now:
            return
        for offset in self.leases.pop_expired_offsets(now, limit):
            lease = self.end_lease(offset)
            if lease is not None:
                self.counters.expired_leases += 1
                self.return_message(offset, lease, now)
        for offset in self._retry_timers.pop_due(now, limit):
            if self.entries.state(offset) == DELAYED:
                del self._retry_times[offset]
                self.make_available(offset, now)
        for offset in self._expiration_timers.pop_due(now, limit):
            state = self.entries.state(offset)  # may be GONE: expired with the one before it
            if state == BARRIER or (
                state in (AVAILABLE, BEHIND, DELAYED) and not self.entries.owner(offset)
            ):
                self.expire(offset, (TIME_LIMIT,))
        if (self._early_ack_deadline or now + 1) <= now:
            self.early_acks.drop_before(now - self.settings.deferred_ack_expiration + 1)
        self.flush(now)

    def _expiration_time(self, offset: int) -> int:
        return 0 if self.entries.state(offset) == GONE else self.entries.expires_at(offset)

    # ownership and events of other instances

    def ownership_claim(self, offset: int) -> OwnershipClaim:
        """Return the owner of a message, with the number of its transfers."""
        return OwnershipClaim(
            self.ownership.transfer_count(offset), self.entries.owner(offset) or self._instance
        )

    def change_owner(self, offset: int, claim: OwnershipClaim, now: int) -> None:
        """Change the owner of a message. A consumer that has it here keeps it."""
        entries = self.entries
        owner = "" if claim.owner == self._instance else claim.owner
        was_owned_here = not entries.owner(offset)
        self.ownership.set_transfer_count(offset, claim.transfer_count)
        entries.set_owner(offset, owner)
        state = entries.state(offset)
        if was_owned_here and owner:
            self.counters.transferred_out += 1
            if state == AVAILABLE:
                self.order.discard(offset)
                self._mark_foreign(offset)
                if self.watcher is not None:
                    self.watcher.record_disappeared((offset,))
        elif not was_owned_here and not owner:
            self.counters.transferred_in += 1
            if expires := entries.expires_at(offset):
                self._expiration_timers.add(offset, expires)
            if state == FOREIGN:
                self.foreign_order.discard(offset)
                self.make_available(offset, now)

    def apply_claim(
        self, bookmark: PublisherSequence, claim: OwnershipClaim, now: int, *, may_arrive: bool
    ) -> bool:
        """Apply another instance's claim of ownership of a message, if it is newer.

        Args:
            bookmark: the message.
            claim: the claim.
            now: the current time.
            may_arrive: whether to retain the claim until the message arrives, if it is not here.

        Returns:
            Whether the message is in the queue, and owned by that claim now.
        """
        offset = self.entries.find(bookmark)
        if offset is None or self.entries.state(offset) in (GONE, SENT):
            if may_arrive:
                self.ownership.retain_early_claim(bookmark, claim)
            return False
        current_claim = self.ownership_claim(offset)
        if claim > current_claim:
            self.change_owner(offset, claim, now)
        return claim >= current_claim

    def find_offsets(self, bookmarks: Iterable[PublisherSequence]) -> Iterator[tuple[int, int]]:
        """Yield the index and offset of each bookmark whose message is in the queue."""
        for index, bookmark in enumerate(bookmarks):
            offset = self.entries.find(bookmark)
            if offset is not None and self.entries.state(offset) != GONE:
                yield index, offset


def earlier(one: int | None, other: int | None) -> int | None:
    """Return the earlier of two times, or of two positions in the log; None is after all."""
    if one is None or (other is not None and other < one):
        return other
    return one
