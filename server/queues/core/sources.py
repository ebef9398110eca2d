"""Sources of consumers' messages: which messages are known to match which filter.

Theory of operation. Consumers with the same filter share one source, and all consumers without a
filter share another. A source has a heap of the ranks that are known to match and were available
when they were found; ranks that are not available any more are dropped when they reach the top. So
a consumer with room gets its next message without a search.

Scans find messages for sources. A scan passes once through the available messages, from the first
rank on, and matches each one against the filters of all its sources together. It continues only as
long as one of its sources is hungry: has a consumer with room, and no message for it. So for a
consumer that wants ten messages of a million, as many are matched as it takes to find ten; for a
consumer whose filter matches nothing, each message is matched once. A new filter starts a scan of
its own at the first rank; when a scan reaches the position of another one, the two are merged. So
in the long run there is one scan, at the end, and a message is matched once, on arrival.

A message that becomes available behind the position of a scan (it was returned, or arrived with a
high priority) is matched again by that scan, before the scan continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from server.queues.core.consumer_rotation import ConsumerRotation
from server.queues.core.order import PLACE, START, DeliveryOrder


class UnmatchedError(Exception):
    """Messages cannot be read at the moment, so their matches are unknown."""


class FilterMatcher(Protocol):
    """Decides which filters a message matches. Filters are opaque values of the caller."""

    def add(self, content_filter: Hashable) -> None:
        """Start to match a filter."""

    def discard(self, content_filter: Hashable) -> None:
        """Stop matching a filter."""

    def may_change(self, content_filter: Hashable) -> bool:
        """Return whether a returned message may match a filter that it did not, or vice versa."""

    def match(self, txids: Sequence[int]) -> Sequence[Collection[Hashable]]:
        """Return the filters that each message matches; none for an invalid body.

        Raises:
            UnmatchedError: messages cannot be matched now. The next `deliver` retries.
        """


class FilterSource:
    """The messages for all consumers with one filter.

    Attributes:
        filter: the filter, None for none.
        rota: its consumers, in the order of the fairness model.
        scan: the scan that finds messages for it.
        seats: number of its consumers.
        found: ranks that match, as a heap; some may not be available any more.
        may_change: whether a returned message may not match any more.
    """

    __slots__ = ("filter", "found", "may_change", "order", "rota", "scan", "seats")

    def __init__(self, content_filter: Hashable | None, rota: ConsumerRotation, order: int) -> None:
        self.filter = content_filter
        self.rota = rota
        self.order = order
        self.scan: FilterScan
        self.seats = 0
        self.found: list[int] = []
        self.may_change = False

    def forget(self, rank: int) -> None:
        """Invalidate the match of a message, if there is one."""
        if rank in self.found:
            self.found = [each for each in self.found if each != rank]
            heapify(self.found)

    def head(self, is_available: Callable[[int], bool]) -> int | None:
        """Return the first rank that is available and known to match; None if there is none."""
        found = self.found
        while found:
            if is_available(found[0] & PLACE):
                return found[0]
            heappop(found)
        return None


class FilterScan:
    """One pass through the available messages, for some filters.

    Args:
        matching: decides the filters; None for the scan of the source without a filter.

    Attributes:
        position: all ranks up to this one have been matched.
        sources: its sources, by filter.
        hungry: sources that may have a consumer with room and have no message for it.
        matched: number of messages that have been matched.
    """

    __slots__ = ("_again", "hungry", "matched", "matching", "position", "sources")

    def __init__(self, matching: FilterMatcher | None) -> None:
        self.matching = matching
        self.position = START
        self.sources: dict[Hashable | None, FilterSource] = {}
        self.hungry: dict[FilterSource, None] = {}
        self.matched = 0
        self._again: list[int] = []

    def add(self, source: FilterSource) -> None:
        """Start to find messages for a source."""
        self.sources[source.filter] = source
        source.scan = self
        if self.matching is not None:
            self.matching.add(source.filter)
            source.may_change = self.matching.may_change(source.filter)

    def discard(self, source: FilterSource) -> None:
        """Stop finding messages for a source."""
        del self.sources[source.filter]
        self.hungry.pop(source, None)
        if self.matching is not None:
            self.matching.discard(source.filter)

    def again(self, rank: int) -> None:
        """Schedule an available message that the scan has passed to be matched again."""
        heappush(self._again, rank)
        for source in self.sources.values():
            if source.may_change:
                source.forget(rank)
                self.hungry[source] = None

    @property
    def has_again(self) -> bool:
        """True if messages are to be matched again."""
        return bool(self._again)

    def is_hungry(self, is_available: Callable[[int], bool]) -> bool:
        """Return whether a consumer waits for messages that this scan may find."""
        while self.hungry:
            source = next(iter(self.hungry))
            if source.rota.best() is not None and source.head(is_available) is None:
                return True
            del self.hungry[source]
        return False

    def take_again(self, limit: int, is_available: Callable[[int], bool]) -> list[int]:
        """Remove and return ranks to be matched again, at most `limit`."""
        ranks: list[int] = []
        while self._again and len(ranks) < limit:
            rank = heappop(self._again)
            if is_available(rank & PLACE) and (not ranks or ranks[-1] != rank):
                ranks.append(rank)
        return ranks

    def step(self, order: DeliveryOrder, end: int, limit: int) -> list[int]:
        """Advance the scan.

        Args:
            order: of the available messages.
            end: the last rank to look at.
            limit: messages to match at most.

        Returns:
            The ranks to be matched.
        """
        if self.position >= end:
            return []
        ranks, self.position = order.following(self.position, limit, end)
        return ranks

    def absorb(self, other: FilterScan) -> None:
        """Take over the sources of another scan that has reached the same position."""
        for source in list(other.sources.values()):
            hungry = source in other.hungry
            other.discard(source)
            self.add(source)
            if hungry:
                self.hungry[source] = None
        self._again += other._again
        heapify(self._again)
