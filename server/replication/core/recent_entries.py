"""The last entries recorded: gives the position of a duplicate, and detects a different body.

Two publishers with one name, or one that restarts its numbers, use a number for two messages. Only
one of the messages is kept, and that must not pass in silence: checksums detect it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import lt
from typing import Final, NamedTuple, TypeAlias

from server.storage.journal import JournalOrigin, JournalTopic

MAX_RECENT_ENTRIES: Final = 131_072
"""Entries after which the older half is forgotten."""

_MAX_LATE: Final = 64
_MAX_GROWN: Final = 256
"""Entries that came one after the other and are kept together."""


TopicOrigin: TypeAlias = tuple[JournalTopic, JournalOrigin]
"""The topic of an entry, and its user and path."""


class RecentEntry(NamedTuple):
    """An entry that was recorded.

    Attributes:
        checksum: of its body with extras.
        first_txid: in the log of this instance, the first number that it may have.
        last_txid: the last one.
        topic: where it was published.
        origin: user and path, as this instance has it.
    """

    checksum: int
    first_txid: int
    last_txid: int
    topic: JournalTopic
    origin: JournalOrigin


class _EntryBatch:
    """Entries of one identity that were recorded together, or one after the other.

    Args:
        sequences: their numbers, ascending.
        checksums: of each.
        txids: of the first and the last.
        topic: of all.
        origin: of all.
    """

    __slots__ = ("checksums", "origin", "own_txids", "sequences", "topic", "topic_origins", "txids")

    def __init__(
        self,
        sequences: Sequence[int],
        checksums: Sequence[int],
        txids: tuple[int, int],
        topic: JournalTopic,
        origin: JournalOrigin,
    ) -> None:
        self.sequences = sequences
        self.checksums = checksums
        self.txids = txids
        self.topic = topic
        self.origin = origin
        self.own_txids: Sequence[int] | None = None  # of each, if that is known
        self.topic_origins: Sequence[TopicOrigin] | None = (
            None  # of each, if they are not all the same
        )

    def find(self, sequence: int) -> RecentEntry | None:
        place = bisect_right(self.sequences, sequence) - 1
        if place < 0 or self.sequences[place] != sequence:
            return None
        first, last = self.txids
        if self.own_txids is not None:
            first = last = self.own_txids[place]
        elif last - first == len(self.sequences) - 1:
            first = last = first + place
        topic, origin = self._topic_origin(place)
        return RecentEntry(self.checksums[place], first, last, topic, origin)

    def _topic_origin(self, place: int) -> TopicOrigin:
        return (
            (self.topic, self.origin) if self.topic_origins is None else self.topic_origins[place]
        )

    def entries_after(self, txid: int) -> Iterator[tuple[Sequence[int], JournalOrigin]]:
        """Yield the numbers of entries that may be behind a txid, and their origins."""
        if self.txids[1] <= txid:
            return
        start = 0 if self.own_txids is None else bisect_right(self.own_txids, txid)
        if self.topic_origins is None:
            yield self.sequences[start:], self.origin
            return
        by_origin: dict[JournalOrigin, list[int]] = {}
        for sequence, (_, origin) in zip(
            self.sequences[start:], self.topic_origins[start:], strict=True
        ):
            by_origin.setdefault(origin, []).append(sequence)
        for origin, sequences in by_origin.items():
            yield sequences, origin


class _OpenEntryBatch(_EntryBatch):
    """Entries that came one after the other; more may follow."""

    __slots__ = ()

    sequences: list[int]
    checksums: list[int]
    own_txids: list[int]

    def __init__(
        self, sequence: int, checksum: int, txid: int, topic: JournalTopic, origin: JournalOrigin
    ) -> None:
        super().__init__([sequence], [checksum], (txid, txid), topic, origin)
        self.own_txids = [txid]

    def can_append(self, sequence: int, topic: JournalTopic, origin: JournalOrigin) -> bool:
        """Return whether another entry can be appended to this run."""
        return (
            sequence > self.sequences[-1]
            and len(self.sequences) < _MAX_GROWN
            and topic == self.topic
            and origin == self.origin
        )

    def append_entry(self, sequence: int, checksum: int, txid: int) -> None:
        """Append an entry."""
        self.sequences.append(sequence)
        self.checksums.append(checksum)
        self.own_txids.append(txid)
        self.txids = self.txids[0], txid


class _PublisherBatches:
    """The runs of one identity: most are above those before them, and some are late."""

    __slots__ = ("ascending_batches", "first_sequences", "late_batches")

    def __init__(self) -> None:
        self.ascending_batches: list[_EntryBatch] = []
        self.first_sequences: list[int] = []
        self.late_batches: list[_EntryBatch] = []

    def add_batch(self, run: _EntryBatch) -> None:
        first = run.sequences[0]
        if self.ascending_batches and first <= self.ascending_batches[-1].sequences[-1]:
            self.late_batches = [*self.late_batches[1 - _MAX_LATE :], run]
        else:
            self.first_sequences.append(first)
            self.ascending_batches.append(run)

    def find_appendable(self, sequence: int) -> _EntryBatch | None:
        """Return the run that an entry may continue; None if there is none."""
        ascending_batches, late_batches = self.ascending_batches, self.late_batches
        if ascending_batches and sequence <= ascending_batches[-1].sequences[-1]:
            return late_batches[-1] if late_batches else None
        return ascending_batches[-1] if ascending_batches else None

    def find(self, sequence: int) -> RecentEntry | None:
        place = bisect_right(self.first_sequences, sequence) - 1
        found = self.ascending_batches[place].find(sequence) if place >= 0 else None
        for run in self.late_batches if found is None else ():
            found = found or run.find(sequence)
        return found


class RecentEntries:
    """The entries that were recorded last.

    Args:
        most: the maximum number of remembered entries.
    """

    def __init__(self, most: int = MAX_RECENT_ENTRIES) -> None:
        self._half_capacity = max(most // 2, 1)
        self._newer: dict[int, _PublisherBatches] = {}
        self._older: dict[int, _PublisherBatches] = {}
        self._count = 0

    def add_batch(
        self,
        client: int,
        sequences: Sequence[int],
        checksums: Sequence[int],
        txids: tuple[int, int],
        topic: JournalTopic,
        origin: JournalOrigin,
    ) -> None:
        """Remember entries of one identity that were recorded together.

        Args:
            client: the identity.
            sequences: their numbers.
            checksums: of each body with extras.
            txids: of the first and the last.
            topic: where they were published.
            origin: user and path.
        """
        self._rotate_if_full()
        self._publisher_batches(client).add_batch(
            _EntryBatch(sequences, checksums, txids, topic, origin)
        )
        self._count += len(sequences)

    def add_mixed_batch(
        self,
        client: int,
        sequences: Sequence[int],
        checksums: Sequence[int],
        txids: tuple[int, int],
        own_txids: Sequence[int] | None,
        kinds: Sequence[TopicOrigin],
    ) -> None:
        """Remember entries of one identity that were recorded together, of several kinds.

        Args:
            client: the identity.
            sequences: their numbers.
            checksums: of each body with extras.
            txids: of the first and the last.
            own_txids: of each, ascending; None if that is not known.
            kinds: of each, where it was published, and user and path.
        """
        if all(map(lt, sequences, islice(sequences, 1, None))):
            self._rotate_if_full()
            run = _EntryBatch(sequences, checksums, txids, *kinds[0])
            run.own_txids, run.topic_origins = own_txids, kinds
            self._publisher_batches(client).add_batch(run)
            self._count += len(sequences)
            return
        each = zip(sequences, checksums, kinds, strict=True)
        for place, (sequence, checksum, kind) in enumerate(each):
            own = txids if own_txids is None else (own_txids[place],) * 2
            self.add_batch(client, (sequence,), (checksum,), own, *kind)

    def add_entry(
        self,
        client: int,
        sequence: int,
        checksum: int,
        txid: int,
        topic: JournalTopic,
        origin: JournalOrigin,
    ) -> None:
        """Remember an entry; see `add_batch`. Most come after others of the same kind."""
        self._rotate_if_full()
        runs = self._publisher_batches(client)
        last = runs.find_appendable(sequence)
        if isinstance(last, _OpenEntryBatch) and last.can_append(sequence, topic, origin):
            last.append_entry(sequence, checksum, txid)
        else:
            runs.add_batch(_OpenEntryBatch(sequence, checksum, txid, topic, origin))
        self._count += 1

    def _rotate_if_full(self) -> None:
        if self._count >= self._half_capacity:
            self._older, self._newer, self._count = self._newer, {}, 0

    def _publisher_batches(self, client: int) -> _PublisherBatches:
        runs = self._newer.get(client)
        if runs is None:
            runs = self._newer[client] = _PublisherBatches()
        return runs

    def find(self, client: int, sequence: int) -> RecentEntry | None:
        """Return an entry, None if it is not remembered."""
        for runs in (self._newer.get(client), self._older.get(client)):
            found = None if runs is None else runs.find(sequence)
            if found is not None:
                return found
        return None

    def entries_after(self, txid: int) -> Iterator[tuple[int, Sequence[int], JournalOrigin]]:
        """Yield the remembered entries behind a txid: identities, numbers, and origins."""
        for known in (self._older, self._newer):
            for client, runs in known.items():
                for run in (*runs.ascending_batches, *runs.late_batches):
                    for sequences, origin in run.entries_after(txid):
                        yield client, sequences, origin
