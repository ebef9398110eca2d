"""Sources of consumers' messages: which messages are known to match which filter.

Theory of operation. Consumers with the same filter share one source, and all consumers without a
filter share another. A source has a heap of the ranks that are known to match and were available
when they were found; ranks that are not available any more are dropped when they reach the top. So
a consumer with room gets its next message without a search.

Scans find messages for sources. A scan passes once through the available messages, from the first
rank on, and matches each one against the filters of all its sources together. It continues only as
long as one of its sources has a consumer with room and no message for it. So for a consumer with
room for ten messages of a million, as many are matched as it takes to find ten; for a consumer
whose filter matches nothing, each message is matched once. A new filter starts a scan of its own at
the first rank; when a scan reaches the position of another one, the two are merged. So in the long
run there is one scan, at the end, and a message is matched once, on arrival.

A message that becomes available behind the position of a scan (it was returned, or arrived with a
high priority) is matched again by that scan, before the scan continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from server.queues.core.consumer_rotation import ConsumerRotation
from server.queues.core.order import OFFSET, START, DeliveryOrder


class UnmatchedError(Exception):
    """Messages cannot be read at the moment, so their matches are unknown."""


class FilterMatcher(Protocol):
    """Decides which filters a message matches. Filters are opaque values of the caller."""

    def add(self, content_filter: Hashable) -> None:
        """Start to match a filter."""

    def discard(self, content_filter: Hashable) -> None:
        """Stop matching a filter."""

    def is_volatile(self, content_filter: Hashable) -> bool:
        """Return whether a returned message may match a filter that it did not, or vice versa."""

    def match(self, txids: Sequence[int]) -> Sequence[Collection[Hashable]]:
        """Return the filters that each message matches; none for an invalid body.

        Raises:
            UnmatchedError: messages cannot be matched now. The next `assign_messages` retries.
        """


class FilterSource:
    """The messages for all consumers with one filter.

    Attributes:
        filter: the filter, None for none.
        rotation: its consumers, in the order of the fairness model.
        scan: the scan that finds messages for it.
        slot_count: number of its consumers.
        matched_ranks: ranks that match, as a heap; some may not be available any more.
        is_volatile: whether a returned message may not match any more.
    """

    def __init__(
        self, content_filter: Hashable | None, rotation: ConsumerRotation, serial: int
    ) -> None:
        self.filter = content_filter
        self.rotation = rotation
        self.serial = serial
        self.scan: FilterScan
        self.slot_count = 0
        self.matched_ranks: list[int] = []
        self.is_volatile = False

    def drop_match(self, rank: int) -> None:
        """Invalidate the match of a message, if there is one."""
        if rank in self.matched_ranks:
            self.matched_ranks = [each for each in self.matched_ranks if each != rank]
            heapify(self.matched_ranks)

    def first_available_rank(self, is_available: Callable[[int], bool]) -> int | None:
        """Return the first rank that is available and known to match; None if there is none."""
        matched_ranks = self.matched_ranks
        while matched_ranks:
            if is_available(matched_ranks[0] & OFFSET):
                return matched_ranks[0]
            heappop(matched_ranks)
        return None


class FilterScan:
    """One pass through the available messages, for some filters.

    Args:
        matcher: decides the filters; None for the scan of the source without a filter.

    Attributes:
        position: all ranks up to this one have been matched.
        sources: its sources, by filter.
        hungry_sources: sources that may have a consumer with room and have no message for it.
        matched_count: number of messages that have been matched.
    """

    def __init__(self, matcher: FilterMatcher | None) -> None:
        self.matcher = matcher
        self.position = START
        self.sources: dict[Hashable | None, FilterSource] = {}
        self.hungry_sources: dict[FilterSource, None] = {}
        self.matched_count = 0
        self._rematch_heap: list[int] = []

    def add(self, source: FilterSource) -> None:
        """Start to find messages for a source."""
        self.sources[source.filter] = source
        source.scan = self
        if self.matcher is not None:
            self.matcher.add(source.filter)
            source.is_volatile = self.matcher.is_volatile(source.filter)

    def discard(self, source: FilterSource) -> None:
        """Stop finding messages for a source."""
        del self.sources[source.filter]
        self.hungry_sources.pop(source, None)
        if self.matcher is not None:
            self.matcher.discard(source.filter)

    def schedule_rematch(self, rank: int) -> None:
        """Schedule an available message that the scan has passed to be matched again."""
        heappush(self._rematch_heap, rank)
        for source in self.sources.values():
            if source.is_volatile:
                source.drop_match(rank)
                self.hungry_sources[source] = None

    @property
    def has_rematches(self) -> bool:
        """True if messages are to be matched again."""
        return bool(self._rematch_heap)

    def has_hungry_source(self, is_available: Callable[[int], bool]) -> bool:
        """Return whether a consumer waits for messages that this scan may find."""
        while self.hungry_sources:
            source = next(iter(self.hungry_sources))
            if (
                source.rotation.next_entry() is not None
                and source.first_available_rank(is_available) is None
            ):
                return True
            del self.hungry_sources[source]
        return False

    def pop_rematches(self, limit: int, is_available: Callable[[int], bool]) -> list[int]:
        """Remove and return ranks to be matched again, at most `limit`."""
        ranks: list[int] = []
        while self._rematch_heap and len(ranks) < limit:
            rank = heappop(self._rematch_heap)
            if is_available(rank & OFFSET) and (not ranks or ranks[-1] != rank):
                ranks.append(rank)
        return ranks

    def advance(self, order: DeliveryOrder, end: int, limit: int) -> list[int]:
        """Advance the scan.

        Args:
            order: of the available messages.
            end: the last rank to examine.
            limit: the maximum number of messages to match.

        Returns:
            The ranks to be matched.
        """
        if self.position >= end:
            return []
        ranks, self.position = order.next_ranks(self.position, limit, end)
        return ranks

    def merge_scan(self, other: FilterScan) -> None:
        """Take over the sources of another scan that has reached the same position.

        That one has nothing to match again: it has done so before it went on.
        """
        for source in list(other.sources.values()):
            hungry = source in other.hungry_sources
            other.discard(source)
            self.add(source)
            if hungry:
                self.hungry_sources[source] = None
