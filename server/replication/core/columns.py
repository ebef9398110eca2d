"""Batches of entries in transit between instances, as columns.

Decisions are made once for each column rather than once for each entry: most columns have one
value, or consecutive numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from typing import NamedTuple, TypeAlias, overload

from server.storage.journal import Content, Field, Origin, Topic


class Same(Sequence[int]):
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
    def __getitem__(self, index: slice) -> Same: ...
    def __getitem__(self, index: int | slice) -> int | Same:
        if isinstance(index, slice):
            return Same(self.value, len(range(self._count)[index]))
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self.value

    def __iter__(self) -> Iterator[int]:
        return repeat(self.value, self._count)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Same):
            return (self.value, self._count) == (other.value, other._count)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.value, self._count))


Column: TypeAlias = Sequence[int]
"""One field of all entries: a `Same`, a `range`, or a list."""


class Name(NamedTuple):
    """The properties that many entries share, so that they are sent once.

    Attributes:
        topic: where they were published.
        origin: user and path: at the source, as its log has them; at the receiver, with the source
            at the end of the path.
        extras_length: bytes of extras behind each body.
    """

    topic: Topic
    origin: Origin
    extras_length: int = 0


class Columns(NamedTuple):
    """Entries in the order of the log that they come from; topics may alternate.

    Attributes:
        names: their shared properties.
        numbers: the index into `names` of each entry.
        txids: their numbers in the log of the source.
        clients: the identities of their publishers.
        sequences: their publishers' numbers; for publishers that give none, the txid at the
            instance where they were published.
        source_txids: the txid at the instance where they were published; for publishers that give
            no numbers, the hash of the client name.
        kinds: their kinds, see `Kind`.
        sow_keys: SOW keys as numbers, 0 for none.
        expirations: seconds that they live from now on, 0 for ever.
        checksums: of bodies with extras.
        data: the bodies with extras.
    """

    names: Sequence[Name]
    numbers: Column
    txids: Column
    clients: Column
    sequences: Column
    source_txids: Column
    kinds: Column
    sow_keys: Column
    expirations: Column
    checksums: Sequence[int]
    data: Sequence[bytes]

    def name(self, position: int) -> Name:
        """Return the name of one entry."""
        return self.names[self.numbers[position]]

    def used(self) -> dict[int, Name]:
        """Return the names that occur, by number, in the order of their first entries."""
        numbers = self.numbers
        if isinstance(numbers, Same):
            return {numbers.value: self.names[numbers.value]}
        return {number: self.names[number] for number in dict.fromkeys(numbers)}

    def content(self, source: int) -> Content:
        """Return the entries as content for a journal.

        Args:
            source: the hash of the instance that they came from.
        """
        used = self.used()
        extras: Field = next(iter(used.values())).extras_length
        if any(name.extras_length != extras for name in used.values()):
            extras = [used[number].extras_length for number in self.numbers]
        return Content(
            field_of(self.numbers),
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

    def pick(self, positions: Sequence[int]) -> Columns:
        """Return some of the entries."""
        if len(positions) == len(self.data):
            return self
        names, *columns, data = self
        chosen = [picked(column, positions) for column in columns]
        return Columns._make((names, *chosen, [data[position] for position in positions]))


class Batch(NamedTuple):
    """A part of a source's log, as far as it goes to one destination; as received there.

    Attributes:
        after: the txid before its first.
        upto: its last txid; txids up to there without an entry do not go there.
        columns: the entries; None if there are none.
        is_late: it had been skipped (see `arrears`), and does not follow on the batch before.
    """

    after: int
    upto: int
    columns: Columns | None
    is_late: bool = False

    @property
    def entries(self) -> int:
        """The number of entries."""
        return 0 if self.columns is None else len(self.columns.data)

    @property
    def size(self) -> int:
        """Bytes of bodies with extras."""
        return 0 if self.columns is None else sum(map(len, self.columns.data))


class Packed(NamedTuple):
    """A `Batch` as it is sent; entries are not handled one by one.

    Attributes:
        after: see `Batch`.
        upto: see `Batch`.
        entries: the number of entries.
        names: their topics and origins, as the first column numbers them.
        columns: see docs/formats/replication.md.
        data: the bodies with extras, back to back.
        is_late: see `Batch`.
    """

    after: int
    upto: int
    entries: int
    names: Sequence[tuple[Topic, Origin]]
    columns: bytes
    data: bytes
    is_late: bool = False


def field_of(column: Column) -> Field:
    """Return a column in the form of a field of journals and records."""
    return column.value if isinstance(column, Same) else column


def picked(column: Column, positions: Sequence[int]) -> Column:
    """Return some values of a column."""
    if isinstance(column, Same):
        return Same(column.value, len(positions))
    if isinstance(positions, range):
        return column[positions[0] : positions[-1] + 1]
    return [column[position] for position in positions]


def different(column: Column) -> Iterable[int]:
    """Return the values of a column; of equal or consecutive ones only the first."""
    if isinstance(column, Same | range):
        return (column[0],)
    return column


def compact(values: Sequence[int]) -> Column:
    """Return a column in the most compact form that fits its values."""
    first, count = values[0], len(values)
    if count == 1:
        return Same(first, 1)
    if values[-1] == first:
        return Same(first, count) if values.count(first) == count else values
    if values[-1] - first == count - 1:
        numbers = range(first, first + count)
        if list(values) == list(numbers):
            return numbers
    return values


def rows(keys: Iterable[object]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each range of equal keys."""
    start = 0
    for _, alike in groupby(keys):
        end = start + sum(1 for _ in alike)
        yield start, end
        start = end


def by_client(clients: Column) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the identities in a column, each with its positions."""
    return by_value(clients)


def by_value(column: Column) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the values of a column, each with its positions."""
    if isinstance(column, Same):
        yield column.value, range(len(column))
        return
    places: dict[int, list[int]] = {}
    for position, value in enumerate(column):
        places.setdefault(value, []).append(position)
    yield from places.items()
