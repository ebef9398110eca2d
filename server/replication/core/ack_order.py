"""Entries that were sent and are not settled: by lanes, so that no instances wait in a circle.

An entry is settled at an instance when the instances that it is forwarded to have acknowledged it.
So each of them waits for the next one. If an entry also waited for those before it in the log,
whatever path they arrived on, instances in a ring would wait for each other without end: each for
an entry that it forwards, behind one that the other forwards. Entries that have arrived on one path
may wait for each other, though. The *rank* of an entry is the number of instances on its path, and
among equal ones the name of the instance where it is. It waits only for copies of a higher rank:
where it is forwarded to, its path is longer; and for a copy that has arrived there on another path
first, only where that is of a higher rank, see `ReplicationReceiver`. So entries of one rank at an
instance may wait for each other: in a circle, the rank would have to decrease somewhere.

A *lane* is the set of entries that have arrived at an instance on one path (`lane_of`; paths of one
length that happen to have one number are one lane). In each lane entries are acknowledged in the
order of the log, and lanes do not wait for each other. That loses nothing: publishers are
acknowledged in the order of the log where they publish, and their messages arrive there in that
order.

So one number for each lane describes the state, and both ends need little memory, however many
entries wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from server.replication.core.acknowledgement import EntryRoutingKey
from server.replication.core.frames import Ack
from server.replication.core.routes import hops
from server.storage.journal.format.layout import crc32c

MAX_ACK_UNITS: Final = 16_384
"""Units of lanes that wait separately; beyond that, units are merged, and wait together."""

_MIN_UNITS: Final = 2  # of a lane: merging must not delay the unit that is next without end
_BITS: Final = 16

IsAcknowledged: TypeAlias = Callable[[int, Collection[EntryRoutingKey], str], bool]
"""Returns whether entries of these kinds up to a txid are settled here; see `is_settled`.

The last argument is the name of the instance that has sent them.
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
        after_txid: the txid up to which the destination has everything.

    Attributes:
        stored_txid: the txid up to which it has everything on stable storage.
    """

    def __init__(self, after_txid: int) -> None:
        self.stored_txid = after_txid
        # by lane: the end of the last batch with entries of it
        self._sent_txids: dict[int, int] = {}
        self._required_txid = after_txid
        self._pending_lanes: dict[int, int] = {}  # as in the last ack

    def resume(self, after_txid: int, ack: Ack) -> None:
        """Replace the state up to an entry with the destination's own."""
        self.stored_txid = ack.stored
        self._sent_txids = {}
        self._required_txid = after_txid
        self._pending_lanes = dict(ack.lanes)

    def record_sent(self, lanes: Iterable[int], last_txid: int) -> None:
        """Record that entries of lanes are sent in a batch that ends with a txid."""
        for lane in lanes:
            self._sent_txids[lane] = last_txid

    def require_all(self, last_txid: int) -> None:
        """Require acknowledgement of everything up to a txid, sent or not."""
        self._required_txid = last_txid

    def process_ack(self, ack: Ack) -> None:
        """Process an acknowledgement of the destination."""
        self.stored_txid = max(self.stored_txid, ack.stored)
        self._pending_lanes = dict(ack.lanes)
        self._sent_txids = {
            lane: sent_txid
            for lane, sent_txid in self._sent_txids.items()
            if self._is_lane_pending(lane)
        }

    def has_lane_up_to(self, lane: int, txid: int) -> bool:
        """Return whether the destination has everything of a lane up to a txid that was read."""
        return txid <= self._lane_settled_txid(lane) or not self._is_lane_pending(lane)

    @property
    def settled_txid(self) -> int | None:
        """The txid up to which it has everything; None if it has all that was sent."""
        lanes = {*self._sent_txids, *self._pending_lanes}
        settled_txids = [
            self._lane_settled_txid(lane) for lane in lanes if self._is_lane_pending(lane)
        ]
        if self._required_txid > self.stored_txid:
            settled_txids.append(self.stored_txid)
        return min(settled_txids, default=None)

    def _lane_settled_txid(self, lane: int) -> int:
        return self._pending_lanes.get(lane, self.stored_txid)

    def _is_lane_pending(self, lane: int) -> bool:
        return max(self._sent_txids.get(lane, 0), self._required_txid) > self._lane_settled_txid(
            lane
        )


@dataclass(slots=True, eq=False)
class _AckUnit:
    """Entries of a lane that are acknowledged together.

    Attributes:
        first_txid: txid of the first at the source.
        last_txid: txid of the last at the source.
        own_last_txid: the highest txid of any of them here.
        routing_keys: topics and paths that they have here.
    """

    first_txid: int
    last_txid: int
    own_last_txid: int
    routing_keys: set[EntryRoutingKey]

    def merge(self, other: _AckUnit) -> None:
        """Merge another unit into this one; both wait for the destinations of either."""
        self.first_txid = min(self.first_txid, other.first_txid)
        self.last_txid = max(self.last_txid, other.last_txid)
        self.own_last_txid = max(self.own_last_txid, other.own_last_txid)
        self.routing_keys |= other.routing_keys


class UnacknowledgedEntries:
    """Entries of one source that were received, and that other instances must acknowledge first.

    Args:
        max_units: see `MAX_ACK_UNITS`.
    """

    def __init__(self, max_units: int = MAX_ACK_UNITS) -> None:
        self._max_units = max_units
        self._unit_count = 0
        self._lanes: dict[int, deque[_AckUnit]] = {}

    def add(
        self,
        lane: int,
        txids: tuple[int, int],
        own_last_txid: int,
        routing_keys: Collection[EntryRoutingKey],
    ) -> None:
        """Add entries that were recorded and wait.

        Args:
            lane: their lane at the source.
            txids: the first and the last one at the source.
            own_last_txid: the highest one here.
            routing_keys: topics and paths here.
        """
        units = self._lanes.setdefault(lane, deque())
        unit = _AckUnit(*txids, own_last_txid, set(routing_keys))
        # Entries that are sent again precede others of the batch, or those of the first time.
        while units and unit.first_txid <= units[-1].last_txid:
            units[-1].merge(unit)
            unit = units.pop()
            self._unit_count -= 1
        if self._unit_count >= self._max_units and len(units) >= _MIN_UNITS:
            units[-1].merge(unit)
            return
        units.append(unit)
        self._unit_count += 1

    def release_settled(self, durable_txid: int, is_settled: IsAcknowledged, source: str) -> None:
        """Remove the entries that need not wait any more.

        Args:
            durable_txid: the last txid on stable storage here.
            is_settled: see `IsAcknowledged`.
            source: name of the source.
        """
        for lane, units in list(self._lanes.items()):
            while units and units[0].own_last_txid <= durable_txid:
                if not is_settled(units[0].own_last_txid, units[0].routing_keys, source):
                    break
                units.popleft()
                self._unit_count -= 1
            if not units:
                del self._lanes[lane]

    def pending_lanes(self, stored_txid: int) -> list[tuple[int, int]]:
        """Return the lanes that are not settled up to a txid, and the txid up to which each is."""
        return sorted(
            (lane, units[0].first_txid - 1)
            for lane, units in self._lanes.items()
            if units[0].first_txid <= stored_txid
        )

    def clear(self) -> None:
        """Remove all entries."""
        self._lanes.clear()
        self._unit_count = 0
