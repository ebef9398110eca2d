"""The last entries recorded: gives the position of a duplicate, and detects a different body.

Two publishers with one name, or one that restarts its numbers, use a number for two messages. Only
one of the messages is kept, and that must be reported: checksums detect it.
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

_MAX_LATE_BATCHES: Final = 64
_MAX_OPEN_BATCH: Final = 256
"""Entries that were added one after the other and are kept together."""


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
        self.topic_origins: Sequence[TopicOrigin] | None = None  # of each, if they differ

    def find(self, sequence: int) -> RecentEntry | None:
        position = bisect_right(self.sequences, sequence) - 1
        if position < 0 or self.sequences[position] != sequence:
            return None
        first, last = self.txids
        if self.own_txids is not None:
            first = last = self.own_txids[position]
        elif last - first == len(self.sequences) - 1:
            first = last = first + position
        topic, origin = self._topic_origin(position)
        return RecentEntry(self.checksums[position], first, last, topic, origin)

    def _topic_origin(self, position: int) -> TopicOrigin:
        return (
            (self.topic, self.origin)
            if self.topic_origins is None
            else self.topic_origins[position]
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
    """Entries that were added one after the other; more may follow."""

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
        """Return whether another entry can be appended to this batch."""
        return (
            sequence > self.sequences[-1]
            and len(self.sequences) < _MAX_OPEN_BATCH
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
    """The batches of one identity: most are above those before them, and some are late."""

    __slots__ = ("ascending_batches", "first_sequences", "late_batches")

    def __init__(self) -> None:
        self.ascending_batches: list[_EntryBatch] = []
        self.first_sequences: list[int] = []
        self.late_batches: list[_EntryBatch] = []

    def add_batch(self, batch: _EntryBatch) -> None:
        first = batch.sequences[0]
        if self.ascending_batches and first <= self.ascending_batches[-1].sequences[-1]:
            self.late_batches = [*self.late_batches[1 - _MAX_LATE_BATCHES :], batch]
        else:
            self.first_sequences.append(first)
            self.ascending_batches.append(batch)

    def find_appendable(self, sequence: int) -> _EntryBatch | None:
        """Return the batch to which an entry may be appended; None if there is none."""
        ascending_batches, late_batches = self.ascending_batches, self.late_batches
        if ascending_batches and sequence <= ascending_batches[-1].sequences[-1]:
            return late_batches[-1] if late_batches else None
        return ascending_batches[-1] if ascending_batches else None

    def find(self, sequence: int) -> RecentEntry | None:
        position = bisect_right(self.first_sequences, sequence) - 1
        entry = self.ascending_batches[position].find(sequence) if position >= 0 else None
        for batch in self.late_batches if entry is None else ():
            entry = entry or batch.find(sequence)
        return entry


class RecentEntries:
    """The entries that were recorded last.

    Args:
        max_entries: the maximum number of stored entries.
    """

    def __init__(self, max_entries: int = MAX_RECENT_ENTRIES) -> None:
        self._half_capacity = max(max_entries // 2, 1)
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
        """Add entries of one identity that were recorded together.

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
        topic_origins: Sequence[TopicOrigin],
    ) -> None:
        """Add entries of one identity that were recorded together, of several topics or origins.

        Args:
            client: the identity.
            sequences: their numbers.
            checksums: of each body with extras.
            txids: of the first and the last.
            own_txids: of each, ascending; None if that is not known.
            topic_origins: of each, where it was published, and user and path.
        """
        if all(map(lt, sequences, islice(sequences, 1, None))):
            self._rotate_if_full()
            batch = _EntryBatch(sequences, checksums, txids, *topic_origins[0])
            batch.own_txids, batch.topic_origins = own_txids, topic_origins
            self._publisher_batches(client).add_batch(batch)
            self._count += len(sequences)
            return
        each = zip(sequences, checksums, topic_origins, strict=True)
        for position, (sequence, checksum, topic_origin) in enumerate(each):
            entry_txids = txids if own_txids is None else (own_txids[position],) * 2
            self.add_batch(client, (sequence,), (checksum,), entry_txids, *topic_origin)

    def add_entry(
        self,
        client: int,
        sequence: int,
        checksum: int,
        txid: int,
        topic: JournalTopic,
        origin: JournalOrigin,
    ) -> None:
        """Add an entry; see `add_batch`. Most follow others of the same topic and origin."""
        self._rotate_if_full()
        batches = self._publisher_batches(client)
        last = batches.find_appendable(sequence)
        if isinstance(last, _OpenEntryBatch) and last.can_append(sequence, topic, origin):
            last.append_entry(sequence, checksum, txid)
        else:
            batches.add_batch(_OpenEntryBatch(sequence, checksum, txid, topic, origin))
        self._count += 1

    def _rotate_if_full(self) -> None:
        if self._count >= self._half_capacity:
            self._older, self._newer, self._count = self._newer, {}, 0

    def _publisher_batches(self, client: int) -> _PublisherBatches:
        batches = self._newer.get(client)
        if batches is None:
            batches = self._newer[client] = _PublisherBatches()
        return batches

    def find(self, client: int, sequence: int) -> RecentEntry | None:
        """Return an entry, None if it is not remembered."""
        for batches in (self._newer.get(client), self._older.get(client)):
            entry = None if batches is None else batches.find(sequence)
            if entry is not None:
                return entry
        return None

    def entries_after(self, txid: int) -> Iterator[tuple[int, Sequence[int], JournalOrigin]]:
        """Yield the remembered entries behind a txid: identities, numbers, and origins."""
        for generation in (self._older, self._newer):
            for client, batches in generation.items():
                for batch in (*batches.ascending_batches, *batches.late_batches):
                    for sequences, origin in batch.entries_after(txid):
                        yield client, sequences, origin
