"""Batches of entries in transit between instances, as columns.

Decisions are made once for each column rather than once for each entry: most columns have one
value, or consecutive numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from operator import lt
from typing import NamedTuple, TypeAlias, overload

from server.storage.journal import EntryColumns, FieldColumn, JournalOrigin, JournalTopic


class ConstantColumn(Sequence[int]):
    """A column in which all values are the same.

    Args:
        value: that value.
        count: the number of entries.
    """

    __slots__ = ("_count", "value")

    def __init__(self, value: int, count: int) -> None:
        self.value = value
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> ConstantColumn: ...
    def __getitem__(self, index: int | slice) -> int | ConstantColumn:
        if isinstance(index, slice):
            return ConstantColumn(self.value, len(range(self._count)[index]))
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self.value

    def __iter__(self) -> Iterator[int]:
        return repeat(self.value, self._count)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ConstantColumn):
            return (self.value, self._count) == (other.value, other._count)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.value, self._count))


EntryColumn: TypeAlias = Sequence[int]
"""One field of all entries: a `ConstantColumn`, a `range`, or a list."""


class SharedProperties(NamedTuple):
    """The properties that many entries share, so that they are sent once.

    Attributes:
        topic: where they were published.
        origin: user and path: at the source, as its log has them; at the receiver, with the source
            at the end of the path.
        extras_length: bytes of extras behind each body.
    """

    topic: JournalTopic
    origin: JournalOrigin
    extras_length: int = 0


class BatchColumns(NamedTuple):
    """Entries in the order of the log that they come from; topics may alternate.

    Attributes:
        properties: their shared properties.
        property_indexes: the index into `properties` of each entry.
        txids: their numbers in the log of the source.
        clients: the identities of their publishers.
        sequences: their publishers' numbers; for publishers that give none, the txid at the
            instance where they were published.
        source_txids: the txid at the instance where they were published; for publishers that give
            no numbers, the hash of the client name.
        kinds: their kinds, see `JournalEntryKind`.
        sow_keys: SOW keys as numbers, 0 for none.
        expirations: their remaining lifetimes in seconds, 0 for no limit.
        checksums: of bodies with extras.
        data: the bodies with extras.
    """

    properties: Sequence[SharedProperties]
    property_indexes: EntryColumn
    txids: EntryColumn
    clients: EntryColumn
    sequences: EntryColumn
    source_txids: EntryColumn
    kinds: EntryColumn
    sow_keys: EntryColumn
    expirations: EntryColumn
    checksums: Sequence[int]
    data: Sequence[bytes]

    def properties_of(self, position: int) -> SharedProperties:
        """Return the shared properties of one entry."""
        return self.properties[self.property_indexes[position]]

    def used_properties(self) -> dict[int, SharedProperties]:
        """Return the properties that occur, by index, in the order of their first entries."""
        property_indexes = self.property_indexes
        if isinstance(property_indexes, ConstantColumn):
            return {property_indexes.value: self.properties[property_indexes.value]}
        return {number: self.properties[number] for number in dict.fromkeys(property_indexes)}

    def journal_columns(self, source: int) -> EntryColumns:
        """Return the entries as content for a journal.

        Args:
            source: the hash of the name of the instance that has sent them.
        """
        used = self.used_properties()
        extras: FieldColumn = next(iter(used.values())).extras_length
        if any(properties.extras_length != extras for properties in used.values()):
            extras = [used[number].extras_length for number in self.property_indexes]
        return EntryColumns(
            field_of(self.property_indexes),
            field_of(self.clients),
            field_of(self.sequences),
            field_of(self.source_txids),
            source,
            field_of(self.kinds),
            field_of(self.sow_keys),
            field_of(self.expirations),
            extras,
            self.checksums,
            self.data,
        )

    def pick(self, positions: Sequence[int]) -> BatchColumns:
        """Return some of the entries."""
        if len(positions) == len(self.data):
            return self
        properties, *columns, data = self
        selected = [pick_values(column, positions) for column in columns]
        return BatchColumns._make(
            (properties, *selected, [data[position] for position in positions])
        )


class ReplicationBatch(NamedTuple):
    """The entries of a part of a source's log that are sent to one destination; as received there.

    Attributes:
        after: the txid before its first.
        upto: its last txid; txids up to there without an entry are not sent there.
        columns: the entries; None if there are none.
        is_late: it had been skipped (see `SkippedEntries`), and does not follow the batch before.
    """

    after: int
    upto: int
    columns: BatchColumns | None
    is_late: bool = False

    @property
    def entry_count(self) -> int:
        """The number of entries."""
        return 0 if self.columns is None else len(self.columns.data)

    @property
    def size_bytes(self) -> int:
        """Bytes of bodies with extras."""
        return 0 if self.columns is None else sum(map(len, self.columns.data))


class PackedBatch(NamedTuple):
    """A `ReplicationBatch` as it is sent; entries are not processed one by one.

    Attributes:
        after: see `ReplicationBatch`.
        upto: see `ReplicationBatch`.
        entry_count: the number of entries.
        names: their topics and origins, as the first column numbers them.
        columns: see docs/formats/replication.md.
        data: the bodies with extras, back to back.
        is_late: see `ReplicationBatch`.
    """

    after: int
    upto: int
    entry_count: int
    names: Sequence[tuple[JournalTopic, JournalOrigin]]
    columns: bytes
    data: bytes
    is_late: bool = False


def is_ascending(numbers: Sequence[int]) -> bool:
    """Return whether each number is above the one before."""
    return all(map(lt, numbers, islice(numbers, 1, None)))


def field_of(column: EntryColumn) -> FieldColumn:
    """Return a column in the form of a field of journals and records."""
    return column.value if isinstance(column, ConstantColumn) else column


def pick_values(column: EntryColumn, positions: Sequence[int]) -> EntryColumn:
    """Return some values of a column."""
    if isinstance(column, ConstantColumn):
        return ConstantColumn(column.value, len(positions))
    if isinstance(positions, range):
        return column[positions[0] : positions[-1] + 1]
    return [column[position] for position in positions]


def distinct_values(column: EntryColumn) -> Iterable[int]:
    """Return the values of a column; of equal or consecutive ones only the first."""
    if isinstance(column, ConstantColumn | range):
        return (column[0],)
    return column


def compact_column(values: Sequence[int]) -> EntryColumn:
    """Return a column in the most compact form that fits its values."""
    first, count = values[0], len(values)
    if count == 1:
        return ConstantColumn(first, 1)
    if values[-1] == first:
        return ConstantColumn(first, count) if values.count(first) == count else values
    if values[-1] - first == count - 1:
        numbers = range(first, first + count)
        if list(values) == list(numbers):
            return numbers
    return values


def rows(keys: Iterable[object]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each range of equal keys."""
    start = 0
    for _, group in groupby(keys):
        end = start + sum(1 for _ in group)
        yield start, end
        start = end


def by_client(clients: EntryColumn) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the identities in a column, each with its positions."""
    return by_value(clients)


def by_value(column: EntryColumn) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the values of a column, each with its positions."""
    if isinstance(column, ConstantColumn):
        yield column.value, range(len(column))
        return
    positions_by_value: dict[int, list[int]] = {}
    for position, value in enumerate(column):
        positions_by_value.setdefault(value, []).append(position)
    yield from positions_by_value.items()
