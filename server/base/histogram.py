"""How values are distributed, by powers of two: counted at the cost of one addition."""

from __future__ import annotations

from typing import Final

_RANGES: Final = 64


class Histogram:
    """Counts whole numbers by their size.

    Written by one thread; others may read it at any time, and see each number a moment late.

    Attributes:
        counts: how many there were in each range; range n has the numbers from 2**(n - 1) up to,
            and without, 2**n, and range 0 the zeros. What is beyond all ranges is in the last one.
        total: the sum of all numbers.
        least: the smallest of them; None as long as there is none.
        most: the largest of them.
    """

    __slots__ = ("counts", "least", "most", "total")

    def __init__(self) -> None:
        self.counts = [0] * (_RANGES + 1)
        self.total = 0
        self.least: int | None = None
        self.most = 0

    def add(self, number: int, times: int = 1) -> None:
        """Count a number, which is not below 0, so many times."""
        self.counts[min(number.bit_length(), _RANGES)] += times
        self.total += number * times
        if self.least is None or number < self.least:
            self.least = number
        if number > self.most:
            self.most = number
