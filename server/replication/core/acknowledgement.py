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
    def settled(self) -> int:
        """The txid up to which it has everything that goes there."""

    def has(self, last: int, kinds: Collection[EntryRoutingKey]) -> bool:
        """Return whether it has all entries of these kinds up to a txid that go there."""

    def leads_to(self, instance: str) -> bool:
        """Return whether the peer, present or last, is the instance of that name."""


class DestinationLag(NamedTuple):
    """The point from which a destination has not acknowledged.

    Attributes:
        destination: its name.
        after: the txid up to which it has everything.
        since: when the first entry behind that was recorded, in microseconds.
    """

    destination: str
    after: int
    since: ElapsedMicroseconds


class AcknowledgementTracker:
    """Tracks how far the log is settled, and which destinations that takes.

    Args:
        destinations: all destinations by name.
        sync: the names of those with SyncType sync.
        durable: the last entry on stable storage.
        now: the time at which that is so, in microseconds since some moment; it never goes back.
        least_sync: MinSyncDestinations: the least number of destinations to wait for, whatever
            their age.

    Attributes:
        settled: the txid up to which everything is settled; it never goes back.
        downgraded: the names of the destinations that are not waited for, for the time being.
        least_sync: see above.
    """

    def __init__(
        self,
        destinations: Mapping[str, DestinationProgress],
        sync: frozenset[str],
        durable: int,
        now: ElapsedMicroseconds,
        least_sync: int = 0,
    ) -> None:
        self.settled = 0
        self.downgraded: set[str] = set()
        self._destinations = destinations
        self._sync = sync
        self._durable = durable
        self.least_sync: Final = least_sync
        # The last entry of each group that counts as recorded together, and the time of its first.
        self._txids = [durable]
        self._moments = [now]
        self._grain = 0
        self.find_out()

    # Progress.

    def recorded(self, txid: int, now: ElapsedMicroseconds) -> None:
        """Note the last entry that has been recorded; an occasional call is enough.

        Args:
            txid: its number.
            now: microseconds.
        """
        if txid <= self._txids[-1]:
            return
        if now - self._moments[-1] < self._grain:
            self._txids[-1] = txid
            return
        self._txids.append(txid)
        self._moments.append(now)
        if len(self._txids) > _MAX_MOMENTS:
            self._forget()

    def reached(self, durable: int) -> None:
        """Note that everything up to an entry is on stable storage."""
        self._durable = max(self._durable, durable)

    def find_out(self) -> bool:
        """Recompute `settled`; to be called after acknowledgements and commits.

        Returns:
            Whether it has advanced.
        """
        ends = [self._destinations[name].settled for name in self.waited_for]
        settled = min([self._durable, *ends])
        if settled <= self.settled:
            return False
        self.settled = settled
        return True

    def is_settled(self, last: int, kinds: Collection[EntryRoutingKey], source: str) -> bool:
        """Return whether entries up to a txid are settled as far as their source asks.

        Args:
            last: the txid.
            kinds: each of the entries is of one of these.
            source: name of the instance that they came from; it is not waited for.
        """
        if last <= self.settled:
            return True
        if last > self._durable:
            return False
        destinations = (self._destinations[name] for name in self.waited_for)
        return all(one.leads_to(source) or one.has(last, kinds) for one in destinations)

    # The destinations that are waited for.

    @property
    def waited_for(self) -> frozenset[str]:
        """The names of the destinations that acknowledgements wait for."""
        return self._sync - self.downgraded

    def downgrade(self, name: str) -> bool:
        """Stop waiting for a destination; return whether that is new."""
        if name not in self.waited_for:
            return False
        self.downgraded.add(name)
        return True

    def upgrade(self, name: str) -> bool:
        """Wait for a destination again; return whether that is new."""
        if name not in self.downgraded:
            return False
        self.downgraded.discard(name)
        return True

    def downgrade_late(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Downgrade the destinations that entries have waited for too long.

        Args:
            age: microseconds that are too long.
            now: microseconds.

        Returns:
            Their names. MinSyncDestinations may keep some from it: those that are least late.
        """
        allowed = max(len(self.waited_for) - self.least_sync, 0)
        return [name for name in self.late(age, now)[:allowed] if self.downgrade(name)]

    def late(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Return the destinations that are waited for and are late; the latest first.

        Args:
            age: microseconds that are too long.
            now: microseconds since the Unix epoch.
        """
        late = [one for one in self.waiting() if now - one.since > age and self._is_waited_for(one)]
        return [one.destination for one in sorted(late, key=lambda one: one.since)]

    def upgrade_recovered(self, age: int, now: ElapsedMicroseconds) -> list[str]:
        """Upgrade the destinations that nothing has waited for as long as that.

        Args:
            age: microseconds.
            now: microseconds.
        """
        late = {one.destination for one in self.waiting() if now - one.since >= age}
        return [name for name in sorted(self.downgraded - late) if self.upgrade(name)]

    def _is_waited_for(self, waiting: DestinationLag) -> bool:
        return waiting.destination in self.waited_for

    def waiting(self) -> list[DestinationLag]:
        """Return the unacknowledged point of each destination, whether it is waited for or not."""
        waiting = []
        for name, destination in self._destinations.items():
            after = destination.settled
            place = bisect_right(self._txids, after)
            if place < len(self._txids):
                waiting.append(DestinationLag(name, after, self._moments[place]))
        return waiting

    def _forget(self) -> None:
        """Forget the times of entries that all destinations have; coarsen the others.

        The grain is the maximum error of the times that remain.
        """
        done = min((one.settled for one in self._destinations.values()), default=self._durable)
        place = max(bisect_right(self._txids, done) - 1, 0)
        del self._txids[:place]
        del self._moments[:place]
        self._grain = 0
        if len(self._txids) > _MAX_MOMENTS // 2:
            self._grain = (self._moments[-1] - self._moments[0]) // (_MAX_MOMENTS // 4)
            self._moments = self._moments[::2]
            self._txids = [*self._txids[1:-1:2], self._txids[-1]]
