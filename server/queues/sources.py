"""Where consumers' messages come from: what is known to match which filter.

Theory of operation. Consumers with the same filter share one source, and all without a filter share
another. A source has the ranks that are known to match and were available when they were found, as
a heap; what is not available any more is dropped when it surfaces. So a consumer with room gets its
next message without a search.

Sources find messages by scans. A scan goes once through the available messages, from the first rank
on, and matches each one against the filters of all its sources together. It goes on only as long as
one of these is hungry: has a consumer with room, and nothing for it. So a consumer that wants ten
messages of a million has as many matched as it takes to find ten, and one whose filter matches
nothing has each message matched once. A new filter begins a scan of its own at the first rank; when
a scan comes to where another one stands, the two become one. So in the long run there is one,
at the end, and a message is matched once, when it comes.

A message that becomes available behind the rank where a scan stands (it came back, or came with a
high priority) is matched again by that scan, before the scan goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from server.queues.fairness import Rota
from server.queues.order import PLACE, START, Order


class UnmatchedError(Exception):
    """Messages cannot be looked at for the moment. Nothing is known of them yet."""


class Matching(Protocol):
    """Decides which filters a message matches. What a filter is, is the caller's affair."""

    def add(self, content_filter: Hashable) -> None:
        """Decide a filter from now on."""

    def discard(self, content_filter: Hashable) -> None:
        """Decide a filter no more."""

    def may_change(self, content_filter: Hashable) -> bool:
        """Whether a message that comes back may match a filter now and not before, or no more."""

    def match(self, txids: Sequence[int]) -> Sequence[Collection[Hashable]]:
        """For each message the filters that it matches; none for a body that is none.

        Raises:
            UnmatchedError: it cannot be told now. It is asked again with the next `deliver`.
        """


class Source:
    """The messages for all consumers with one filter.

    Attributes:
        filter: the filter, None for none.
        rota: its consumers, by their turns.
        scan: the scan that finds messages for it.
        seats: how many consumers there are.
        found: ranks that match, as a heap; some may not be available any more.
        may_change: whether a message that comes back may match no more.
    """

    __slots__ = ("filter", "found", "may_change", "order", "rota", "scan", "seats")

    def __init__(self, content_filter: Hashable | None, rota: Rota, order: int) -> None:
        self.filter = content_filter
        self.rota = rota
        self.order = order
        self.scan: Scan
        self.seats = 0
        self.found: list[int] = []
        self.may_change = False

    def forget(self, rank: int) -> None:
        """It is not known any more whether a message matches, if it was."""
        if rank in self.found:
            self.found = [each for each in self.found if each != rank]
            heapify(self.found)

    def head(self, is_available: Callable[[int], bool]) -> int | None:
        """The first rank that is available and known to match; None if there is none."""
        found = self.found
        while found:
            if is_available(found[0] & PLACE):
                return found[0]
            heappop(found)
        return None


class Scan:
    """One passage through the available messages, for some filters.

    Args:
        matching: decides the filters; None for the scan of the source without a filter.

    Attributes:
        position: everything up to this rank has been matched.
        sources: by filter.
        hungry: sources that may have a consumer with room and have nothing for it.
        matched: messages that have been matched.
    """

    __slots__ = ("_again", "hungry", "matched", "matching", "position", "sources")

    def __init__(self, matching: Matching | None) -> None:
        self.matching = matching
        self.position = START
        self.sources: dict[Hashable | None, Source] = {}
        self.hungry: dict[Source, None] = {}
        self.matched = 0
        self._again: list[int] = []

    def add(self, source: Source) -> None:
        """Find messages for a source from now on."""
        self.sources[source.filter] = source
        source.scan = self
        if self.matching is not None:
            self.matching.add(source.filter)
            source.may_change = self.matching.may_change(source.filter)

    def discard(self, source: Source) -> None:
        """Find no more messages for a source."""
        del self.sources[source.filter]
        self.hungry.pop(source, None)
        if self.matching is not None:
            self.matching.discard(source.filter)

    def again(self, rank: int) -> None:
        """A message is available whose rank is not ahead: match it again."""
        heappush(self._again, rank)
        for source in self.sources.values():
            if source.may_change:
                source.forget(rank)
                self.hungry[source] = None

    @property
    def has_again(self) -> bool:
        """Whether something is to be matched again."""
        return bool(self._again)

    def is_hungry(self, is_available: Callable[[int], bool]) -> bool:
        """Whether some consumer waits for what this scan may find."""
        while self.hungry:
            source = next(iter(self.hungry))
            if source.rota.best() is not None and source.head(is_available) is None:
                return True
            del self.hungry[source]
        return False

    def take_again(self, limit: int, is_available: Callable[[int], bool]) -> list[int]:
        """Ranks to be matched again, at most so many."""
        ranks: list[int] = []
        while self._again and len(ranks) < limit:
            rank = heappop(self._again)
            if is_available(rank & PLACE) and (not ranks or ranks[-1] != rank):
                ranks.append(rank)
        return ranks

    def step(self, order: Order, end: int, limit: int) -> list[int]:
        """Go on.

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

    def absorb(self, other: Scan) -> None:
        """Do another scan's work, too, that has come to the same position."""
        for source in list(other.sources.values()):
            hungry = source in other.hungry
            other.discard(source)
            self.add(source)
            if hungry:
                self.hungry[source] = None
        self._again += other._again
        heapify(self._again)
