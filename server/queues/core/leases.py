"""Leases: which consumer has which messages, and until when.

Messages that are delivered to a consumer at once share a lease, because the cost of ending leases
is proportional to their number. They are in a heap. A fully acknowledged lease stays there
without its places until it reaches the top, or until there are too many such leases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from server.queues.core.consumers import ConsumerSlot
from server.util.histogram import Histogram

_SOME: Final = 256


class Lease:
    """Messages that one consumer got at one time.

    Attributes:
        seat: the consumer's seat.
        since: when they were delivered.
        until: when they return to the queue; None for never.
        places: of the messages that were delivered; some may be acknowledged.
        open: number of messages that are still under the lease.
    """

    __slots__ = ("open", "places", "seat", "since", "until")

    def __init__(
        self, seat: ConsumerSlot, since: int, until: int | None, places: Sequence[int]
    ) -> None:
        self.seat = seat
        self.since = since
        self.until = until
        self.places = places
        self.open = len(places)


class Leases:
    """The leases of one queue.

    Attributes:
        by_place: the lease of every leased message.
        held: for how long consumers had messages that they acknowledged, in microseconds.
    """

    def __init__(self) -> None:
        self.by_place: dict[int, Lease] = {}
        self.held: Final = Histogram()
        self._heap: list[tuple[int, int, Lease]] = []
        self._count = 0
        self._void = 0  # leases in the heap without open messages

    def __len__(self) -> int:
        return len(self.by_place)

    def add(self, lease: Lease) -> None:
        """Register a new lease, which replaces older ones on its messages."""
        self.by_place.update(dict.fromkeys(lease.places, lease))
        if lease.until is not None:
            self._count += 1
            heappush(self._heap, (lease.until, self._count, lease))

    def renew(self, seat: ConsumerSlot, now: int, until: int, places: Sequence[int]) -> None:
        """Change the end of leases of one consumer; the new lease keeps their earliest start."""
        since = now
        for place in places:
            before = self.by_place[place]
            since = min(since, before.since)
            self.close(before)
        self.add(Lease(seat, since, until, places))

    def end(self, place: int) -> Lease | None:
        """End the lease on a message.

        Returns:
            The lease, None if the message was not leased.
        """
        lease = self.by_place.pop(place, None)
        if lease is not None:
            self.close(lease)
        return lease

    def of(self, places: Sequence[int]) -> list[Lease | None]:
        """Return the leases on messages, None for messages that are not leased."""
        return list(map(self.by_place.get, places))

    def end_all(self, places: Sequence[int], now: int) -> None:
        """End the leases on messages that have been acknowledged; all of them were leased."""
        ended = list(map(self.by_place.pop, places))
        for lease in set(ended):
            count = ended.count(lease)
            self.held.add(max(now - lease.since, 0), count)
            self.close(lease, count)

    def close(self, lease: Lease, count: int = 1) -> None:
        """Release `count` messages from a lease."""
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
        """The time at which the next lease ends, None for never."""
        heap = self._heap
        while heap and not heap[0][2].open:
            heappop(heap)
            self._void -= 1
        return heap[0][0] if heap else None

    def due(self, now: int, most: int) -> Iterator[int]:
        """Yield places of leases that have timed out; the caller ends the leases.

        Args:
            now: the current time.
            most: number of places after which no further lease is started.
        """
        while most > 0 and (moment := self.next) is not None and moment <= now:
            lease = heappop(self._heap)[2]
            most -= len(lease.places)
            for place in list(lease.places):
                if self.by_place.get(place) is lease:
                    yield place

    def oldest(self) -> int | None:
        """Return the start of the lease on the message that was leased first; None for none."""
        first = next(iter(self.by_place.values()), None)
        return None if first is None else first.since
