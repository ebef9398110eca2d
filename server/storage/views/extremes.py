"""The minimum or maximum of values that are added and removed.

Values of one type have a total order. Each type has its own heap: the requested value is always on
top, adding takes logarithmic time, and removed values are discarded when they reach the top. Values
of different types have no total order by `<` (AMPS compares '9' and 10 as numbers, but '9' and '10'
as texts), so only the tops are compared: the minimum of all is the minimum of the types' minimums.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from operator import neg, not_
from typing import Any, Final, NamedTuple

from server.message_types.base import Value
from server.util.encoding import DescendingBytes, bytes_to_text, text_to_bytes

_MIN_REBUILT: Final = 16
"""Number of removed values that a heap may always hold before it is rebuilt."""


class _Order(NamedTuple):
    """The conversions of a type's values to and from heap entries."""

    to_entry: Callable[[Any], Any]
    from_entry: Callable[[Any], Value]


def _descending(text: str) -> DescendingBytes:
    return DescendingBytes(text_to_bytes(text))


def _ascending(entry: DescendingBytes) -> str:
    return bytes_to_text(entry.octets)


def _identity(value: Any) -> Any:
    return value


_ORDERS: Final[dict[bool, dict[type, _Order]]] = {
    False: {
        bool: _Order(_identity, _identity),
        int: _Order(_identity, _identity),
        float: _Order(_identity, _identity),
        str: _Order(text_to_bytes, bytes_to_text),
    },
    True: {
        bool: _Order(not_, not_),
        int: _Order(neg, neg),
        float: _Order(neg, neg),
        str: _Order(_descending, _ascending),
    },
}


class ExtremeHeap:
    """A multiset of values of one type, with fast access to the first one in their order.

    Args:
        kind: the type: `bool`, `int`, `float` (without NaN) or `str`.
        greatest: the greatest value comes first, not the least.
    """

    __slots__ = ("_counts", "_heap", "_order")

    def __init__(self, kind: type, *, greatest: bool) -> None:
        self._order = _ORDERS[greatest][kind]
        self._counts: dict[Hashable, int] = {}
        self._heap: list[Any] = []

    def __bool__(self) -> bool:
        """Return True if there is any value."""
        return bool(self._counts)

    def add(self, value: Value) -> None:
        """Add a value."""
        entry = self._order.to_entry(value)
        count = self._counts.get(entry, 0)
        self._counts[entry] = count + 1
        if not count:
            heappush(self._heap, entry)

    def remove(self, value: Value) -> None:
        """Remove a value that was added."""
        entry = self._order.to_entry(value)
        counts = self._counts
        if counts[entry] > 1:
            counts[entry] -= 1
            return
        del counts[entry]
        if len(self._heap) > 2 * len(counts) + _MIN_REBUILT:
            self._heap = list(counts)
            heapify(self._heap)

    def merge(self, other: ExtremeHeap) -> None:
        """Add all values of another heap of the same type and order."""
        for entry, count in other._counts.items():
            self._counts[entry] = self._counts.get(entry, 0) + count
        self._heap = list(self._counts)
        heapify(self._heap)

    def first(self) -> Value:
        """Return the first value in their order; there has to be one."""
        heap, counts = self._heap, self._counts
        while heap[0] not in counts:
            heappop(heap)
        return self._order.from_entry(heap[0])
