"""The order in which messages are delivered, as numbers that rise: ranks.

Without priorities a message's rank is its place in the queue. With them, it is the priority, from
the highest down, followed by the place. The place can be read off a rank in both cases.

An order also finds what comes next: the messages behind a rank that are in a state, as a rule the
available ones. In the order of the log these are searched for in the columns. In the order of
priority there is a sorted list of them.

Source: AMPS User Guide, Priority Queues: an unsigned long, descending; what is no number is lowest.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Final, Protocol

from sortedcontainers import SortedList

from server.queues.entries import Entries

PLACE_BITS: Final = 48
PLACE: Final = (1 << PLACE_BITS) - 1
"""Masks the place out of a rank."""

START: Final = -1
"""Before all ranks."""

LAST: Final = 1 << 128
"""Behind all ranks."""

_HIGHEST: Final = 2**64 - 1


def stored_priority(value: float | None) -> int:
    """A priority as its column keeps it: one more than itself, 0 for what is no number.

    Fractions are cut off, negative numbers count as 0, and the largest two as one.
    """
    if value is None or math.isnan(value):
        return 0
    if value >= _HIGHEST:
        return _HIGHEST
    return int(value) + 1 if value > 0 else 1


class Order(Protocol):
    """What is in one state, here *available*, in order of delivery."""

    def rank(self, place: int) -> int:
        """The rank of a message that has not left the queue."""

    def add(self, place: int, count: int = 1) -> None:
        """Messages have become available."""

    def discard(self, place: int) -> None:
        """A message is not available any more."""

    def following(self, rank: int, limit: int, end: int) -> tuple[list[int], int]:
        """What is available behind a rank.

        Args:
            rank: where to begin; not included.
            limit: ranks to return at most.
            end: the last rank to look at.

        Returns:
            The ranks in order, and the rank up to which all have been seen.
        """

    def ahead_of(self, place: int) -> int:
        """How many available messages go before one."""


class LogOrder:
    """As messages came.

    Args:
        entries: the messages.
        state: those that count are in.
    """

    def __init__(self, entries: Entries, state: int) -> None:
        self._entries = entries
        self._state = state

    def rank(self, place: int) -> int:
        """See `Order`."""
        return place

    def add(self, place: int, count: int = 1) -> None:
        """See `Order`; nothing is kept."""

    def discard(self, place: int) -> None:
        """See `Order`; nothing is kept."""

    def following(self, rank: int, limit: int, end: int) -> tuple[list[int], int]:
        """See `Order`."""
        found = list(islice(self._entries.places_in(self._state, rank + 1, end), limit))
        return found, (found[-1] if len(found) == limit else end)

    def ahead_of(self, place: int) -> int:
        """See `Order`."""
        return sum(1 for _ in self._entries.places_in(self._state, 0, place - 1))


class PriorityOrder:
    """The highest priority first; at one priority, as messages came."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._ranks: SortedList[int] = SortedList()

    def rank(self, place: int) -> int:
        """See `Order`."""
        return ((_HIGHEST - self._entries.priority(place)) << PLACE_BITS) | place

    def add(self, place: int, count: int = 1) -> None:
        """See `Order`."""
        self._ranks.update(map(self.rank, range(place, place + count)))

    def discard(self, place: int) -> None:
        """See `Order`."""
        self._ranks.discard(self.rank(place))

    def following(self, rank: int, limit: int, end: int) -> tuple[list[int], int]:
        """See `Order`."""
        found = list(islice(self._ranks.irange(rank, end, inclusive=(False, True)), limit))
        return found, (found[-1] if len(found) == limit else end)

    def ahead_of(self, place: int) -> int:
        """See `Order`."""
        return self._ranks.bisect_left(self.rank(place))
