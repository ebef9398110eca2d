"""Messages by the time at which they are due: to expire, or to be retried.

Times that are close together share a bucket, which has offsets as plain numbers, so that a million
messages that expire within a day cost some ten bytes each. Messages that have left the queue stay
until their time: `pop_due` drops offsets to which the time does not apply any more (`time_of`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

_SHIFT: Final = 20
"""A bucket covers about a second of microseconds."""

_MAX_SEARCHED: Final = 1000
"""Limit of offsets in a bucket that is searched for the earliest."""


class TimerBuckets:
    """Offsets by their times."""

    def __init__(self, time_of: Callable[[int], int]) -> None:
        """Start empty.

        Args:
            time_of: returns the time of an offset; 0 if nothing is due for it any more.
        """
        self._time_of = time_of
        self._buckets: dict[int, array[int]] = {}
        self._bucket_heap: list[int] = []  # the buckets' numbers, as a heap
        self._next_deadline: int | None = None  # a time that is not later than the earliest
        self._current_bucket: int | None = None  # the bucket that is being processed
        self._unexamined_count = 0  # number of its first offsets still to be processed
        self._bucket_earliest = 0  # the earliest time of offsets that stayed in it, or were added

    def add(self, offset: int, time: int) -> None:
        """Schedule an offset at a time, which `time_of` has to return, too."""
        number = time >> _SHIFT
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = array("Q")
            heappush(self._bucket_heap, number)
        bucket.append(offset)
        if number == self._current_bucket:
            self._bucket_earliest = min(self._bucket_earliest, time)
        if self._next_deadline is None or time < self._next_deadline:
            self._next_deadline = time

    @property
    def next_deadline(self) -> int | None:
        """The time at which to call `pop_due` next, None for never."""
        return self._next_deadline

    def has_overdue(self, now: int) -> bool:
        """Return whether offsets may have been due for about a second or longer."""
        return bool(self._bucket_heap) and (self._bucket_heap[0] + 1) << _SHIFT <= now

    def pop_due(self, now: int, limit: int) -> list[int]:
        """Remove and return offsets that are due.

        They are in the order of their times. If a bucket has more offsets than one call examines,
        the order holds within each call only.

        Args:
            now: the current time.
            limit: limit of offsets to examine; the next calls examine the others.
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
        return [offset for _, offset in sorted(due)]

    def _pop_due_from(self, bucket: array[int], count: int, now: int) -> Iterator[tuple[int, int]]:
        """Remove the first offsets of a bucket; append those that are not due yet at its end."""
        offsets = bucket[:count]
        del bucket[:count]
        for offset in offsets:
            time = self._time_of(offset)
            if time >> _SHIFT == self._current_bucket:
                if time <= now:
                    yield time, offset
                else:
                    bucket.append(offset)
                    self._bucket_earliest = min(self._bucket_earliest, time)

    def _earliest(self) -> int | None:
        """Return the earliest time, or a lower bound of it if there are too many offsets."""
        if not self._bucket_heap:
            return None
        number = self._bucket_heap[0]
        bucket = self._buckets[number]
        if len(bucket) > _MAX_SEARCHED:
            return number << _SHIFT
        times = (self._time_of(offset) for offset in bucket)
        return min((each for each in times if each >> _SHIFT == number), default=number << _SHIFT)
