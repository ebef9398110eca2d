"""A range of the log: entries packed as in the file, for forwarding.

Callers that need the fields of entries take rows (`to_entry_range`). To send entries to
another instance, or to subscribers, it is enough that they are intact, and that their topics and
origins are known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.entry import JournalEntry, JournalOrigin, JournalTopic
from server.storage.journal.format.layout import (
    BODY_LENGTH,
    BODY_START,
    EXTRAS_HEAD,
    EXTRAS_LENGTH,
    ORIGIN,
    RECORD,
    RECORD_SIZE,
    TIMESTAMP,
    TOPIC,
    TXID,
    EntryRow,
)
from server.storage.journal.format.records import (
    RECORD_TYPE,
    FileDefinitions,
    entry_of,
    make_file_definitions,
)
from server.storage.journal.read.entry_batch import EntryBatch, EntryRange
from server.storage.journal.read.entry_filter import alike, cut, kinds, pick

_ORIGIN_SHIFT: Final = 32
_TOPIC_MASK: Final = (1 << _ORIGIN_SHIFT) - 1


class DamagedEntry(NamedTuple):
    """An entry that cannot be read: it is damaged.

    Attributes:
        txid: its txid.
        batch: the entry without its body, if only the body is damaged; else None, and its publisher
            and topic are not known.
    """

    txid: int
    batch: EntryBatch | None = None


@dataclass(slots=True, eq=False)
class RawEntryBatch:
    """Consecutive entries with the same topic and origin, all or none of which have extras.

    Attributes:
        topic: the topic that they were published to.
        origin: user and replication path.
        records: their records, as in a `RawEntryRange`.
        bodies: their bodies, likewise.
        kind: the kind of their records, see `RawEntryRange.kinds`.
        has_extras: they have correlation ids, or SOW keys that their publisher gave.
    """

    topic: JournalTopic
    origin: JournalOrigin
    records: bytes
    bodies: bytes
    kind: int
    has_extras: bool = field(kw_only=True)

    def __len__(self) -> int:
        return len(self.records) // RECORD_SIZE

    def split_bodies(self) -> list[bytes]:
        """Return the bodies one by one, with the extras."""
        return cut(self.records, self.bodies)

    def entry_at(self, position: int) -> JournalEntry:
        """Return the entry at a position."""
        return entry_of(
            *_row_and_body(self.records, self.bodies, position), self.topic, self.origin
        )

    def pick(self, positions: Sequence[int]) -> RawEntryBatch:
        """Return the entries at the positions, in their order."""
        records = pick(self.records, positions)
        return RawEntryBatch(
            self.topic, self.origin, records, self.bodies, self.kind, has_extras=self.has_extras
        )


@dataclass(slots=True, eq=False)
class RawEntryRange:
    """Some entries of one journal file, in order. All of them are intact.

    Attributes:
        records: as in the file, except that each has its body's offset in `bodies`.
        bodies: bodies with extras; there may be others between them.
        definitions: the topics and origins by their numbers.
        damaged_entries: damaged entries that were left out, in order.
    """

    records: bytes
    bodies: bytes
    definitions: FileDefinitions
    damaged_entries: Sequence[DamagedEntry] = ()

    def __bool__(self) -> bool:
        """Return whether there are entries, or damaged ones."""
        return bool(self.records or self.damaged_entries)

    def __len__(self) -> int:
        return len(self.records) // RECORD_SIZE

    def txid_at(self, position: int) -> int:
        """Return the txid of the entry at a position."""
        txid: int = RECORD.unpack_from(self.records, position * RECORD_SIZE)[TXID]
        return txid

    def to_array(self) -> npt.NDArray[np.void]:
        """Return the records of the entries, in order, as one array of RECORD_TYPE."""
        return np.frombuffer(self.records, RECORD_TYPE)

    def entry_at(self, position: int) -> JournalEntry:
        """Return the entry at a position."""
        row, data = _row_and_body(self.records, self.bodies, position)
        return entry_of(
            row, data, self.definitions.topics[row[TOPIC]], self.definitions.origins[row[ORIGIN]]
        )

    def split_bodies(self) -> list[bytes]:
        """Return the bodies one by one, with the extras."""
        return cut(self.records, self.bodies)

    def find_given_keys(self) -> npt.NDArray[np.intp]:
        """Return the positions of the entries that seem to have a SOW key in their extras."""
        columns = self.to_array()
        positions = np.flatnonzero(columns["extras_length"] >= EXTRAS_HEAD)
        ends = columns["body_start"][positions] + columns["body_length"][positions]
        lengths = ends.astype(np.intp) + EXTRAS_HEAD // 2  # after the correlation id's length
        octets = np.frombuffer(self.bodies, np.uint8)
        with_keys: npt.NDArray[np.intp] = positions[(octets[lengths] | octets[lengths + 1]) > 0]
        return with_keys

    def as_damaged(self, position: int) -> DamagedEntry:
        """Return the entry at a position as a `DamagedEntry`, without its damaged body."""
        row = RECORD.unpack_from(self.records, position * RECORD_SIZE)
        batch = EntryBatch(
            self.definitions.topics[row[TOPIC]],
            self.definitions.origins[row[ORIGIN]],
            (row,),
            (b"",),
        )
        return DamagedEntry(row[TXID], batch)

    @property
    def last_timestamp(self) -> int:
        """The time when the last entry was recorded, in microseconds since the Unix epoch."""
        row = RECORD.unpack_from(self.records, len(self.records) - RECORD_SIZE)
        timestamp: int = row[TIMESTAMP]
        return timestamp

    def batches(self) -> Iterator[RawEntryBatch]:
        """Yield the entries in batches of maximum length."""
        definitions, records = self.definitions, self.records
        for start, end in alike(records):
            part = records[start * RECORD_SIZE : end * RECORD_SIZE]
            row = RECORD.unpack_from(part)
            topic, origin = definitions.topics[row[TOPIC]], definitions.origins[row[ORIGIN]]
            has_extras = row[EXTRAS_LENGTH] > 0
            kind = row[TOPIC] | row[ORIGIN] << _ORIGIN_SHIFT
            yield RawEntryBatch(topic, origin, part, self.bodies, kind, has_extras=has_extras)

    def kinds(self) -> Sequence[int] | None:
        """Return the kinds of the entries, each once; None if any entry has extras."""
        return kinds(self.records)

    def topic_and_origin(self, kind: int) -> tuple[JournalTopic, JournalOrigin]:
        """Return the topic and the origin of entries of a kind."""
        topics, origins = self.definitions.topics, self.definitions.origins
        return topics[kind & _TOPIC_MASK], origins[kind >> _ORIGIN_SHIFT]

    def to_entry_range(self) -> EntryRange:
        """Return the entries as rows and bodies."""
        rows = list(RECORD.iter_unpack(self.records))
        return EntryRange(rows, cut(self.records, self.bodies), self.definitions)

    def pick(self, positions: Sequence[int]) -> RawEntryRange:
        """Return the entries at the positions, in their order."""
        if len(positions) == len(self):
            return self
        return RawEntryRange(
            pick(self.records, positions), self.bodies, self.definitions, self.damaged_entries
        )

    def part(self, start: int, end: int) -> RawEntryRange:
        """Return the entries from position `start` to before `end`."""
        if not start and end == len(self):
            return self
        records = self.records[start * RECORD_SIZE : end * RECORD_SIZE]
        return RawEntryRange(records, self.bodies, self.definitions)

    def up_to(self, txid: int) -> RawEntryRange:
        """Return the entries up to a txid."""
        count = len(self)
        return self.pick(range(bisect_right(range(count), txid, key=self.txid_at)))


def _row_and_body(records: bytes, bodies: bytes, position: int) -> tuple[EntryRow, bytes]:
    """Return the record of the entry at a position, and its body with the extras."""
    row = RECORD.unpack_from(records, position * RECORD_SIZE)
    start = row[BODY_START]
    return row, bodies[start : start + row[BODY_LENGTH] + row[EXTRAS_LENGTH]]


NO_RAW_ENTRIES: Final = RawEntryRange(b"", b"", make_file_definitions())
"""No entries."""
