"""Dispatch: assigns messages to consumers, by filter, room and fairness.

Theory of operation. The oldest message that some consumer can take is delivered next; among the
consumers that can take it, the fairness model chooses. Messages are not searched for consumers:
every source (see sources.py) knows its first message, a heap orders the sources by it, and sources
with the same first message compete for it. So the cost of a message is proportional to the number
of sources that it matches.

The common case has a fast path: while no consumer has a filter and messages have no priorities,
messages that no scan has passed are adjacent, and are assigned in runs.

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
from server.queues.core.order import LAST, PLACE, START
from server.queues.core.settings import QueueSettings
from server.queues.core.sources import FilterMatcher, FilterScan, FilterSource, UnmatchedError
from server.queues.core.states import AVAILABLE, LEASED, SENT

_CHUNK: Final = 64
"""Messages matched together: a step usually wants several, and few should be matched in vain."""


class DispatchBatch(NamedTuple):
    """Messages for one consumer.

    Attributes:
        seat: the consumer's seat.
        places: their places, in the order of delivery.
        txids: their txids.
    """

    seat: ConsumerSlot
    places: Sequence[int]
    txids: Sequence[int]


class Dispatch:
    """The consumers of one queue, and the choice of their messages.

    Args:
        settings: the configuration of the queue.
        matching: creates a `FilterMatcher`.

    Attributes:
        lifecycle: the messages; set before any other use.
        seats: seats of consumers that get messages here, or hold some.
        scans: all scans, the one without a filter among them.
        is_behind: whether messages remain to be matched that consumers may wait for.
        is_stalled: whether messages could not be read the last time.
        is_to_look_again: whether `serve` has left consumers with room and no known message.
    """

    lifecycle: MessageLifecycle

    def __init__(
        self,
        settings: QueueSettings,
        matching: Callable[[], FilterMatcher],
        on_room: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._matching = matching
        self._on_room = on_room
        self.seats: dict[Consumer, ConsumerSlot] = {}
        self.scans: list[FilterScan] = []
        self.is_behind = False
        self.is_stalled = False
        self.is_to_look_again = False
        self._sources: dict[Hashable | None, FilterSource] = {}
        self._source_of: dict[ConsumerSlot, FilterSource] = {}
        self._heads: list[tuple[int, int, FilterSource]] = []
        self._seats_taken = 0
        self._sources_made = 0
        self._turn = 0

    # consumers

    def seat(self, consumer: Consumer) -> ConsumerSlot:
        """Return the seat of a consumer, a new one if it has none."""
        seat = self.seats.get(consumer)
        if seat is None:
            self._seats_taken += 1
            allowed = self._settings.max_per_subscription_backlog
            seat = ConsumerSlot(consumer, allowed, self._seats_taken, self._look_again)
            seat.served = self._turn
            self.seats[consumer] = seat
            consumer.seats.append(seat)
        return seat

    def supply(self, seat: ConsumerSlot, content_filter: Hashable | None) -> None:
        """Give a consumer only the messages that match a filter; all messages for None."""
        self.cut_off(seat)
        source = self._sources.get(content_filter)
        if source is None:
            self._sources_made += 1
            rota = ConsumerRotation(MODELS[self._settings.fairness])
            source = FilterSource(content_filter, rota, self._sources_made)
            self._sources[content_filter] = source
            self._new_scan(content_filter is not None).add(source)
        source.seats += 1
        self._source_of[seat] = source
        seat.content_filter = content_filter
        seat.is_supplied = True
        seat.consumer.limits_changed()

    def cut_off(self, seat: ConsumerSlot) -> None:
        """Stop giving messages to a consumer."""
        source = self._source_of.pop(seat, None)
        if source is None:
            return
        seat.is_supplied = False
        seat.entry = None
        source.seats -= 1
        if not source.seats:
            del self._sources[source.filter]
            scan = source.scan
            scan.discard(source)
            if not scan.sources:
                self.scans.remove(scan)

    def dismiss(self, seat: ConsumerSlot) -> None:
        """Remove a consumer that holds no messages."""
        self.cut_off(seat)
        del self.seats[seat.consumer]
        seat.consumer.seats.remove(seat)
        seat.consumer.limits_changed()

    def has_passed(self, seat: ConsumerSlot, rank: int) -> bool:
        """Return whether it is known if a message matches the filter of a consumer."""
        source = self._source_of.get(seat)
        return source is None or rank <= source.scan.position

    def new_matching(self) -> FilterMatcher:
        """Return a `FilterMatcher` that is separate from those of the scans."""
        return self._matching()

    def _new_scan(self, has_filter: bool) -> FilterScan:
        """Return a scan at the start position, for a source with or without a filter."""
        for scan in self.scans:
            if has_filter and scan.matching is not None and scan.position == START:
                return scan
        scan = FilterScan(self._matching() if has_filter else None)
        self.scans.append(scan)
        return scan

    def _look_again(self, seat: ConsumerSlot) -> None:
        """Update a consumer after a possible change of its room or fairness key."""
        source = self._source_of.get(seat)
        if source is not None:
            source.rota.look_again(seat)
            self._may_serve(source)
            if seat.room > 0:
                self._on_room()
        elif not seat.held and seat.consumer in self.seats:
            self.dismiss(seat)  # it was retired, and holds nothing any more

    def _may_serve(self, source: FilterSource) -> None:
        """Enter a source into the heap, or mark it as hungry if it has no message."""
        if source.found:
            heappush(self._heads, (source.found[0], source.order, source))
        else:
            source.scan.hungry[source] = None

    # messages

    def offered(self, place: int) -> None:
        """Find consumers for an available message that scans may have passed."""
        rank = self.lifecycle.order.rank(place)
        for scan in self.scans:
            if rank > scan.position:
                continue
            if scan.matching is not None:
                scan.again(rank)
            else:
                for source in scan.sources.values():
                    self._found(source, rank)

    def _found(self, source: FilterSource, rank: int) -> None:
        heappush(source.found, rank)
        if source.found[0] == rank:
            heappush(self._heads, (rank, source.order, source))

    def _is_available(self, place: int) -> bool:
        return self.lifecycle.entries.state(place) == AVAILABLE

    @property
    def last(self) -> int:
        """The last rank that may be delivered: no message after a barrier is."""
        lifecycle = self.lifecycle
        if self._settings.prioritized:
            return LAST
        return (lifecycle.barriers[0] if lifecycle.barriers else lifecycle.entries.end) - 1

    def look(self, effort: int) -> int:
        """Match messages for consumers that wait.

        Args:
            effort: limit of messages to match.

        Returns:
            The rest of the limit.
        """
        self.is_behind = self.is_stalled = False
        if self._has_shorter_way:
            return effort
        while not self.is_stalled:
            has_moved = False
            for scan in tuple(self.scans):
                if scan not in self.scans:
                    continue  # it has been merged into another one
                if effort <= 0 and scan.matching is not None:
                    self.is_behind |= self._can_go_on(scan)
                    continue
                before = scan.position
                matched = self._go_on(
                    scan, _CHUNK if scan.matching is None else min(effort, _CHUNK)
                )
                has_moved |= matched > 0 or scan.position != before
                effort -= matched
            if not has_moved:
                return effort
            self.scans.append(self.scans.pop(0))  # rotate, so that each scan comes first in turn
        return effort

    def rooms(self) -> dict[Hashable | None, int]:
        """Return the number of messages that consumers can take, by filter, without zeros."""
        rooms: dict[Hashable | None, int] = {}
        for seat in self.seats.values():
            if seat.is_supplied and seat.room > 0:
                rooms[seat.content_filter] = rooms.get(seat.content_filter, 0) + seat.room
        return rooms

    @property
    def is_consumed(self) -> bool:
        """True if any consumer gets messages here."""
        return bool(self._sources)

    def everybody_for(self, place: int) -> list[Consumer] | None:
        """Return the consumers with a filter that a message matches, regardless of their room.

        Returns:
            None if there are no consumers, or if the message cannot be matched at the moment.
        """
        if not self._sources:
            return None
        matched: set[Hashable | None] = {None}
        txid = self.lifecycle.entries.txid(place)
        try:
            for scan in self.scans:
                if scan.matching is not None:
                    matched.update(scan.matching.match([txid])[0])
        except UnmatchedError:
            self.is_stalled = True
            return None
        return [
            seat.consumer
            for seat in self.seats.values()
            if seat.is_supplied and seat.content_filter in matched
        ]

    def _can_go_on(self, scan: FilterScan) -> bool:
        """Return whether there are messages to match that consumers may wait for."""
        return scan.has_again or (scan.position < self.last and scan.is_hungry(self._is_available))

    def _go_on(self, scan: FilterScan, limit: int) -> int:
        """Advance a scan if consumers may wait for it; return how many messages it has matched."""
        ranks = scan.take_again(limit, self._is_available)
        if not ranks and self._can_go_on(scan):
            ahead = self._next_ahead(scan)
            end = self.last if ahead is None else min(self.last, ahead.position)
            ranks = scan.step(self.lifecycle.order, end, limit)
            if ahead is not None and scan.position == ahead.position:
                if not self._match(scan, ranks):
                    return 0
                ahead.absorb(scan)
                self.scans.remove(scan)
                return len(ranks)
        if not self._match(scan, ranks) or scan.matching is None:
            return 0
        return len(ranks)

    def _next_ahead(self, scan: FilterScan) -> FilterScan | None:
        """Return the next scan with filters ahead of this one."""
        ahead = [
            other
            for other in self.scans
            if other.matching is not None and other.position > scan.position
        ]
        if scan.matching is None or not ahead:
            return None
        return min(ahead, key=lambda other: other.position)

    def _match(self, scan: FilterScan, ranks: list[int]) -> bool:
        """Match messages, and pass them to the sources; return False if that is impossible now."""
        if scan.matching is None:
            for source in scan.sources.values():
                for rank in ranks:
                    self._found(source, rank)
            return True
        if not ranks:
            return True
        txid = self.lifecycle.entries.txid
        try:
            matches = scan.matching.match([txid(rank & PLACE) for rank in ranks])
        except UnmatchedError:
            for rank in ranks:
                scan.again(rank)
            self.is_stalled = True
            return False
        scan.matched += len(ranks)
        for rank, filters in zip(ranks, matches, strict=True):
            for content_filter in filters:
                if content_filter in scan.sources:
                    self._found(scan.sources[content_filter], rank)
        return True

    # delivery

    def serve(self, capacity: int) -> list[DispatchBatch]:
        """Assign messages to consumers.

        Args:
            capacity: limit of messages.
        """
        self.is_to_look_again = False
        shares = self._serve_found(capacity)
        self.is_to_look_again |= bool(shares) and not self._has_shorter_way
        if self._has_shorter_way:
            capacity -= sum(len(share.places) for share in shares)
            shares += self._serve_runs(capacity)
        for share in shares:
            if len(share.seat.consumer.seats) > 1:
                share.seat.consumer.changed()
        return shares

    @property
    def _has_shorter_way(self) -> bool:
        """True if messages that no scan has passed go to the next consumer without matching."""
        return not self._settings.prioritized and len(self.scans) == 1 and None in self._sources

    def _serve_runs(self, capacity: int) -> list[DispatchBatch]:
        """Assign messages that the scan has not passed, in runs."""
        source = self._sources[None]
        scan, rota = source.scan, source.rota
        entries, last = self.lifecycle.entries, self.last
        state = SENT if self._settings.at_most_once else LEASED
        shares: list[DispatchBatch] = []
        while capacity > 0 and scan.position < last and rota.best() is not None:
            run = entries.available_run(scan.position + 1, last)[:capacity]
            if not run:
                scan.position = last
                break
            given = 0
            for seat, places in rota.share_out(run, self._turn):
                given += len(places)
                shares.append(DispatchBatch(seat, places, entries.txids(places)))
            entries.set_states(run[:given], AVAILABLE, state)
            scan.position = run[given - 1]
            capacity -= given
            self._turn += given
        return shares

    def _serve_found(self, capacity: int) -> list[DispatchBatch]:
        """Assign messages that scans have found, in order."""
        served: dict[ConsumerSlot, list[int]] = {}
        lifecycle, heads = self.lifecycle, self._heads
        state = SENT if self._settings.at_most_once else LEASED
        while heads and capacity > 0:
            rank = heads[0][0]
            if self._has_passed_over(rank):
                break
            rivals = self._rivals(rank)
            if not rivals:
                continue
            (_, _, seat), chosen = min(rivals, key=itemgetter(0))
            self._turn += 1
            capacity -= 1
            seat.served = self._turn
            seat.consumer.outstanding += 1
            served.setdefault(seat, []).append(rank & PLACE)
            lifecycle.order.discard(rank & PLACE)
            lifecycle.entries.set_state(rank & PLACE, state)
            chosen.rota.look_again(seat)
            for _, rival in rivals:
                heappop(rival.found)
                self._may_serve(rival)
        txids = lifecycle.entries.txids
        return [DispatchBatch(seat, places, txids(places)) for seat, places in served.items()]

    def _has_passed_over(self, rank: int) -> bool:
        """Return whether consumers without a filter have room, and their scan is not at `rank` yet.

        They may be next by the fairness model, and their scan costs nothing.
        """
        source = self._sources.get(None)
        if source is None or source.scan.position >= rank or source.rota.best() is None:
            return False
        source.scan.hungry[source] = None
        self.is_to_look_again = True
        return True

    def _rivals(self, rank: int) -> list[tuple[RotationEntry, FilterSource]]:
        """Pop all sources with this first rank from the heap, with their next consumers."""
        rivals: dict[FilterSource, RotationEntry] = {}
        heads = self._heads
        while heads and heads[0][0] == rank:
            source = heappop(heads)[2]
            head = source.head(self._is_available)
            best = source.rota.best()
            if head is None:
                if best is not None:
                    source.scan.hungry[source] = None
                    self.is_to_look_again = True
            elif best is not None and head == rank:
                rivals[source] = best
            elif best is not None and head > rank:
                heappush(heads, (head, source.order, source))
        return [(best, source) for source, best in rivals.items()]
