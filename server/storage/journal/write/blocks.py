"""Blocks: entries that are appended together.

A batch of publishes to one topic by one publisher differs in sequence numbers and bodies only, and
entries from another instance are in columns already. So a block has common fields once, and the
others in columns; `make_block` encodes records from these. Beside them is the position at which the
log goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, TypeAlias, TypeVar

from server.storage.journal.errors import JournalUnavailableError
from server.storage.journal.format.layout import PAGE
from server.storage.journal.write.handles import Handles

_Value = TypeVar("_Value")

FieldColumn: TypeAlias = int | Sequence[int]
"""The values of entries in one field: one for all, or one for each."""


def each(field: FieldColumn, count: int) -> Iterable[int]:
    """Return the value of a field for each of `count` entries."""
    return repeat(field, count) if isinstance(field, int) else field


def of_one(field: FieldColumn, index: int) -> int:
    """Return the value of a field for the entry at an index."""
    return field if isinstance(field, int) else field[index]


def part_of(field: FieldColumn, start: int, stop: int) -> FieldColumn:
    """Return the field of consecutive entries, `start` to before `stop`."""
    return field if isinstance(field, int) else field[start:stop]


def values_at(column: Sequence[_Value], rows: Sequence[int]) -> Sequence[_Value]:
    """Return the values of a column at some rows; a column without values stays empty."""
    if not column:
        return column
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    return [column[row] for row in rows]


def fields_at(field: FieldColumn, rows: Sequence[int]) -> FieldColumn:
    """Return the field of some entries."""
    return field if isinstance(field, int) else values_at(field, rows)


def map_column(field: FieldColumn, make: Callable[[int], int]) -> FieldColumn:
    """Compute another field from the values of this one."""
    return make(field) if isinstance(field, int) else [make(one) for one in field]


class EntryColumns(NamedTuple):
    """The contents of entries. See `JournalEntry` for the fields.

    Attributes:
        handle_keys: keys of topic and origin in the `Handles` that the caller gives.
        clients: as the records have them.
        sequences: likewise.
        source_txids: likewise.
        source: likewise, one for all.
        kinds: the kinds of the entries.
        sow_keys: SOW keys as numbers, 0 for none.
        expirations: lifetimes in seconds, 0 for none.
        extras_length: bytes of extras after each body.
        checksums: checksums of bodies with extras; empty if they have not been computed yet.
        data: the bodies with extras.
    """

    handle_keys: FieldColumn
    clients: FieldColumn
    sequences: FieldColumn
    source_txids: FieldColumn
    source: int
    kinds: FieldColumn
    sow_keys: FieldColumn
    expirations: FieldColumn
    extras_length: FieldColumn
    checksums: Sequence[int]
    data: Sequence[bytes]

    def part(self, start: int, stop: int) -> EntryColumns:
        """Return consecutive entries, `start` to before `stop`."""
        if not start and stop == len(self.data):
            return self
        return EntryColumns(
            part_of(self.handle_keys, start, stop),
            part_of(self.clients, start, stop),
            part_of(self.sequences, start, stop),
            part_of(self.source_txids, start, stop),
            self.source,
            part_of(self.kinds, start, stop),
            part_of(self.sow_keys, start, stop),
            part_of(self.expirations, start, stop),
            part_of(self.extras_length, start, stop),
            self.checksums[start:stop],
            self.data[start:stop],
        )


@dataclass(slots=True)
class WritePosition:
    """The position at which the log goes on.

    Attributes:
        next_txid: txid of the next entry.
        bodies_end: offset in bytes after the last body in the current file.
        count: number of entries in that file.
        extras_count: number of entries in it that have extras.
        first_timestamp: time of its first entry, in microseconds since the Unix epoch.
        last_timestamp: time of the last entry of the log.
    """

    next_txid: int
    bodies_end: int = PAGE
    count: int = 0
    extras_count: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class AppendPosition:
    """The position of entries that are appended together.

    Attributes:
        first_txid: txid of the first entry.
        timestamp: timestamp of all of them, in microseconds since the Unix epoch.
        bodies_end: offset in bytes of the first body in the file.
        topics: the topics' numbers in the file.
        origins: the origins' numbers in the file.
        durable_txid: the last txid on stable storage.
    """

    first_txid: int
    timestamp: int
    bodies_end: int
    topics: FieldColumn
    origins: FieldColumn
    durable_txid: int


class AppendResult(NamedTuple):
    """The part of a batch that one call has appended, with one timestamp.

    Attributes:
        end: the position of the first entry that has not been appended; their number if all have.
        txids: txids of the appended entries.
        timestamp: their timestamp, in microseconds since the Unix epoch.
        problem: why the entry at `end` cannot be appended; None if it has not been tried.
        flags: their flags, as the records have them.
        checksums: checksums of their bodies, for publishes.
    """

    end: int
    txids: Sequence[int]
    timestamp: int
    problem: JournalUnavailableError | None
    flags: FieldColumn = 0
    checksums: Sequence[int] = ()


def handle_numbers(handles: Handles, names: FieldColumn) -> tuple[FieldColumn, FieldColumn]:
    """Return the numbers of topics and origins in the current file."""
    topics = {name: topic.number for name, (topic, _) in handles.items()}
    origins = {
        name: 0 if origin is None else origin.number for name, (_, origin) in handles.items()
    }
    if isinstance(names, int):
        return topics[names], origins[names]
    return [topics[name] for name in names], [origins[name] for name in names]
