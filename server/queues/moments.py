"""Messages by the moment at which something happens to them.

Moments that are close together share a bucket, which keeps places as plain numbers, so that a
million messages that expire within a day cost some ten bytes each. Messages that have left the
queue stay in until their moment comes: whoever asks checks that the moment is still theirs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

_SHIFT: Final = 20
"""A bucket is about a second of microseconds."""


class Moments:
    """Places by their moments."""

    def __init__(self, moment_of: Callable[[int], int]) -> None:
        """Begin without any.

        Args:
            moment_of: the moment of a place; 0 if nothing is to happen to it any more.
        """
        self._moment_of = moment_of
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []  # the buckets' numbers, as a heap
        self._next: int | None = None  # a moment that is not later than the earliest

    def add(self, place: int, moment: int) -> None:
        """Let something happen to a message at a moment, which `moment_of` tells, too."""
        number = moment >> _SHIFT
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._order, number)
        bucket.append(place)
        if self._next is None or moment < self._next:
            self._next = moment

    @property
    def next(self) -> int | None:
        """When to ask next, None if nothing is to happen."""
        return self._next

    def due(self, now: int) -> list[int]:
        """Places whose moment has come, in the order of the moments; they are taken out."""
        if self._next is None or now < self._next:
            return []
        due: list[tuple[int, int]] = []
        while self._order and self._order[0] << _SHIFT <= now:
            number = self._order[0]
            kept = array("Q")
            for place in self._buckets[number]:
                moment = self._moment_of(place)
                if moment >> _SHIFT != number:
                    continue
                if moment <= now:
                    due.append((moment, place))
                else:
                    kept.append(place)
            if kept:
                self._buckets[number] = kept
                break
            del self._buckets[number]
            heappop(self._order)
        self._next = self._earliest()
        return [place for _, place in sorted(set(due))]

    def _earliest(self) -> int | None:
        if not self._order:
            return None
        number = self._order[0]
        moments = (self._moment_of(place) for place in self._buckets[number])
        return min((each for each in moments if each >> _SHIFT == number), default=number << _SHIFT)
