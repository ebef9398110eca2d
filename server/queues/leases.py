"""Which consumer has which messages, and until when.

Messages that are delivered to a consumer in one go share a lease. What costs something when leases
end is their number, so they are in a heap, and one that has been acknowledged as a whole is left
there without its places until it surfaces or there are too many of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from server.base.histogram import Histogram
from server.queues.consumers import Seat

_SOME: Final = 256


class Lease:
    """Messages that one consumer got at one time.

    Attributes:
        seat: who has them.
        since: when they were delivered.
        until: when they come back; None for never.
        places: of the messages that were delivered; some may be acknowledged.
        open: how many are not.
    """

    __slots__ = ("open", "places", "seat", "since", "until")

    def __init__(self, seat: Seat, since: int, until: int | None, places: Sequence[int]) -> None:
        self.seat = seat
        self.since = since
        self.until = until
        self.places = places
        self.open = len(places)


class Leases:
    """The leases of one queue.

    Attributes:
        by_place: of every message that somebody has.
        held: how long messages were with consumers that acknowledged them, in microseconds.
    """

    def __init__(self) -> None:
        self.by_place: dict[int, Lease] = {}
        self.held: Final = Histogram()
        self._heap: list[tuple[int, int, Lease]] = []
        self._count = 0
        self._void = 0  # leases in the heap that nothing is open of

    def __len__(self) -> int:
        return len(self.by_place)

    def add(self, lease: Lease) -> None:
        """Take note of a new lease, in place of older ones on its messages."""
        self.by_place.update(dict.fromkeys(lease.places, lease))
        if lease.until is not None:
            self._count += 1
            heappush(self._heap, (lease.until, self._count, lease))

    def renew(self, seat: Seat, now: int, until: int, places: Sequence[int]) -> None:
        """Let leases that a consumer has end at another moment; they begin when they began."""
        since = now
        for place in places:
            before = self.by_place[place]
            since = min(since, before.since)
            self.close(before)
        self.add(Lease(seat, since, until, places))

    def end(self, place: int) -> Lease | None:
        """A message is not leased any more.

        Returns:
            The lease that it was under, None if it was under none.
        """
        lease = self.by_place.pop(place, None)
        if lease is not None:
            self.close(lease)
        return lease

    def of(self, places: Sequence[int]) -> list[Lease | None]:
        """The leases that messages are under, None for those that are under none."""
        return list(map(self.by_place.get, places))

    def end_all(self, places: Sequence[int], now: int) -> None:
        """Messages have been acknowledged; all of them were leased."""
        ended = list(map(self.by_place.pop, places))
        for lease in set(ended):
            count = ended.count(lease)
            self.held.add(max(now - lease.since, 0), count)
            self.close(lease, count)

    def close(self, lease: Lease, count: int = 1) -> None:
        """So many messages less are under a lease."""
        lease.open -= count
        if not lease.open:
            lease.places = ()
            if lease.until is not None:
                self._void += 1
                if self._void > len(self._heap) // 2 + _SOME:
                    self._heap = [entry for entry in self._heap if entry[2].open]
                    heapify(self._heap)
                    self._void = 0

    @property
    def next(self) -> int | None:
        """When the next lease ends, None for never."""
        heap = self._heap
        while heap and not heap[0][2].open:
            heappop(heap)
            self._void -= 1
        return heap[0][0] if heap else None

    def due(self, now: int, most: int) -> Iterator[int]:
        """Places whose lease has ended; the caller ends them.

        Args:
            now: the moment.
            most: after how many places no other lease is begun with.
        """
        while most > 0 and (moment := self.next) is not None and moment <= now:
            lease = heappop(self._heap)[2]
            most -= len(lease.places)
            for place in list(lease.places):
                if self.by_place.get(place) is lease:
                    yield place

    def oldest(self) -> int | None:
        """When the lease was given of the message that was leased first; None if there is none."""
        first = next(iter(self.by_place.values()), None)
        return None if first is None else first.since
