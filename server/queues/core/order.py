"""The order in which messages are delivered, as ascending numbers: ranks.

Without priorities, the rank of a message is its offset in the queue. With priorities, it is the
priority, highest first, followed by the offset. A rank contains the offset in both cases.

An order also finds the next messages: those behind a rank that are in a given state, usually the
available ones. In log order, the columns are searched for them. In priority order, there is a
sorted list of them.

Source: AMPS User Guide, Priority Queues: an unsigned long, descending; a value that is not a number
is lowest.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Final, Protocol

from sortedcontainers import SortedList

from server.queues.core.message_table import MessageTable

OFFSET_BITS: Final = 48
OFFSET: Final = (1 << OFFSET_BITS) - 1
"""Masks the offset out of a rank."""

START: Final = -1
"""Before all ranks."""

LAST: Final = 1 << 128
"""Behind all ranks."""

_MAX_UINT64: Final = 2**64 - 1


def stored_priority(value: float | None) -> int:
    """Return a priority as its column stores it: plus one, 0 if it is not a number.

    Fractions are cut off, negative numbers count as 0, and the two largest values are equal.
    """
    if value is None or math.isnan(value):
        return 0
    if value >= _MAX_UINT64:
        return _MAX_UINT64
    return int(value) + 1 if value > 0 else 1


class DeliveryOrder(Protocol):
    """The messages in one state, here *available*, in order of delivery."""

    def rank(self, offset: int) -> int:
        """Return the rank of a message that has not left the queue."""

    def add(self, offset: int, count: int = 1) -> None:
        """Add messages that have become available."""

    def discard(self, offset: int) -> None:
        """Remove a message that is not available any more."""

    def next_ranks(self, rank: int, limit: int, end: int) -> tuple[list[int], int]:
        """Return the available messages behind a rank.

        Args:
            rank: where to begin; not included.
            limit: the maximum number of ranks to return.
            end: the last rank to examine.

        Returns:
            The ranks in order, and the rank up to which all have been examined.
        """

    def count_before(self, offset: int) -> int:
        """Return the number of available messages before one."""


class LogOrder:
    """Log order: messages as they arrived.

    Args:
        entries: the messages.
        state: the state of the messages that belong to the order.
    """

    def __init__(self, entries: MessageTable, state: int) -> None:
        self._entries = entries
        self._state = state

    def rank(self, offset: int) -> int:
        """See `DeliveryOrder`."""
        return offset

    def add(self, offset: int, count: int = 1) -> None:
        """See `DeliveryOrder`; nothing is kept."""

    def discard(self, offset: int) -> None:
        """See `DeliveryOrder`; nothing is kept."""

    def next_ranks(self, rank: int, limit: int, end: int) -> tuple[list[int], int]:
        """See `DeliveryOrder`."""
        ranks = list(islice(self._entries.offsets_in(self._state, rank + 1, end), limit))
        return ranks, (ranks[-1] if len(ranks) == limit else end)

    def count_before(self, offset: int) -> int:
        """See `DeliveryOrder`."""
        return sum(1 for _ in self._entries.offsets_in(self._state, 0, offset - 1))


class PriorityOrder:
    """Priority order: the highest priority first; within a priority, as messages arrived."""

    def __init__(self, entries: MessageTable) -> None:
        self._entries = entries
        self._ranks: SortedList[int] = SortedList()

    def rank(self, offset: int) -> int:
        """See `DeliveryOrder`."""
        return ((_MAX_UINT64 - self._entries.priority(offset)) << OFFSET_BITS) | offset

    def add(self, offset: int, count: int = 1) -> None:
        """See `DeliveryOrder`."""
        self._ranks.update(map(self.rank, range(offset, offset + count)))

    def discard(self, offset: int) -> None:
        """See `DeliveryOrder`."""
        self._ranks.discard(self.rank(offset))

    def next_ranks(self, rank: int, limit: int, end: int) -> tuple[list[int], int]:
        """See `DeliveryOrder`."""
        ranks = list(islice(self._ranks.irange(rank, end, inclusive=(False, True)), limit))
        return ranks, (ranks[-1] if len(ranks) == limit else end)

    def count_before(self, offset: int) -> int:
        """See `DeliveryOrder`."""
        return self._ranks.bisect_left(self.rank(offset))
