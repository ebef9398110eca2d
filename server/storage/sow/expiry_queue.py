"""Expiry of records: a heap of times, in which the entries voided by updates remain."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable


class ExpiryQueue:
    """Rows by expiry time; times are nanoseconds since 1970, 0 for never."""

    __slots__ = ("_expiry_by_row", "_heap")

    def __init__(self, rows: Iterable[tuple[int, int]] = ()) -> None:
        """Initialize the queue with rows and their times."""
        self._expiry_by_row = {row: expiry for row, expiry in rows if expiry}
        self._heap = [(expiry, row) for row, expiry in self._expiry_by_row.items()]
        heapq.heapify(self._heap)

    def set(self, row: int, expiry: int) -> None:
        """Set the expiry time of a row; it replaces the earlier one."""
        if expiry:
            self._expiry_by_row[row] = expiry
            heapq.heappush(self._heap, (expiry, row))
            if len(self._heap) > 2 * len(self._expiry_by_row) + 1024:
                self._heap = [(expiry, row) for row, expiry in self._expiry_by_row.items()]
                heapq.heapify(self._heap)
        elif self._expiry_by_row:
            self._expiry_by_row.pop(row, None)

    @property
    def latest_expiry(self) -> int:
        """The latest time, 0 if nothing expires."""
        return max(self._expiry_by_row.values(), default=0)

    def remap_times(self, new_time: Callable[[int, int], int]) -> None:
        """Change all times.

        Args:
            new_time: returns the new time for a row and its old one; never 0.
        """
        self._expiry_by_row = {
            row: new_time(row, expiry) for row, expiry in self._expiry_by_row.items()
        }
        self._heap = [(expiry, row) for row, expiry in self._expiry_by_row.items()]
        heapq.heapify(self._heap)

    def next_expiry(self) -> int | None:
        """Return the earliest time, None if nothing expires."""
        heap = self._heap
        while heap and self._expiry_by_row.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def find_due(self, now: int) -> int | None:
        """Return a row that has expired, None if there is none; it stays until it is `set`."""
        expiry = self.next_expiry()
        return self._heap[0][1] if expiry is not None and expiry <= now else None
