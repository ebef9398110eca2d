"""Acknowledgements that arrive before their messages.

Source: AMPS User Guide, DeferredAckExpiration.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from server.queues.core.events import PublisherSequence


class EarlyAcks:
    """Bookmarks of messages that are done as soon as they arrive.

    Args:
        limit: the maximum number; beyond it, the oldest is dropped.

    Attributes:
        change_count: incremented with every change.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.change_count = 0
        self._acks = OrderedDict[PublisherSequence, int]()  # arrival times, oldest first

    def __len__(self) -> int:
        return len(self._acks)

    def __iter__(self) -> Iterator[tuple[PublisherSequence, int]]:
        return iter(self._acks.items())

    def add(self, bookmarks: Iterable[PublisherSequence], now: int) -> None:
        """Retain acknowledgements."""
        self.change_count += 1
        for bookmark in bookmarks:
            self._acks.pop(bookmark, None)
            self._acks[bookmark] = now
        while len(self._acks) > self._limit:
            self._acks.popitem(last=False)

    def consume_ack(self, bookmark: PublisherSequence, since: int) -> bool:
        """Remove the acknowledgement of a message that has arrived; return whether it counts.

        Args:
            bookmark: the bookmark of the message.
            since: acknowledgements of this time and before have expired.
        """
        arrived_at = self._acks.pop(bookmark, None)
        if arrived_at is None:
            return False
        self.change_count += 1
        return arrived_at > since

    def drop_acks(self, bookmarks: Iterable[PublisherSequence]) -> None:
        """Drop the acknowledgements of messages."""
        self.change_count += 1
        for bookmark in bookmarks:
            self._acks.pop(bookmark, None)

    @property
    def oldest_arrival(self) -> int | None:
        """Arrival time of the oldest acknowledgement, None if there is none."""
        return next(iter(self._acks.values()), None)

    def drop_before(self, time_us: int) -> None:
        """Drop the acknowledgements that arrived before a point in time."""
        self.change_count += 1
        while self._acks:
            if next(iter(self._acks.values())) >= time_us:
                return
            self._acks.popitem(last=False)
