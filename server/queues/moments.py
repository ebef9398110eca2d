"""Messages by the moment at which something happens to them.

Moments that are close together share a bucket, which keeps places as plain numbers, so that a
million messages that expire within a day cost some ten bytes each. Messages that have left the
queue stay in until their moment comes: whoever asks checks that the moment is still theirs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

_SHIFT: Final = 20
"""A bucket is about a second of microseconds."""

_MANY: Final = 1000
"""Places in a bucket of which it is not looked for the earliest."""


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
        self._round: int | None = None  # the bucket that is being looked through
        self._unlooked = 0  # how many of its first places have still to be looked at
        self._least = 0  # the earliest moment of those that have stayed in it, or come

    def add(self, place: int, moment: int) -> None:
        """Let something happen to a message at a moment, which `moment_of` tells, too."""
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
        """When to ask next, None if nothing is to happen."""
        return self._next

    def are_overdue(self, now: int) -> bool:
        """Whether there may be places whose moment came about a second ago, or earlier."""
        return bool(self._order) and (self._order[0] + 1) << _SHIFT <= now

    def due(self, now: int, most: int) -> list[int]:
        """Places whose moment has come; they are taken out.

        They come in the order of their moments; of a bucket with more than are looked at in one go,
        those of each go.

        Args:
            now: the moment.
            most: how many are looked at; the others are with the next calls.
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
        """Take the first of a bucket out; those whose moment is still to come go to its end."""
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
        """A moment that is not later than the earliest; that one, if there are not too many."""
        if not self._order:
            return None
        number = self._order[0]
        bucket = self._buckets[number]
        if len(bucket) > _MANY:
            return number << _SHIFT
        moments = (self._moment_of(place) for place in bucket)
        return min((each for each in moments if each >> _SHIFT == number), default=number << _SHIFT)
