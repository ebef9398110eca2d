"""Decides when an entry is settled: stored here, and at each destination that it waits for.

Stored means on stable storage. Entries wait for a destination with SyncType sync, unless it has
been downgraded; they do not wait for one with async. Acknowledgements to publishers follow the
order of the log, up to `settled_txid`, and so do messages to subscribers that have requested only
fully durable messages; for other instances, each entry is checked on its own (`is_settled`).

A downgrade releases at once the entries that wait for that destination alone. It ends with an
upgrade, or with the process. The age of a wait is computed from the time at which entries were
recorded here, on a monotonic clock; no other clock is used.

Source: AMPS User Guide, Downstream Persistence Acknowledgment; Downgrading Acknowledgments for a
Destination.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from server.storage.journal import JournalTopic
from server.util.clock import ElapsedMicroseconds

if TYPE_CHECKING:
    from server.replication.core.sender import ReplicationSender

_MAX_APPEND_TIMES: Final = 4096


class EntryRoutingKey(NamedTuple):
    """The properties that decide where an entry goes, except for its body."""

    topic: JournalTopic
    path: str


class DestinationLag(NamedTuple):
    """The point from which a destination has not acknowledged.

    Attributes:
        destination: its name.
        settled_txid: the txid up to which it has everything.
        since_us: when the first entry behind that was recorded, or when the destination was added
            if that was later, in microseconds.
    """

    destination: str
    settled_txid: int
    since_us: ElapsedMicroseconds


class AcknowledgementTracker:
    """Tracks how far the log is settled, and which destinations that takes.

    Args:
        destinations: all destinations by name.
        sync_destinations: the names of those with SyncType sync.
        durable_txid: the last entry on stable storage.
        now: the current time of a monotonic clock, in microseconds.
        min_sync_destinations: MinSyncDestinations: the least number of destinations to wait for,
            whatever their age.

    Attributes:
        settled_txid: the txid up to which everything is settled; it never decreases.
        downgraded_destinations: the names of the destinations for which entries do not wait at the
            moment.
    """

    def __init__(
        self,
        destinations: Mapping[str, ReplicationSender],
        sync_destinations: frozenset[str],
        durable_txid: int,
        now: ElapsedMicroseconds,
        min_sync_destinations: int = 0,
    ) -> None:
        self.settled_txid = 0
        self.downgraded_destinations: set[str] = set()
        self._destinations: Mapping[str, ReplicationSender] = {}
        self._sync_destinations = sync_destinations
        self._added_times_us: Mapping[str, ElapsedMicroseconds] = {}
        self._durable_txid = durable_txid
        self.min_sync_destinations = min_sync_destinations
        # the last entry of each group that counts as recorded together, and the time of its first
        self._append_txids = [durable_txid]
        self._append_times_us = [now]
        self._time_grain_us = 0
        self.replace_destinations(destinations, sync_destinations, now)
        self.update_settled()

    def replace_destinations(
        self,
        destinations: Mapping[str, ReplicationSender],
        sync_destinations: frozenset[str],
        now: ElapsedMicroseconds,
    ) -> None:
        """Replace the destinations; those with the same sender stay, and stay downgraded.

        Args:
            destinations: all destinations by name.
            sync_destinations: the names of those with SyncType sync.
            now: the current time; entries have not waited for added destinations before.
        """
        kept = {
            name for name, sender in destinations.items() if self._destinations.get(name) is sender
        }
        self._added_times_us = {
            name: self._added_times_us[name] if name in kept else now for name in destinations
        }
        self.downgraded_destinations &= kept
        self._destinations = destinations
        self._sync_destinations = sync_destinations

    # progress

    def record_append(self, txid: int, now: ElapsedMicroseconds) -> None:
        """Record the time of the last appended entry; an occasional call is enough.

        Args:
            txid: its number.
            now: microseconds.
        """
        if txid <= self._append_txids[-1]:
            return
        if now - self._append_times_us[-1] < self._time_grain_us:
            self._append_txids[-1] = txid
            return
        self._append_txids.append(txid)
        self._append_times_us.append(now)
        if len(self._append_txids) > _MAX_APPEND_TIMES:
            self._compact_times()

    def advance_durable(self, durable_txid: int) -> None:
        """Record that everything up to an entry is on stable storage."""
        self._durable_txid = max(self._durable_txid, durable_txid)

    def update_settled(self) -> bool:
        """Recompute `settled_txid`; to be called after acknowledgements and commits.

        Returns:
            Whether it has advanced.
        """
        settled_txids = [
            self._destinations[name].settled_txid for name in self.awaited_destinations
        ]
        settled = min([self._durable_txid, *settled_txids])
        if settled <= self.settled_txid:
            return False
        self.settled_txid = settled
        return True

    def is_settled(self, last: int, routing_keys: Collection[EntryRoutingKey], source: str) -> bool:
        """Return whether entries up to a txid can be acknowledged to their source.

        Args:
            last: the txid.
            routing_keys: each of the entries has one of these.
            source: name of the instance that has sent them; they do not wait for it.
        """
        if last <= self.settled_txid:
            return True
        if last > self._durable_txid:
            return False
        destinations = (self._destinations[name] for name in self.awaited_destinations)
        return all(
            destination.is_peer(source) or destination.has_entries(last, routing_keys)
            for destination in destinations
        )

    # the destinations for which entries wait

    @property
    def awaited_destinations(self) -> frozenset[str]:
        """The names of the destinations for which acknowledgements wait."""
        return self._sync_destinations - self.downgraded_destinations

    def downgrade(self, name: str) -> bool:
        """Stop waiting for a destination; return whether that is new."""
        if name not in self.awaited_destinations:
            return False
        self.downgraded_destinations.add(name)
        return True

    def upgrade(self, name: str) -> bool:
        """Wait for a destination again; return whether that is new."""
        if name not in self.downgraded_destinations:
            return False
        self.downgraded_destinations.discard(name)
        return True

    def downgrade_late(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Downgrade the destinations that entries have waited for too long.

        Args:
            age: microseconds that are too long.
            now: microseconds.

        Returns:
            Their names. MinSyncDestinations may exclude some: those that are least late.
        """
        max_downgraded = max(len(self.awaited_destinations) - self.min_sync_destinations, 0)
        return [
            name
            for name in self.late_destinations(age, now)[:max_downgraded]
            if self.downgrade(name)
        ]

    def late_destinations(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Return the late destinations for which entries wait; the latest first.

        Args:
            age: microseconds that are too long.
            now: microseconds since the Unix epoch.
        """
        late_lags = [
            lag
            for lag in self.destination_lags()
            if now - lag.since_us > age and self._is_awaited(lag)
        ]
        return [lag.destination for lag in sorted(late_lags, key=lambda lag: lag.since_us)]

    def upgrade_recovered(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Upgrade the destinations that have no entry unacknowledged for a period or longer.

        Args:
            age: the period, in microseconds.
            now: microseconds.
        """
        late = {lag.destination for lag in self.destination_lags() if now - lag.since_us >= age}
        return [name for name in sorted(self.downgraded_destinations - late) if self.upgrade(name)]

    def _is_awaited(self, lag: DestinationLag) -> bool:
        return lag.destination in self.awaited_destinations

    def destination_lags(self) -> list[DestinationLag]:
        """Return the unacknowledged point of each destination, whether entries wait for it or not.

        Destinations that have acknowledged everything are left out.
        """
        lags = []
        for name, destination in self._destinations.items():
            settled_txid = destination.settled_txid
            position = bisect_right(self._append_txids, settled_txid)
            if position < len(self._append_txids):
                since_us = max(self._append_times_us[position], self._added_times_us[name])
                lags.append(DestinationLag(name, settled_txid, since_us))
        return lags

    def _compact_times(self) -> None:
        """Drop the times of entries that all destinations have; coarsen the others.

        The grain is the maximum error of the times that remain.
        """
        common_txid = min(
            (destination.settled_txid for destination in self._destinations.values()),
            default=self._durable_txid,
        )
        position = max(bisect_right(self._append_txids, common_txid) - 1, 0)
        del self._append_txids[:position]
        del self._append_times_us[:position]
        self._time_grain_us = 0
        if len(self._append_txids) > _MAX_APPEND_TIMES // 2:
            self._time_grain_us = (self._append_times_us[-1] - self._append_times_us[0]) // (
                _MAX_APPEND_TIMES // 4
            )
            self._append_times_us = self._append_times_us[::2]
            self._append_txids = [*self._append_txids[1:-1:2], self._append_txids[-1]]
