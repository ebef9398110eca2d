"""Messages by the time at which they are due: to expire, or to be retried.

Times that are close together share a bucket, which keeps places as plain numbers, so that a million
messages that expire within a day cost some ten bytes each. Messages that have left the queue stay
until their time comes: `due` drops places to which the time does not apply any more (`moment_of`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

_SHIFT: Final = 20
"""A bucket covers about a second of microseconds."""

_MANY: Final = 1000
"""Limit of places in a bucket that is searched for the earliest."""


class TimerBuckets:
    """Places by their times."""

    def __init__(self, moment_of: Callable[[int], int]) -> None:
        """Start empty.

        Args:
            moment_of: returns the time of a place; 0 if nothing is due for it any more.
        """
        self._moment_of = moment_of
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []  # the buckets' numbers, as a heap
        self._next: int | None = None  # a time that is not later than the earliest
        self._round: int | None = None  # the bucket that is being processed
        self._unlooked = 0  # number of its first places still to be processed
        self._least = 0  # the earliest time of places that have stayed in it, or been added

    def add(self, place: int, moment: int) -> None:
        """Schedule a place at a time, which `moment_of` has to return, too."""
        number = moment >> _SHIFT
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._order, number)
        bucket.append(place)
        if number == self._round:
            self._least = min(self._least, moment)
        if self._next is None or moment < self._next:
            self._next = moment

    @property
    def next(self) -> int | None:
        """The time at which to call `due` next, None for never."""
        return self._next

    def are_overdue(self, now: int) -> bool:
        """Return whether places may have been due for about a second or longer."""
        return bool(self._order) and (self._order[0] + 1) << _SHIFT <= now

    def due(self, now: int, most: int) -> list[int]:
        """Remove and return places that are due.

        They are in the order of their times. If a bucket has more places than one call examines,
        the order holds within each call only.

        Args:
            now: the current time.
            most: limit of places to examine; the next calls examine the others.
        """
        if self._next is None or now < self._next:
            return []
        due: set[tuple[int, int]] = set()
        while most > 0 and self._order and self._order[0] << _SHIFT <= now:
            number = self._order[0]
            bucket = self._buckets[number]
            if self._round != number:
                self._round, self._unlooked = number, len(bucket)
                self._least = (number + 1) << _SHIFT
            some = min(most, self._unlooked)
            due.update(self._look_at(bucket, some, now))
            most -= some
            self._unlooked -= some
            if self._unlooked:
                self._next = number << _SHIFT
                break
            self._round = None
            if bucket:
                self._next = self._least
                break
            del self._buckets[number]
            heappop(self._order)
        else:
            self._next = self._earliest()
        return [place for _, place in sorted(due)]

    def _look_at(self, bucket: array[int], some: int, now: int) -> Iterator[tuple[int, int]]:
        """Remove the first places of a bucket; append those that are not due yet at its end."""
        places = bucket[:some]
        del bucket[:some]
        for place in places:
            moment = self._moment_of(place)
            if moment >> _SHIFT == self._round:
                if moment <= now:
                    yield moment, place
                else:
                    bucket.append(place)
                    self._least = min(self._least, moment)

    def _earliest(self) -> int | None:
        """Return the earliest time, or a lower bound of it if there are too many places."""
        if not self._order:
            return None
        number = self._order[0]
        bucket = self._buckets[number]
        if len(bucket) > _MANY:
            return number << _SHIFT
        moments = (self._moment_of(place) for place in bucket)
        return min((each for each in moments if each >> _SHIFT == number), default=number << _SHIFT)
