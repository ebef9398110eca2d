"""Dispatch: assigns messages to consumers, by filter, room and fairness.

Theory of operation. The oldest message that some consumer can take is delivered next; among the
consumers that can take it, the fairness model chooses. Messages are not searched for consumers:
every source (see sources.py) knows its first message, a heap orders the sources by it, and sources
with the same first message compete for it. So the cost of a message is proportional to the number
of sources that it matches.

The common case has a fast path: while no consumer has a filter and messages have no priorities,
messages that no scan has passed are adjacent, and are assigned in ranges.

The heap of sources may have stale entries: for messages that are gone, and for sources without
a consumer that has room. They are dropped when they reach the top. A source that has both a message
and a consumer with room always has an entry, at its first message or before it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final, NamedTuple

from server.queues.core.consumer_rotation import MODELS, ConsumerRotation
from server.queues.core.consumers import Consumer, ConsumerSlot, RotationEntry
from server.queues.core.message_state import MessageLifecycle
from server.queues.core.order import LAST, OFFSET, START
from server.queues.core.settings import QueueSettings
from server.queues.core.sources import FilterMatcher, FilterScan, FilterSource, UnmatchedError
from server.queues.core.states import AVAILABLE, LEASED, SENT

_MATCH_BATCH_SIZE: Final = 64
"""Messages matched together: a step usually needs several, and few should be matched in vain."""


class DispatchBatch(NamedTuple):
    """Messages for one consumer.

    Attributes:
        slot: the consumer's slot.
        offsets: their offsets, in the order of delivery.
        txids: their txids.
    """

    slot: ConsumerSlot
    offsets: Sequence[int]
    txids: Sequence[int]


class Dispatch:
    """The consumers of one queue, and the choice of their messages.

    Args:
        settings: the configuration of the queue.
        make_matcher: creates a `FilterMatcher`.
        on_room: called when a consumer may have room.

    Attributes:
        lifecycle: the messages; set before any other use.
        slots: slots of consumers that get messages here, or hold some.
        scans: all scans, the one without a filter among them.
        is_behind: whether messages remain to be matched that consumers may wait for.
        is_unreadable: whether messages could not be read the last time.
        has_unserved_consumers: whether `assign_batches` has left consumers with room and no known
            message.
    """

    lifecycle: MessageLifecycle

    def __init__(
        self,
        settings: QueueSettings,
        make_matcher: Callable[[], FilterMatcher],
        on_room: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._make_matcher = make_matcher
        self._on_room = on_room
        self.slots: dict[Consumer, ConsumerSlot] = {}
        self.scans: list[FilterScan] = []
        self.is_behind = False
        self.is_unreadable = False
        self.has_unserved_consumers = False
        self._sources: dict[Hashable | None, FilterSource] = {}
        self._source_by_slot: dict[ConsumerSlot, FilterSource] = {}
        self._source_heap: list[tuple[int, int, FilterSource]] = []
        self._slots_created = 0
        self._sources_created = 0
        self._delivery_number = 0

    # consumers

    def get_or_create_slot(self, consumer: Consumer) -> ConsumerSlot:
        """Return the slot of a consumer, a new one if it has none."""
        slot = self.slots.get(consumer)
        if slot is None:
            self._slots_created += 1
            max_backlog = self._settings.max_per_subscription_backlog
            slot = ConsumerSlot(consumer, max_backlog, self._slots_created, self._update_slot)
            slot.last_delivery_number = self._delivery_number
            self.slots[consumer] = slot
            consumer.slots.append(slot)
        return slot

    def start_delivery(self, slot: ConsumerSlot, content_filter: Hashable | None) -> None:
        """Give a consumer only the messages that match a filter; all messages for None."""
        self.stop_delivery(slot)
        source = self._sources.get(content_filter)
        if source is None:
            self._sources_created += 1
            rotation = ConsumerRotation(MODELS[self._settings.fairness])
            source = FilterSource(content_filter, rotation, self._sources_created)
            self._sources[content_filter] = source
            self._find_or_add_scan(content_filter is not None).add(source)
        source.slot_count += 1
        self._source_by_slot[slot] = source
        slot.content_filter = content_filter
        slot.is_active = True
        slot.consumer.update_limit()

    def stop_delivery(self, slot: ConsumerSlot) -> None:
        """Stop giving messages to a consumer."""
        source = self._source_by_slot.pop(slot, None)
        if source is None:
            return
        slot.is_active = False
        slot.rotation_entry = None
        source.slot_count -= 1
        if not source.slot_count:
            del self._sources[source.filter]
            scan = source.scan
            scan.discard(source)
            if not scan.sources:
                self.scans.remove(scan)

    def remove_slot(self, slot: ConsumerSlot) -> None:
        """Remove a consumer that holds no messages."""
        self.stop_delivery(slot)
        del self.slots[slot.consumer]
        slot.consumer.slots.remove(slot)
        slot.consumer.update_limit()

    def has_scanned(self, slot: ConsumerSlot, rank: int) -> bool:
        """Return whether it is known if a message matches the filter of a consumer."""
        source = self._source_by_slot.get(slot)
        return source is None or rank <= source.scan.position

    def new_matcher(self) -> FilterMatcher:
        """Return a `FilterMatcher` that is separate from those of the scans."""
        return self._make_matcher()

    def _find_or_add_scan(self, has_filter: bool) -> FilterScan:
        """Return a scan at the start position, for a source with or without a filter."""
        for scan in self.scans:
            if has_filter and scan.matcher is not None and scan.position == START:
                return scan
        scan = FilterScan(self._make_matcher() if has_filter else None)
        self.scans.append(scan)
        return scan

    def _update_slot(self, slot: ConsumerSlot) -> None:
        """Update a consumer after a possible change of its room or fairness key."""
        source = self._source_by_slot.get(slot)
        if source is not None:
            source.rotation.update_entry(slot)
            self._schedule_source(source)
            if slot.free_backlog > 0:
                self._on_room()
        elif not slot.held_offsets and slot.consumer in self.slots:
            self.remove_slot(slot)  # it was retired, and holds nothing any more

    def _schedule_source(self, source: FilterSource) -> None:
        """Enter a source into the heap, or mark it as one without a message."""
        if source.matched_ranks:
            heappush(self._source_heap, (source.matched_ranks[0], source.serial, source))
        else:
            source.scan.hungry_sources[source] = None

    # messages

    def on_message_available(self, offset: int) -> None:
        """Find consumers for an available message that scans may have passed."""
        rank = self.lifecycle.order.rank(offset)
        for scan in self.scans:
            if rank > scan.position:
                continue
            if scan.matcher is not None:
                scan.schedule_rematch(rank)
            else:
                for source in scan.sources.values():
                    self._add_match(source, rank)

    def _add_match(self, source: FilterSource, rank: int) -> None:
        heappush(source.matched_ranks, rank)
        if source.matched_ranks[0] == rank:
            heappush(self._source_heap, (rank, source.serial, source))

    def _is_available(self, offset: int) -> bool:
        return self.lifecycle.entries.state(offset) == AVAILABLE

    @property
    def last_deliverable_rank(self) -> int:
        """The last rank that may be delivered: no message after a barrier is."""
        lifecycle = self.lifecycle
        if self._settings.prioritized:
            return LAST
        return (lifecycle.barriers[0] if lifecycle.barriers else lifecycle.entries.end) - 1

    def match_messages(self, limit: int) -> int:
        """Match messages for consumers that wait.

        Args:
            limit: the maximum number of messages to match.

        Returns:
            The rest of the limit.
        """
        self.is_behind = self.is_unreadable = False
        if self._has_fast_path:
            return limit
        while not self.is_unreadable:
            has_moved = False
            for scan in tuple(self.scans):
                if scan not in self.scans:
                    continue  # it has been merged into another one
                if limit <= 0 and scan.matcher is not None:
                    self.is_behind |= self._can_advance_scan(scan)
                    continue
                previous_position = scan.position
                matched = self._advance_scan(
                    scan,
                    _MATCH_BATCH_SIZE if scan.matcher is None else min(limit, _MATCH_BATCH_SIZE),
                )
                has_moved |= matched > 0 or scan.position != previous_position
                limit -= matched
            if not has_moved:
                return limit
            self.scans.append(self.scans.pop(0))  # rotate, so that each scan is the first once
        return limit

    def free_backlog_by_filter(self) -> dict[Hashable | None, int]:
        """Return the number of messages that consumers can take, by filter, without zeros."""
        free_backlogs: dict[Hashable | None, int] = {}
        for slot in self.slots.values():
            if slot.is_active and slot.free_backlog > 0:
                free_backlogs[slot.content_filter] = (
                    free_backlogs.get(slot.content_filter, 0) + slot.free_backlog
                )
        return free_backlogs

    @property
    def has_consumers(self) -> bool:
        """True if any consumer gets messages here."""
        return bool(self._sources)

    def find_matching_consumers(self, offset: int) -> list[Consumer] | None:
        """Return the consumers with a filter that a message matches, regardless of their room.

        Returns:
            None if there are no consumers, or if the message cannot be matched at the moment.
        """
        if not self._sources:
            return None
        matched: set[Hashable | None] = {None}
        txid = self.lifecycle.entries.txid(offset)
        try:
            for scan in self.scans:
                if scan.matcher is not None:
                    matched.update(scan.matcher.match([txid])[0])
        except UnmatchedError:
            self.is_unreadable = True
            return None
        return [
            slot.consumer
            for slot in self.slots.values()
            if slot.is_active and slot.content_filter in matched
        ]

    def _can_advance_scan(self, scan: FilterScan) -> bool:
        """Return whether there are messages to match that consumers may wait for."""
        return scan.has_rematches or (
            scan.position < self.last_deliverable_rank
            and scan.has_hungry_source(self._is_available)
        )

    def _advance_scan(self, scan: FilterScan, limit: int) -> int:
        """Advance a scan if consumers may wait for it; return how many messages it has matched."""
        ranks = scan.pop_rematches(limit, self._is_available)
        if not ranks and self._can_advance_scan(scan):
            next_scan = self._next_ahead(scan)
            end = (
                self.last_deliverable_rank
                if next_scan is None
                else min(self.last_deliverable_rank, next_scan.position)
            )
            ranks = scan.advance(self.lifecycle.order, end, limit)
            if next_scan is not None and scan.position == next_scan.position:
                if not self._match(scan, ranks):
                    return 0
                next_scan.merge_scan(scan)
                self.scans.remove(scan)
                return len(ranks)
        if not self._match(scan, ranks) or scan.matcher is None:
            return 0
        return len(ranks)

    def _next_ahead(self, scan: FilterScan) -> FilterScan | None:
        """Return the next scan with filters ahead of this one."""
        scans_ahead = [
            other
            for other in self.scans
            if other.matcher is not None and other.position > scan.position
        ]
        if scan.matcher is None or not scans_ahead:
            return None
        return min(scans_ahead, key=lambda other: other.position)

    def _match(self, scan: FilterScan, ranks: list[int]) -> bool:
        """Match messages, and pass them to the sources; return False if that is impossible now."""
        if scan.matcher is None:
            for source in scan.sources.values():
                for rank in ranks:
                    self._add_match(source, rank)
            return True
        if not ranks:
            return True
        txid = self.lifecycle.entries.txid
        try:
            matches = scan.matcher.match([txid(rank & OFFSET) for rank in ranks])
        except UnmatchedError:
            for rank in ranks:
                scan.schedule_rematch(rank)
            self.is_unreadable = True
            return False
        scan.matched_count += len(ranks)
        for rank, filters in zip(ranks, matches, strict=True):
            for content_filter in filters:
                if content_filter in scan.sources:
                    self._add_match(scan.sources[content_filter], rank)
        return True

    # delivery

    def assign_batches(self, capacity: int) -> list[DispatchBatch]:
        """Assign messages to consumers.

        Args:
            capacity: limit of messages.
        """
        self.has_unserved_consumers = False
        batches = self._assign_matched(capacity)
        self.has_unserved_consumers |= bool(batches) and not self._has_fast_path
        if self._has_fast_path:
            capacity -= sum(len(batch.offsets) for batch in batches)
            batches += self._assign_ranges(capacity)
        for batch in batches:
            if len(batch.slot.consumer.slots) > 1:
                batch.slot.consumer.notify_queues()
        return batches

    @property
    def _has_fast_path(self) -> bool:
        """True if messages that no scan has passed go to the next consumer without matching."""
        return not self._settings.prioritized and len(self.scans) == 1 and None in self._sources

    def _assign_ranges(self, capacity: int) -> list[DispatchBatch]:
        """Assign messages that the scan has not passed, in ranges of adjacent ones."""
        source = self._sources[None]
        scan, rotation = source.scan, source.rotation
        entries, last_deliverable_rank = self.lifecycle.entries, self.last_deliverable_rank
        state = SENT if self._settings.at_most_once else LEASED
        batches: list[DispatchBatch] = []
        while (
            capacity > 0
            and scan.position < last_deliverable_rank
            and rotation.next_entry() is not None
        ):
            available_range = entries.next_available_range(
                scan.position + 1, last_deliverable_rank
            )[:capacity]
            if not available_range:
                scan.position = last_deliverable_rank
                break
            assigned_count = 0
            for slot, offsets in rotation.assign_messages(available_range, self._delivery_number):
                assigned_count += len(offsets)
                batches.append(DispatchBatch(slot, offsets, entries.txids(offsets)))
            entries.set_states(available_range[:assigned_count], AVAILABLE, state)
            scan.position = available_range[assigned_count - 1]
            capacity -= assigned_count
            self._delivery_number += assigned_count
        return batches

    def _assign_matched(self, capacity: int) -> list[DispatchBatch]:
        """Assign messages that scans have found, in order."""
        served: dict[ConsumerSlot, list[int]] = {}
        lifecycle, source_heap = self.lifecycle, self._source_heap
        state = SENT if self._settings.at_most_once else LEASED
        while source_heap and capacity > 0:
            rank = source_heap[0][0]
            if self._must_scan_unfiltered(rank):
                break
            competitors = self._pop_competing_sources(rank)
            if not competitors:
                continue
            (_, _, slot), selected_source = min(competitors, key=itemgetter(0))
            self._delivery_number += 1
            capacity -= 1
            slot.last_delivery_number = self._delivery_number
            slot.consumer.outstanding += 1
            served.setdefault(slot, []).append(rank & OFFSET)
            lifecycle.order.discard(rank & OFFSET)
            lifecycle.entries.set_state(rank & OFFSET, state)
            selected_source.rotation.update_entry(slot)
            for _, competitor in competitors:
                heappop(competitor.matched_ranks)
                self._schedule_source(competitor)
        txids = lifecycle.entries.txids
        return [DispatchBatch(slot, offsets, txids(offsets)) for slot, offsets in served.items()]

    def _must_scan_unfiltered(self, rank: int) -> bool:
        """Return whether consumers without a filter have room, and their scan is not at `rank` yet.

        They may be next by the fairness model, and their scan costs nothing.
        """
        source = self._sources.get(None)
        if source is None or source.scan.position >= rank or source.rotation.next_entry() is None:
            return False
        source.scan.hungry_sources[source] = None
        self.has_unserved_consumers = True
        return True

    def _pop_competing_sources(self, rank: int) -> list[tuple[RotationEntry, FilterSource]]:
        """Pop all sources with this first rank from the heap, with their next consumers."""
        competitors: dict[FilterSource, RotationEntry] = {}
        source_heap = self._source_heap
        while source_heap and source_heap[0][0] == rank:
            source = heappop(source_heap)[2]
            first_rank = source.first_available_rank(self._is_available)
            next_entry = source.rotation.next_entry()
            if first_rank is None:
                if next_entry is not None:
                    source.scan.hungry_sources[source] = None
                    self.has_unserved_consumers = True
            elif next_entry is not None and first_rank == rank:
                competitors[source] = next_entry
            elif next_entry is not None and first_rank > rank:
                heappush(source_heap, (first_rank, source.serial, source))
        return [(next_entry, source) for source, next_entry in competitors.items()]
