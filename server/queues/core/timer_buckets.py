"""Messages by the time at which they are due: to expire, or to be retried.

Times that are close together share a bucket, which keeps places as plain numbers, so that a million
messages that expire within a day cost some ten bytes each. Messages that have left the queue stay
until their time: `pop_due` drops places to which the time does not apply any more (`time_of`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

_SHIFT: Final = 20
"""A bucket covers about a second of microseconds."""

_MAX_SEARCHED: Final = 1000
"""Limit of places in a bucket that is searched for the earliest."""


class TimerBuckets:
    """Places by their times."""

    def __init__(self, time_of: Callable[[int], int]) -> None:
        """Start empty.

        Args:
            time_of: returns the time of a place; 0 if nothing is due for it any more.
        """
        self._time_of = time_of
        self._buckets: dict[int, array[int]] = {}
        self._bucket_heap: list[int] = []  # the buckets' numbers, as a heap
        self._next_deadline: int | None = None  # a time that is not later than the earliest
        self._current_bucket: int | None = None  # the bucket that is being processed
        self._unexamined_count = 0  # number of its first places still to be processed
        self._bucket_earliest = 0  # the earliest time of places that stayed in it, or were added

    def add(self, place: int, moment: int) -> None:
        """Schedule a place at a time, which `time_of` has to return, too."""
        number = moment >> _SHIFT
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._bucket_heap, number)
        bucket.append(place)
        if number == self._current_bucket:
            self._bucket_earliest = min(self._bucket_earliest, moment)
        if self._next_deadline is None or moment < self._next_deadline:
            self._next_deadline = moment

    @property
    def next_deadline(self) -> int | None:
        """The time at which to call `pop_due` next, None for never."""
        return self._next_deadline

    def has_overdue(self, now: int) -> bool:
        """Return whether places may have been due for about a second or longer."""
        return bool(self._bucket_heap) and (self._bucket_heap[0] + 1) << _SHIFT <= now

    def pop_due(self, now: int, limit: int) -> list[int]:
        """Remove and return places that are due.

        They are in the order of their times. If a bucket has more places than one call examines,
        the order holds within each call only.

        Args:
            now: the current time.
            limit: limit of places to examine; the next calls examine the others.
        """
        if self._next_deadline is None or now < self._next_deadline:
            return []
        due: set[tuple[int, int]] = set()
        while limit > 0 and self._bucket_heap and self._bucket_heap[0] << _SHIFT <= now:
            number = self._bucket_heap[0]
            bucket = self._buckets[number]
            if self._current_bucket != number:
                self._current_bucket, self._unexamined_count = number, len(bucket)
                self._bucket_earliest = (number + 1) << _SHIFT
            count = min(limit, self._unexamined_count)
            due.update(self._pop_due_from(bucket, count, now))
            limit -= count
            self._unexamined_count -= count
            if self._unexamined_count:
                self._next_deadline = number << _SHIFT
                break
            self._current_bucket = None
            if bucket:
                self._next_deadline = self._bucket_earliest
                break
            del self._buckets[number]
            heappop(self._bucket_heap)
        else:
            self._next_deadline = self._earliest()
        return [place for _, place in sorted(due)]

    def _pop_due_from(self, bucket: array[int], count: int, now: int) -> Iterator[tuple[int, int]]:
        """Remove the first places of a bucket; append those that are not due yet at its end."""
        places = bucket[:count]
        del bucket[:count]
        for place in places:
            moment = self._time_of(place)
            if moment >> _SHIFT == self._current_bucket:
                if moment <= now:
                    yield moment, place
                else:
                    bucket.append(place)
                    self._bucket_earliest = min(self._bucket_earliest, moment)

    def _earliest(self) -> int | None:
        """Return the earliest time, or a lower bound of it if there are too many places."""
        if not self._bucket_heap:
            return None
        number = self._bucket_heap[0]
        bucket = self._buckets[number]
        if len(bucket) > _MAX_SEARCHED:
            return number << _SHIFT
        moments = (self._time_of(place) for place in bucket)
        return min((each for each in moments if each >> _SHIFT == number), default=number << _SHIFT)
