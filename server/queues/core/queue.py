"""One queue: its inputs, its decisions, and the events to be recorded.

See server/queues/core/__init__.py for its use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.queues.core import recovery
from server.queues.core.acknowledgement import AckProcessor
from server.queues.core.consumers import Consumer
from server.queues.core.counts import QueueCounters
from server.queues.core.details import NO_MESSAGE_DETAILS, MessageDetails
from server.queues.core.dispatch import Dispatch, DispatchBatch
from server.queues.core.events import (
    Acked,
    Leased,
    PublisherSequence,
    QueueEvent,
    Released,
    Sent,
    Transferred,
)
from server.queues.core.leases import Lease
from server.queues.core.message_state import MessageLifecycle
from server.queues.core.message_table import ColumnStorage
from server.queues.core.ownership import OwnershipClaim
from server.queues.core.remote_events import RemoteEvents
from server.queues.core.settings import QueueSettings
from server.queues.core.sources import FilterMatcher
from server.queues.core.states import AVAILABLE, BARRIER, GONE, LEASED, SENT

if TYPE_CHECKING:
    from server.queues.topic.browser import QueueBrowser

DISPATCH_BATCH_SIZE: Final = 1024
"""Default limit of messages that one call matches against filters."""

MAX_DELIVERED_MESSAGES: Final = 65_536
"""Default limit of messages that one call delivers."""

_NO_LIMIT: Final = 1 << 62

_NOT_TRANSFERABLE: Final = frozenset((GONE, LEASED, SENT, BARRIER))
"""States in which a message is not transferred."""


class QueueDelivery(NamedTuple):
    """Messages for one consumer, in order.

    Attributes:
        consumer: the consumer that gets them.
        txids: their txids.
        offsets: their offsets in the queue, for queries about them.
        lease_until: when they return to the queue unless acknowledged, in microseconds since 1970;
            None for never.
        is_barrier: whether it is a barrier, which all consumers get and none acknowledges.
    """

    consumer: Consumer
    txids: Sequence[int]
    offsets: Sequence[int]
    lease_until: int | None
    is_barrier: bool = False


class Queue:
    """The messages of one queue and its consumers.

    Args:
        settings: the configuration of the queue.
        make_matcher: creates a `FilterMatcher`; only called when a consumer has a filter.
        owner: the name of this instance.
        on_room: called when a consumer may have room, also because of other queues; the caller
            then delivers.
        was_recorded: returns whether a message cannot arrive any more, because the log has it, or
            later ones of its publisher.
        storage: storage to move message attributes to; None to keep all of them in memory.
        is_missing: returns whether a message may still arrive, through another instance, although
            later ones of its publisher have arrived.
        enqueue_received: enqueues messages that have been received and not enqueued yet; called
            before anything that depends on them. So each queue gets its messages in few batches.

    Attributes:
        settings: the configuration of the queue.
        owner: the name of this instance.
        remote_events: applies the events of other instances.
        dispatch: its consumers.
        acknowledge: see `AckProcessor`, as for `acknowledge_offsets`, `refusal_reason` and
            `extend_leases`.
    """

    def __init__(
        self,
        settings: QueueSettings,
        make_matcher: Callable[[], FilterMatcher],
        owner: str = "",
        on_room: Callable[[], None] = lambda: None,
        was_recorded: Callable[[PublisherSequence], bool] = lambda _: False,
        storage: ColumnStorage | None = None,
        is_missing: Callable[[PublisherSequence], bool] = lambda _: False,
        enqueue_received: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.owner: Final = owner
        self._was_recorded = was_recorded
        self._is_missing = is_missing
        self._enqueue_received = enqueue_received
        self.dispatch: Final = Dispatch(settings, make_matcher, on_room)
        self._lifecycle: Final = MessageLifecycle(
            settings, self.dispatch.on_message_available, storage, owner
        )
        self.remote_events: Final = RemoteEvents(self._lifecycle, self._may_arrive)
        self.dispatch.lifecycle = self._lifecycle
        # Bound directly, without wrapper methods: this is the message path.
        ack_processor = AckProcessor(self._lifecycle, self._may_arrive, enqueue_received)
        self.acknowledge: Final = ack_processor.acknowledge
        self.acknowledge_offsets: Final = ack_processor.acknowledge_offsets
        self.refusal_reason: Final = ack_processor.refusal_reason
        self.extend_leases: Final = ack_processor.extend_leases
        self._has_more = False

    @property
    def lifecycle(self) -> MessageLifecycle:
        """Its messages, with all that have been received."""
        self._enqueue_received()
        return self._lifecycle

    def enqueue(
        self,
        txids: Sequence[int],
        times: Sequence[int],
        client: int,
        sequences: Sequence[int],
        details: MessageDetails = NO_MESSAGE_DETAILS,
    ) -> None:
        """Enqueue messages of one publisher; see `MessageLifecycle.enqueue`."""
        self._lifecycle.enqueue(txids, times, client, sequences, details)

    # consumers

    def attach(self, consumer: Consumer, content_filter: Hashable | None = None) -> None:
        """Deliver to a consumer, or change its filter; messages that it holds stay leased.

        Args:
            consumer: the consumer.
            content_filter: its filter, as the `FilterMatcher` understands it; None for all
                messages.
        """
        dispatch = self.dispatch
        dispatch.start_delivery(dispatch.get_or_create_slot(consumer), content_filter)

    def detach(self, consumer: Consumer, now: int) -> None:
        """Remove a consumer; its unacknowledged messages return to the queue, oldest first.

        Under at-most-once they do not return.
        """
        slot = self.dispatch.slots.get(consumer)
        if slot is None:
            return
        self.dispatch.stop_delivery(slot)
        self._return_messages(sorted(slot.held_offsets), now)
        self.dispatch.remove_slot(slot)
        self.lifecycle.flush(now)

    def detach_batch(self, consumer: Consumer, now: int, limit: int) -> bool:
        """Return a batch of a departing consumer's messages to the queue, if there are very many.

        Args:
            consumer: the consumer; it gets no more messages.
            now: the current time.
            limit: the size of the batch.

        Returns:
            Whether more than `limit` messages may be left; if not, `detach` returns the rest.
        """
        slot = self.dispatch.slots.get(consumer)
        if slot is None or len(slot.held_offsets) <= limit:
            return False
        self.dispatch.stop_delivery(slot)
        if not slot.offsets_to_return:
            slot.offsets_to_return = sorted(slot.held_offsets, reverse=True)
        batch = slot.offsets_to_return[: -limit - 1 : -1]  # from the end of the list: oldest first
        del slot.offsets_to_return[-limit:]
        self._return_messages(batch, now)
        self.lifecycle.flush(now)
        return True

    def _return_messages(self, offsets: Iterable[int], now: int) -> None:
        """End leases of a departed consumer; under at-most-once, remove the messages."""
        for offset in offsets:
            lease = self.lifecycle.end_lease(offset)
            if lease is None:
                continue
            self.lifecycle.counters.returned += 1
            if self.lifecycle.entries.state(offset) == SENT:
                self.lifecycle.remove(offset)
            else:
                self.lifecycle.return_message(offset, lease, now)

    def retire(self, consumer: Consumer) -> None:
        """Deliver no more messages of this queue to a consumer, which keeps its messages.

        It keeps them until they are acknowledged, their leases end, or it is detached. Used when a
        replaced subscription does not match this queue any more.
        """
        slot = self.dispatch.slots.get(consumer)
        if slot is not None:
            self.dispatch.stop_delivery(slot)
            consumer.update_limit()

    # delivery

    def assign_messages(
        self,
        now: int,
        max_matched: int = DISPATCH_BATCH_SIZE,
        max_delivered: int = MAX_DELIVERED_MESSAGES,
    ) -> list[QueueDelivery]:
        """Assign messages to consumers.

        Args:
            now: the current time; timeouts are processed first.
            max_matched: the maximum number of messages to match against filters.
            max_delivered: the maximum number of messages to deliver, barriers not counted; also of
                messages that return because their leases have ended.

        Returns:
            Deliveries, in the order in which to send them. Those of at-most-once may be sent once
            the event that they have caused is stored.
        """
        lifecycle = self.lifecycle
        lifecycle.process_deadlines(now, max_delivered)
        deliveries: list[QueueDelivery] = []
        self._has_more = (lifecycle.leases.next_deadline or now + 1) <= now
        if lifecycle.has_overdue_messages(now):  # expired messages must not be delivered
            self._has_more = True
            return deliveries
        while True:
            max_delivered = self._match_and_assign(now, max_matched, max_delivered, deliveries)
            barriers = len(lifecycle.barriers)
            if barriers:
                deliveries += self._release_barriers(now)
            if barriers == len(lifecycle.barriers):
                return deliveries

    def _match_and_assign(
        self, now: int, max_matched: int, max_delivered: int, deliveries: list[QueueDelivery]
    ) -> int:
        """Find messages and assign them; return how many more may be delivered."""
        dispatch = self.dispatch
        while True:
            remaining = dispatch.match_messages(max_matched)
            batches = dispatch.assign_batches(min(self.capacity, max_delivered))
            deliveries += [self._lease_batch(batch, now) for batch in batches]
            max_delivered -= sum(len(batch.offsets) for batch in batches)
            if max_delivered <= 0:
                self._has_more = True
                return 0
            if dispatch.is_unreadable or (
                remaining == max_matched and not dispatch.has_unserved_consumers
            ):
                return max_delivered
            max_matched = remaining

    @property
    def capacity(self) -> int:
        """Number of further messages that may be leased (MaxBacklog)."""
        max_backlog = self.settings.max_backlog
        return _NO_LIMIT if max_backlog is None else max_backlog - len(self._lifecycle.leases)

    def _lease_batch(self, batch: DispatchBatch, now: int) -> QueueDelivery:
        """Lease messages to a consumer."""
        lifecycle, settings = self._lifecycle, self.settings
        slot, offsets, txids = batch
        lease_period = settings.lease_period
        expires_at = None if lease_period is None else now + lease_period
        lifecycle.lease(Lease(slot, now, expires_at, offsets))
        if settings.at_most_once:
            lifecycle.events.append(Sent(now, lifecycle.entries.bookmarks(offsets)))
        elif settings.records_deliveries:
            lifecycle.events.append(
                Leased(now, lifecycle.entries.bookmarks(offsets), slot.consumer.name)
            )
        if lifecycle.watcher is not None:
            lifecycle.watcher.record_disappeared(offsets)
        return QueueDelivery(slot.consumer, txids, offsets, expires_at)

    def _release_barriers(self, now: int) -> list[QueueDelivery]:
        """Release barriers at the head of the queue to all consumers that they match."""
        lifecycle = self._lifecycle
        deliveries: list[QueueDelivery] = []
        while lifecycle.barriers and lifecycle.barriers[0] == lifecycle.entries.head:
            offset = lifecycle.barriers[0]
            consumers = self.dispatch.find_matching_consumers(offset)
            if consumers is None:
                if self.dispatch.has_consumers or offset not in lifecycle.peer_released_barriers:
                    break
                consumers = []  # no consumer here, and another instance has released it
            txid, bookmark = lifecycle.entries.txid(offset), lifecycle.entries.bookmark(offset)
            deliveries += [
                QueueDelivery(consumer, (txid,), (offset,), None, is_barrier=True)
                for consumer in consumers
            ]
            lifecycle.remove(offset)
            lifecycle.events.append(Released(now, [bookmark]))
        return deliveries

    @property
    def is_behind(self) -> bool:
        """True if `assign_messages` has left messages that consumers wait for: call it again."""
        return self._has_more or self.dispatch.is_behind

    @property
    def has_deliverable(self) -> bool:
        """True if there are messages that consumers with room might get."""
        lifecycle = self._lifecycle
        return bool(
            lifecycle.entries.state_counts[AVAILABLE]
            or lifecycle.barriers
            or lifecycle.inactive_count
        )

    @property
    def is_unreadable(self) -> bool:
        """True if `assign_messages` could not read messages: retry when that may have changed."""
        return self.dispatch.is_unreadable

    def _may_arrive(self, bookmark: PublisherSequence) -> bool:
        """Return whether a missing message may still arrive, also from beyond TargetQueueDepth."""
        if self._lifecycle.entries.has_arrived(bookmark):
            return self._is_missing(bookmark)
        return self._lifecycle.inactive_count > 0 or not self._was_recorded(bookmark)

    # other instances

    def transfer(
        self, bookmarks: Iterable[PublisherSequence], owner: str, now: int
    ) -> list[PublisherSequence]:
        """Transfer messages to another instance, or to this one.

        Returns:
            The messages that changed owner: messages that are here and not leased.
        """
        lifecycle = self.lifecycle
        transferred: list[PublisherSequence] = []
        transfer_counts: list[int] = []
        for bookmark in bookmarks:
            offset = lifecycle.entries.find(bookmark)
            if offset is None or lifecycle.entries.state(offset) in _NOT_TRANSFERABLE:
                continue
            claim = lifecycle.ownership_claim(offset)
            if claim.owner != owner:
                lifecycle.change_owner(offset, OwnershipClaim(claim.transfer_count + 1, owner), now)
                transferred.append(bookmark)
                transfer_counts.append(claim.transfer_count + 1)
        if transferred:
            lifecycle.events.append(Transferred(now, transferred, owner, transfer_counts))
        lifecycle.flush(now)
        lifecycle.process_deadlines(now, MAX_DELIVERED_MESSAGES)
        return transferred

    def resolve_dual_ownership(
        self, bookmarks: Iterable[PublisherSequence], owner: str, now: int
    ) -> None:
        """Assign messages that were published at two instances, and are owned by both, to one.

        This instance may be neither of them: the two may not know of each other's message.
        Consumers here keep the messages that they have. The owner records it, too: the other one
        may be stopped before its event is on stable storage, and then gets that of the owner.

        Args:
            bookmarks: the messages.
            owner: the name of the one of the two that is the later by name: see `OwnershipClaim`.
            now: the current time.
        """
        lifecycle, claim = self.lifecycle, OwnershipClaim(0, owner)
        reassigned: list[PublisherSequence] = []
        for bookmark in bookmarks:
            offset = lifecycle.entries.find(bookmark)
            was_owned = offset is not None and not lifecycle.entries.owner(offset)
            may_arrive = self._may_arrive(bookmark)
            if lifecycle.apply_claim(bookmark, claim, now, may_arrive=may_arrive):
                lifecycle.counters.owned_twice += was_owned and owner != self.owner
                reassigned.append(bookmark)
        if reassigned:
            lifecycle.events.append(Transferred(now, reassigned, owner, [0] * len(reassigned)))
        lifecycle.flush(now)

    def apply_remote_event(self, event: QueueEvent, now: int) -> None:
        """Apply an event that another instance has recorded."""
        lifecycle = self.lifecycle
        self.remote_events.apply_event(event, now)
        lifecycle.flush(now)

    def apply_claims(
        self, claims: Iterable[tuple[PublisherSequence, OwnershipClaim]], now: int
    ) -> None:
        """Apply claims of ownership by other instances; see `MessageLifecycle.apply_claim`."""
        for bookmark, claim in claims:
            self.lifecycle.apply_claim(bookmark, claim, now, may_arrive=False)
        self.lifecycle.flush(now)

    # recorded events

    def drain_events(self) -> list[QueueEvent]:
        """Return the events to record since the last call, in this order."""
        lifecycle = self._lifecycle
        if lifecycle.unrecorded_early_acks:
            unrecorded_early_acks, lifecycle.unrecorded_early_acks = (
                lifecycle.unrecorded_early_acks,
                {},
            )
            lifecycle.events.append(
                Acked(max(unrecorded_early_acks.values()), list(unrecorded_early_acks))
            )
        if not lifecycle.events:
            return []
        events, lifecycle.events = lifecycle.events, []
        return events

    def replay(self, event: QueueEvent, arrived_at: int | None = None) -> None:
        """Replay a recorded event, in log order.

        Args:
            event: the event.
            arrived_at: the arrival time of another instance's event, by the local clock; None if it
                is local.
        """
        if arrived_at is None:
            recovery.replay(self.lifecycle, event)
        else:
            self.remote_events.apply_event(event, arrived_at, is_replay=True)

    def finish_recovery(self, now: int) -> None:
        """End the replay: expire messages that must not be delivered once more."""
        self.remote_events.finish_recovery()
        recovery.finish(self.lifecycle, now)

    @property
    def oldest_txid(self) -> int | None:
        """The txid of the oldest message in the queue; all messages before have left it.

        None if it is empty. Recovery needs the journal from there on. Acknowledgements that wait
        for their messages (`lifecycle.early_acks`) may be older, and have to be kept separately.
        """
        lifecycle = self.lifecycle
        head = lifecycle.entries.head
        if head != lifecycle.entries.end:
            return lifecycle.entries.txid(head)
        return lifecycle.resume_txid if lifecycle.inactive_count else None

    def restore_early_acks(self, acks: Iterable[tuple[PublisherSequence, int]]) -> None:
        """Restore acknowledgements that wait for their messages, before anything is replayed.

        Args:
            acks: their bookmarks, each with its arrival time.
        """
        for bookmark, arrived_at in acks:
            self.lifecycle.early_acks.add((bookmark,), arrived_at)

    # timeouts

    @property
    def next_deadline(self) -> int | None:
        """When to call `assign_messages` although nothing has happened, None for never.

        It may be earlier than needed, and never is later.
        """
        return self._lifecycle.next_deadline

    # inspection

    @property
    def counters(self) -> QueueCounters:
        """Totals of the queue's events."""
        return self.lifecycle.counters

    @property
    def depth(self) -> int:
        """Number of messages in the queue, leased ones included."""
        return self.lifecycle.depth

    @property
    def leased_count(self) -> int:
        """Number of messages that consumers have and have not acknowledged."""
        return len(self._lifecycle.leases)

    def watch(self, watcher: QueueBrowser | None) -> None:
        """Notify a watcher of the visible messages that follow, None for no watcher."""
        self.lifecycle.watcher = watcher
