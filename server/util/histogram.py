"""A histogram by powers of two: counting a value costs one addition."""

from __future__ import annotations

from typing import Final

_RANGES: Final = 64


class Histogram:
    """Counts whole numbers by their size.

    Written by one thread; others may read it at any time, and see each number a moment late.

    Attributes:
        counts: the number of values per range; range n has the numbers from 2**(n - 1) up to, and
            without, 2**n, and range 0 the zeros. The last one also has numbers beyond all ranges.
        total: the sum of all numbers.
        minimum: the smallest number; None as long as there is none.
        maximum: the largest number.
    """

    __slots__ = ("counts", "maximum", "minimum", "total")

    def __init__(self) -> None:
        self.counts = [0] * (_RANGES + 1)
        self.total = 0
        self.minimum: int | None = None
        self.maximum = 0

    def add(self, number: int, times: int = 1) -> None:
        """Count a number, which must not be negative, `times` times."""
        self.counts[min(number.bit_length(), _RANGES)] += times
        self.total += number * times
        if self.minimum is None or number < self.minimum:
            self.minimum = number
        if number > self.maximum:
            self.maximum = number
