"""Leases: which consumer has which messages, and until when.

Messages that are delivered to a consumer at once share a lease, because the cost of ending leases
is proportional to their number. They are in a heap. A fully acknowledged lease stays there
without its offsets until it reaches the top, or until there are too many such leases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from server.queues.core.consumers import ConsumerSlot
from server.util.histogram import Histogram

_MIN_COMPACTED: Final = 256


class Lease:
    """Messages that one consumer got at one time.

    Attributes:
        slot: the consumer's slot.
        leased_at: when they were delivered.
        expires_at: when they return to the queue; None for never.
        offsets: of the messages that were delivered; some may be acknowledged.
        open_count: number of messages that are still under the lease.
    """

    def __init__(
        self, slot: ConsumerSlot, leased_at: int, expires_at: int | None, offsets: Sequence[int]
    ) -> None:
        self.slot = slot
        self.leased_at = leased_at
        self.expires_at = expires_at
        self.offsets = offsets
        self.open_count = len(offsets)


class Leases:
    """The leases of one queue.

    Attributes:
        by_offset: the lease of every leased message.
        hold_times_us: for how long consumers had messages that they acknowledged, in microseconds.
    """

    def __init__(self) -> None:
        self.by_offset: dict[int, Lease] = {}
        self.hold_times_us: Final = Histogram()
        self._heap: list[tuple[int, int, Lease]] = []
        self._count = 0
        self._void = 0  # leases in the heap without open messages

    def __len__(self) -> int:
        return len(self.by_offset)

    def add(self, lease: Lease) -> None:
        """Register a new lease, which replaces older ones on its messages."""
        self.by_offset.update(dict.fromkeys(lease.offsets, lease))
        if lease.expires_at is not None:
            self._count += 1
            heappush(self._heap, (lease.expires_at, self._count, lease))

    def renew(self, slot: ConsumerSlot, now: int, until: int, offsets: Sequence[int]) -> None:
        """Change the end of leases of one consumer; the new lease keeps their earliest start."""
        leased_at = now
        for offset in offsets:
            lease = self.by_offset[offset]
            leased_at = min(leased_at, lease.leased_at)
            self.release_messages(lease)
        self.add(Lease(slot, leased_at, until, offsets))

    def end(self, offset: int) -> Lease | None:
        """End the lease on a message.

        Returns:
            The lease, None if the message was not leased.
        """
        lease = self.by_offset.pop(offset, None)
        if lease is not None:
            self.release_messages(lease)
        return lease

    def find_leases(self, offsets: Sequence[int]) -> list[Lease | None]:
        """Return the leases on messages, None for messages that are not leased."""
        return list(map(self.by_offset.get, offsets))

    def end_acknowledged(self, offsets: Sequence[int], now: int) -> None:
        """End the leases on messages that have been acknowledged; all of them were leased."""
        ended = list(map(self.by_offset.pop, offsets))
        for lease in set(ended):
            count = ended.count(lease)
            self.hold_times_us.add(max(now - lease.leased_at, 0), count)
            self.release_messages(lease, count)

    def release_messages(self, lease: Lease, count: int = 1) -> None:
        """Release `count` messages from a lease."""
        lease.open_count -= count
        if not lease.open_count:
            lease.offsets = ()
            if lease.expires_at is not None:
                self._void += 1
                if self._void > len(self._heap) // 2 + _MIN_COMPACTED:
                    self._heap = [entry for entry in self._heap if entry[2].open_count]
                    heapify(self._heap)
                    self._void = 0

    @property
    def next_deadline(self) -> int | None:
        """The time at which the next lease ends, None for never."""
        heap = self._heap
        while heap and not heap[0][2].open_count:
            heappop(heap)
            self._void -= 1
        return heap[0][0] if heap else None

    def pop_expired_offsets(self, now: int, limit: int) -> Iterator[int]:
        """Yield offsets of leases that have timed out; the caller ends the leases.

        Args:
            now: the current time.
            limit: number of offsets after which no further lease is started.
        """
        while limit > 0 and (deadline := self.next_deadline) is not None and deadline <= now:
            lease = heappop(self._heap)[2]
            limit -= len(lease.offsets)
            for offset in list(lease.offsets):
                if self.by_offset.get(offset) is lease:
                    yield offset

    def oldest_leased_at(self) -> int | None:
        """Return the start of the lease on the message that was leased first; None for none."""
        first = next(iter(self.by_offset.values()), None)
        return None if first is None else first.leased_at
