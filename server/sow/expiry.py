"""When records expire: a heap of moments, with entries that updates have made void left in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable


class ExpiryQueue:
    """Rows by the moment at which they expire; moments are nanoseconds since 1970, 0 for never."""

    __slots__ = ("_heap", "_moments")

    def __init__(self, rows: Iterable[tuple[int, int]] = ()) -> None:
        """Begin with rows and their moments."""
        self._moments = {row: moment for row, moment in rows if moment}
        self._heap = [(moment, row) for row, moment in self._moments.items()]
        heapq.heapify(self._heap)

    def set(self, row: int, moment: int) -> None:
        """Let a row expire at a moment, and no longer at another."""
        if moment:
            self._moments[row] = moment
            heapq.heappush(self._heap, (moment, row))
            if len(self._heap) > 2 * len(self._moments) + 1024:
                self._heap = [(moment, row) for row, moment in self._moments.items()]
                heapq.heapify(self._heap)
        elif self._moments:
            self._moments.pop(row, None)

    @property
    def latest(self) -> int:
        """The latest moment, 0 if nothing expires."""
        return max(self._moments.values(), default=0)

    def move(self, by: Callable[[int, int], int]) -> None:
        """Change all moments.

        Args:
            by: gives the new moment for a row and its old one; never 0.
        """
        self._moments = {row: by(row, moment) for row, moment in self._moments.items()}
        self._heap = [(moment, row) for row, moment in self._moments.items()]
        heapq.heapify(self._heap)

    def next(self) -> int | None:
        """The earliest moment, None if nothing expires."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: int) -> int | None:
        """A row whose moment has come, None if there is none; it stays until it is `set`."""
        moment = self.next()
        return self._heap[0][1] if moment is not None and moment <= now else None
