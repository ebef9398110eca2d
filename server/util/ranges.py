"""Sets of numbers as ranges: numbers that are missing, or in progress."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """A set of numbers that are mostly consecutive.

    Args:
        pairs: the first and the last number of each initial range.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in pairs:
            self.add(first, last)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Return an iterator over the first and the last number of each range, ascending."""
        return zip(self._firsts, self._lasts, strict=True)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.overlaps(number, number)

    @property
    def first(self) -> int | None:
        """The lowest number; None if there is none."""
        return self._firsts[0] if self._firsts else None

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether any number from `first` to `last` is in the set."""
        index = bisect_left(self._lasts, first)
        return index < len(self._firsts) and self._firsts[index] <= last

    def add(self, first: int, last: int) -> None:
        """Add all numbers from `first` to `last`."""
        firsts, lasts = self._firsts, self._lasts
        if not lasts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return
        start = bisect_left(lasts, first - 1)
        end = bisect_right(firsts, last + 1)
        if start < end:
            first = min(first, firsts[start])
            last = max(last, lasts[end - 1])
        firsts[start:end] = [first]
        lasts[start:end] = [last]

    def remove(self, first: int, last: int) -> None:
        """Remove all numbers from `first` to `last`."""
        firsts, lasts = self._firsts, self._lasts
        start = bisect_left(lasts, first)
        end = bisect_right(firsts, last)
        if start >= end:
            return
        before, behind = firsts[start], lasts[end - 1]
        new_firsts, new_lasts = [], []
        if before < first:
            new_firsts.append(before)
            new_lasts.append(first - 1)
        if behind > last:
            new_firsts.append(last + 1)
            new_lasts.append(behind)
        firsts[start:end] = new_firsts
        lasts[start:end] = new_lasts

    def pop_first(self) -> tuple[int, int]:
        """Remove and return the lowest range."""
        return self._firsts.pop(0), self._lasts.pop(0)
