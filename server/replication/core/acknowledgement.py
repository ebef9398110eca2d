"""Decides when an entry is settled: stored here, and at each destination that it waits for.

Stored means on stable storage. A destination with SyncType sync is waited for, unless it has been
downgraded; one with async is not. Acknowledgements to publishers follow the order of the log, up to
`settled`, and so do messages to subscribers that want only fully durable messages; for other
instances, each entry is checked on its own (`is_settled`).

A downgrade releases at once the entries that wait for that destination alone. It ends with an
upgrade, or with the process. The age of a wait is computed from the time at which entries were
recorded here, on a monotonic clock; no other clock is used.

Source: AMPS User Guide, Downstream Persistence Acknowledgment; Downgrading Acknowledgments for a
Destination.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from server.storage.journal import JournalTopic
from server.util.clock import ElapsedMicroseconds

_MAX_MOMENTS: Final = 4096


class EntryRoutingKey(NamedTuple):
    """The properties that decide where an entry goes, except for its body."""

    topic: JournalTopic
    path: str


class DestinationProgress(Protocol):
    """The progress of a destination; a `ReplicationSender` implements it."""

    @property
    def settled_txid(self) -> int:
        """The txid up to which it has everything that goes there."""

    def has_entries(self, last: int, kinds: Collection[EntryRoutingKey]) -> bool:
        """Return whether it has all entries of these kinds up to a txid that go there."""

    def is_peer(self, instance: str) -> bool:
        """Return whether the peer, present or last, is the instance of that name."""


class DestinationLag(NamedTuple):
    """The point from which a destination has not acknowledged.

    Attributes:
        destination: its name.
        settled_txid: the txid up to which it has everything.
        since_us: when the first entry behind that was recorded, in microseconds.
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
        now: the time at which that is so, in microseconds since some moment; it never goes back.
        min_sync_destinations: MinSyncDestinations: the least number of destinations to wait for,
            whatever their age.

    Attributes:
        settled_txid: the txid up to which everything is settled; it never goes back.
        downgraded_destinations: the names of the destinations that are not waited for, for the time
            being.
        min_sync_destinations: see above.
    """

    def __init__(
        self,
        destinations: Mapping[str, DestinationProgress],
        sync_destinations: frozenset[str],
        durable_txid: int,
        now: ElapsedMicroseconds,
        min_sync_destinations: int = 0,
    ) -> None:
        self.settled_txid = 0
        self.downgraded_destinations: set[str] = set()
        self._destinations = destinations
        self._sync_destinations = sync_destinations
        self._durable_txid = durable_txid
        self.min_sync_destinations: Final = min_sync_destinations
        # The last entry of each group that counts as recorded together, and the time of its first.
        self._append_txids = [durable_txid]
        self._append_times_us = [now]
        self._time_grain_us = 0
        self.update_settled()

    # Progress.

    def record_append(self, txid: int, now: ElapsedMicroseconds) -> None:
        """Note the last entry that has been recorded; an occasional call is enough.

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
        if len(self._append_txids) > _MAX_MOMENTS:
            self._compact_times()

    def advance_durable(self, durable: int) -> None:
        """Note that everything up to an entry is on stable storage."""
        self._durable_txid = max(self._durable_txid, durable)

    def update_settled(self) -> bool:
        """Recompute `settled_txid`; to be called after acknowledgements and commits.

        Returns:
            Whether it has advanced.
        """
        ends = [self._destinations[name].settled_txid for name in self.awaited_destinations]
        settled = min([self._durable_txid, *ends])
        if settled <= self.settled_txid:
            return False
        self.settled_txid = settled
        return True

    def is_settled(self, last: int, kinds: Collection[EntryRoutingKey], source: str) -> bool:
        """Return whether entries up to a txid are settled as far as their source asks.

        Args:
            last: the txid.
            kinds: each of the entries is of one of these.
            source: name of the instance that they came from; it is not waited for.
        """
        if last <= self.settled_txid:
            return True
        if last > self._durable_txid:
            return False
        destinations = (self._destinations[name] for name in self.awaited_destinations)
        return all(one.is_peer(source) or one.has_entries(last, kinds) for one in destinations)

    # The destinations that are waited for.

    @property
    def awaited_destinations(self) -> frozenset[str]:
        """The names of the destinations that acknowledgements wait for."""
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
            Their names. MinSyncDestinations may keep some from it: those that are least late.
        """
        allowed = max(len(self.awaited_destinations) - self.min_sync_destinations, 0)
        return [name for name in self.late_destinations(age, now)[:allowed] if self.downgrade(name)]

    def late_destinations(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Return the destinations that are waited for and are late; the latest first.

        Args:
            age: microseconds that are too long.
            now: microseconds since the Unix epoch.
        """
        late = [
            one
            for one in self.destination_lags()
            if now - one.since_us > age and self._is_awaited(one)
        ]
        return [one.destination for one in sorted(late, key=lambda one: one.since_us)]

    def upgrade_recovered(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Upgrade the destinations that nothing has waited for as long as that.

        Args:
            age: microseconds.
            now: microseconds.
        """
        late = {one.destination for one in self.destination_lags() if now - one.since_us >= age}
        return [name for name in sorted(self.downgraded_destinations - late) if self.upgrade(name)]

    def _is_awaited(self, waiting: DestinationLag) -> bool:
        return waiting.destination in self.awaited_destinations

    def destination_lags(self) -> list[DestinationLag]:
        """Return the unacknowledged point of each destination, whether it is waited for or not."""
        waiting = []
        for name, destination in self._destinations.items():
            settled_txid = destination.settled_txid
            place = bisect_right(self._append_txids, settled_txid)
            if place < len(self._append_txids):
                waiting.append(DestinationLag(name, settled_txid, self._append_times_us[place]))
        return waiting

    def _compact_times(self) -> None:
        """Forget the times of entries that all destinations have; coarsen the others.

        The grain is the maximum error of the times that remain.
        """
        done = min(
            (one.settled_txid for one in self._destinations.values()), default=self._durable_txid
        )
        place = max(bisect_right(self._append_txids, done) - 1, 0)
        del self._append_txids[:place]
        del self._append_times_us[:place]
        self._time_grain_us = 0
        if len(self._append_txids) > _MAX_MOMENTS // 2:
            self._time_grain_us = (self._append_times_us[-1] - self._append_times_us[0]) // (
                _MAX_MOMENTS // 4
            )
            self._append_times_us = self._append_times_us[::2]
            self._append_txids = [*self._append_txids[1:-1:2], self._append_txids[-1]]
