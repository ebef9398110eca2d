"""Entries on their way between instances: a batch has runs, a run has columns.

What entries are is decided once for each column rather than once for each entry: most columns have
one value, or numbers that follow on one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias, overload

from server.journal import Content, Field, Origin, Topic


class Same(Sequence[int]):
    """A column in which all values are the same.

    Args:
        value: that value.
        count: how often.
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


class Columns(NamedTuple):
    """Entries of one topic and one origin, in the order of the log that they come from.

    Attributes:
        topic: where they were published.
        origin: user and path: in a log's own words at the source, and with the source at the end of
            the path when they have been received.
        txids: their numbers in the log of the source.
        clients: the identities of their publishers.
        sequences: their publishers' numbers; for those that give none, the txid at the instance
            where they were published.
        source_txids: the txid at the instance where they were published; for publishers that give
            no numbers, the hash of the client name.
        kinds: what they stand for.
        sow_keys: SOW keys as numbers, 0 for none.
        expirations: seconds that they live from now on, 0 for ever.
        extras_length: bytes of extras behind each body.
        checksums: of bodies with extras.
        data: the bodies with extras.
    """

    topic: Topic
    origin: Origin
    txids: Column
    clients: Column
    sequences: Column
    source_txids: Column
    kinds: Column
    sow_keys: Column
    expirations: Column
    extras_length: int
    checksums: Sequence[int]
    data: Sequence[bytes]

    @property
    def bodies(self) -> Sequence[bytes]:
        """The messages without extras."""
        extras = self.extras_length
        return [one[:-extras] for one in self.data] if extras else self.data

    def content(self, source: int) -> Content:
        """What a journal is to say of them.

        Args:
            source: the hash of the instance that they came from.
        """
        return Content(
            _field(self.clients),
            _field(self.sequences),
            _field(self.source_txids),
            source,
            _field(self.kinds),
            _field(self.sow_keys),
            _field(self.expirations),
            self.extras_length,
            self.checksums,
            self.data,
        )

    def pick(self, positions: Sequence[int]) -> Columns:
        """Some of the entries."""
        if len(positions) == len(self.data):
            return self
        return self._replace(
            txids=_pick(self.txids, positions),
            clients=_pick(self.clients, positions),
            sequences=_pick(self.sequences, positions),
            source_txids=_pick(self.source_txids, positions),
            kinds=_pick(self.kinds, positions),
            sow_keys=_pick(self.sow_keys, positions),
            expirations=_pick(self.expirations, positions),
            checksums=[self.checksums[position] for position in positions],
            data=[self.data[position] for position in positions],
        )


class Batch(NamedTuple):
    """A part of a source's log, as far as it goes to one destination; as that receives it.

    Attributes:
        after: the txid before its first.
        upto: its last txid; what is not among the runs does not go there.
        runs: the entries.
        is_late: it had been left out (see `arrears`), and does not follow on the batch before.
    """

    after: int
    upto: int
    runs: Sequence[Columns]
    is_late: bool = False

    @property
    def entries(self) -> int:
        """How many there are."""
        return sum(len(run.data) for run in self.runs)


class Packed(NamedTuple):
    """The same, as it is sent: entries are not looked at one by one.

    Attributes:
        after: see `Batch`.
        upto: see `Batch`.
        entries: how many there are.
        names: their topics and origins, as the first column numbers them.
        columns: see docs/formats/replication.md.
        data: the bodies with extras, back to back.
        ranges: the first and the last txid of each range of entries.
        is_late: see `Batch`.
    """

    after: int
    upto: int
    entries: int
    names: Sequence[tuple[Topic, Origin]]
    columns: bytes
    data: bytes
    ranges: Sequence[tuple[int, int]]
    is_late: bool = False


def _field(column: Column) -> Field:
    return column.value if isinstance(column, Same) else column


def _pick(column: Column, positions: Sequence[int]) -> Column:
    if isinstance(column, Same):
        return Same(column.value, len(positions))
    if isinstance(positions, range) and isinstance(column, range):
        return column[positions[0] : positions[-1] + 1]
    return [column[position] for position in positions]


def different(column: Column) -> Iterable[int]:
    """Values of a column, of equal or consecutive ones the first."""
    if isinstance(column, Same | range):
        return (column[0],)
    return column


def compact(values: Sequence[int]) -> Column:
    """A column in the form that says most at once."""
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


def by_client(clients: Column) -> Iterator[tuple[int, Sequence[int]]]:
    """The identities in a column, each with its positions."""
    if isinstance(clients, Same):
        yield clients.value, range(len(clients))
        return
    places: dict[int, list[int]] = {}
    for position, client in enumerate(clients):
        places.setdefault(client, []).append(position)
    yield from places.items()
