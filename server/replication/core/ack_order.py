"""Entries that were sent and are not settled: by lanes, so that no instances wait in a circle.

An entry is settled at an instance when the instances that it goes on to have acknowledged it. So
each of them waits for the next one. If an entry also waited for those before it in the log,
whatever path they came by, instances in a ring would wait for each other for ever: each for an
entry that it passes on, behind one that the other passes on. Entries that have come on one path may
wait for each other, though. Let the *rank* of an entry be the number of instances on its path, and
among equal ones the name of the instance where it is. It waits only for copies of a higher rank:
where it goes on to, its path is longer; and for one that has come there on another path first, only
where that is of a higher rank, see `ReplicationReceiver`. So entries of one rank at an instance may
wait for each other: in a circle, the rank would have to decrease somewhere.

A *lane* is the set of entries that have come to an instance on one path (`lane_of`; paths of one
length that happen to have one number are one lane). In each lane entries are acknowledged in the
order of the log, and lanes do not wait for each other. That loses nothing: publishers are
acknowledged in the order of the log where they publish, and their messages there come in that
order.

So one number for each lane describes the state, and both ends need little memory, however much
waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from server.replication.core.acknowledgement import EntryRoutingKey
from server.replication.core.frames import Ack
from server.replication.core.routes import hops
from server.storage.journal.format.layout import crc32c

MAX_ACK_UNITS: Final = 16_384
"""Parts of lanes that wait separately; beyond that, entries are merged, and wait together."""

_MIN_UNITS: Final = 2  # of a lane: merging must not delay for ever the unit that is next
_BITS: Final = 16

IsAcknowledged: TypeAlias = Callable[[int, Collection[EntryRoutingKey], str], bool]
"""Returns whether entries of these kinds up to a txid are settled here; see `is_settled`.

The last argument is the name of the instance that they came from.
"""


@lru_cache(maxsize=4096)
def lane_of(path: str) -> int:
    """Return the number of the lane of a path; both ends of a link compute the same.

    Args:
        path: as the log of the source has it.
    """
    checksum: int = crc32c(path.encode())
    return len(hops(path)) << _BITS | checksum & ((1 << _BITS) - 1)


class InFlightEntries:
    """The entries that a source has sent to a destination, and does not know to be settled.

    Args:
        after: the txid up to which the destination has everything.

    Attributes:
        stored: the txid up to which it has everything on stable storage.
    """

    def __init__(self, after: int) -> None:
        self.stored = after
        self._sent: dict[int, int] = {}  # by lane: the end of the last batch with entries of it
        self._sent_of_any = after
        self._waiting: dict[int, int] = {}  # as in the last ack

    def resume(self, after: int, ack: Ack) -> None:
        """Take over the destination's own account of everything up to an entry."""
        self.stored = ack.stored
        self._sent = {}
        self._sent_of_any = after
        self._waiting = dict(ack.lanes)

    def send(self, lanes: Iterable[int], upto: int) -> None:
        """Note that entries of some lanes are sent in a batch that ends with a txid."""
        for lane in lanes:
            self._sent[lane] = upto

    def send_any(self, upto: int) -> None:
        """Require acknowledgement of everything up to a txid, sent or not."""
        self._sent_of_any = upto

    def acknowledge(self, ack: Ack) -> None:
        """Process an acknowledgement of the destination."""
        self.stored = max(self.stored, ack.stored)
        self._waiting = dict(ack.lanes)
        self._sent = {lane: sent for lane, sent in self._sent.items() if self._lacks(lane)}

    def has(self, lane: int, txid: int) -> bool:
        """Return whether the destination has everything of a lane up to a txid that was read."""
        return txid <= self._settled(lane) or not self._lacks(lane)

    @property
    def settled(self) -> int | None:
        """The txid up to which it has everything; None if it has all that was sent."""
        lanes = {*self._sent, *self._waiting}
        ends = [self._settled(lane) for lane in lanes if self._lacks(lane)]
        if self._sent_of_any > self.stored:
            ends.append(self.stored)
        return min(ends, default=None)

    def _settled(self, lane: int) -> int:
        return self._waiting.get(lane, self.stored)

    def _lacks(self, lane: int) -> bool:
        return max(self._sent.get(lane, 0), self._sent_of_any) > self._settled(lane)


class _AckUnit:
    """Entries of a lane that are acknowledged together.

    Args:
        first: txid of the first at the source.
        last: txid of the last at the source.
        own_last: the highest txid of any of them here.
        kinds: topics and paths that they have here.
    """

    __slots__ = ("first", "kinds", "last", "own_last")

    def __init__(self, first: int, last: int, own_last: int, kinds: set[EntryRoutingKey]) -> None:
        self.first = first
        self.last = last
        self.own_last = own_last
        self.kinds = kinds

    def join(self, other: _AckUnit) -> None:
        """Merge another unit into this one; both wait for the destinations of either."""
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.own_last = max(self.own_last, other.own_last)
        self.kinds |= other.kinds


class UnacknowledgedEntries:
    """Entries of one source that were received, and that other instances must acknowledge first.

    Args:
        most_units: see `MAX_ACK_UNITS`.
    """

    def __init__(self, most_units: int = MAX_ACK_UNITS) -> None:
        self._most_units = most_units
        self._count = 0
        self._lanes: dict[int, deque[_AckUnit]] = {}

    def add(
        self, lane: int, txids: tuple[int, int], own_last: int, kinds: Collection[EntryRoutingKey]
    ) -> None:
        """Add entries that were recorded and wait.

        Args:
            lane: their lane at the source.
            txids: the first and the last one at the source.
            own_last: the highest one here.
            kinds: topics and paths here.
        """
        units = self._lanes.setdefault(lane, deque())
        unit = _AckUnit(*txids, own_last, set(kinds))
        # Entries that come again precede those they come with, or those of their first time.
        while units and unit.first <= units[-1].last:
            units[-1].join(unit)
            unit = units.pop()
            self._count -= 1
        if self._count >= self._most_units and len(units) >= _MIN_UNITS:
            units[-1].join(unit)
            return
        units.append(unit)
        self._count += 1

    def settle(self, durable: int, is_settled: IsAcknowledged, source: str) -> None:
        """Release the entries that need not wait any more.

        Args:
            durable: the last txid on stable storage here.
            is_settled: see `IsAcknowledged`.
            source: name of the source.
        """
        for lane, units in list(self._lanes.items()):
            while units and units[0].own_last <= durable:
                if not is_settled(units[0].own_last, units[0].kinds, source):
                    break
                units.popleft()
                self._count -= 1
            if not units:
                del self._lanes[lane]

    def lanes(self, stored: int) -> list[tuple[int, int]]:
        """Return the lanes that are not settled up to a txid, and the txid up to which each is."""
        return sorted(
            (lane, units[0].first - 1)
            for lane, units in self._lanes.items()
            if units[0].first <= stored
        )

    def clear(self) -> None:
        """Forget everything."""
        self._lanes.clear()
        self._count = 0
