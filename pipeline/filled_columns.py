"""Columns that compiled readers fill (`server.message_types.columns`), as Arrow has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.packed import Bodies
from server.message_types.columns import ColumnReader, Kind

_PLAIN: Final[Mapping[DataType, tuple[Kind, int]]] = {
    ByteType(): (Kind.WHOLE, 1),
    ShortType(): (Kind.WHOLE, 2),
    IntegerType(): (Kind.WHOLE, 4),
    LongType(): (Kind.WHOLE, 8),
    FloatType(): (Kind.REAL, 4),
    DoubleType(): (Kind.REAL, 8),
    BooleanType(): (Kind.TRUTH, 1),
    StringType(): (Kind.TEXT, 0),
}
_TIMES: Final[Mapping[DataType, tuple[Kind, int]]] = {
    DateType(): (Kind.DAY, 4),
    TimestampType(): (Kind.MOMENT, 8),
    TimestampNTZType(): (Kind.MOMENT, 8),
}
OBJECT: Final = (Kind.OBJECT, 0)

Filled = tuple[bytearray, bytes | bytearray, bytearray | None]
"""What a compiled reader has of a column."""


class Wanted(NamedTuple):
    """A column, as compiled readers want to know it."""

    name: bytes
    kind: Kind
    width: int
    members: Sequence[Wanted] = ()


def plain_kind(kind: DataType, *, with_times: bool) -> tuple[Kind, int] | None:
    """What compiled readers call a single value of a type, and how wide it is; None for others.

    Args:
        kind: the type.
        with_times: whether they read times.
    """
    return _PLAIN.get(kind) or (_TIMES.get(kind) if with_times else None)


class FilledColumn:
    """A column, or a member of one.

    Args:
        field: its name and type, as Arrow has them.
        kind: what compiled readers call that, and how wide it is.
        members: of a struct.
    """

    def __init__(
        self, field: pa.Field, kind: tuple[Kind, int], members: Sequence[FilledColumn] = ()
    ) -> None:
        self.field = field
        self.kind, self._width = kind
        self.members = members

    @property
    def wanted(self) -> Wanted:
        """What a compiled reader is to do for it."""
        members = [member.wanted for member in self.members]
        return Wanted(self.field.name.encode(), self.kind, self._width, members)

    def make(
        self, bodies: Bodies, filled: Mapping[FilledColumn, Filled], odd: set[int]
    ) -> pa.Array:
        """Make the column.

        Args:
            bodies: what it has been read from.
            filled: what the compiled reader has of each column.
            odd: the numbers of bodies whose values are NULL; those join whose value is none.

        Raises:
            PipelineError: a value is out of the range of its type.
        """
        valid, values, offsets = filled[self]
        kind = self.field.type
        if self.kind is Kind.PART:
            return self.decoded(bodies.data, valid, values, odd)
        if self.kind is Kind.OBJECT:
            members = [member.make(bodies, filled, odd) for member in self.members]
            missing = pa.array(~np.frombuffer(valid, np.bool_))
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=missing)
        if self.kind is Kind.TRUTH:
            values = _bits(values)
        buffers = [values] if offsets is None else [offsets, values]
        there = None if 0 not in valid else pa.py_buffer(_bits(valid))
        return pa.Array.from_buffers(kind, len(valid), [there, *map(pa.py_buffer, buffers)])

    def decoded(
        self, data: bytes, valid: bytearray, places: bytes | bytearray, odd: set[int]
    ) -> pa.Array:
        """Make the column of parts of bodies; only who wants parts can.

        Args:
            data: bytes among which they are.
            valid: a byte for each row that says if it has a part.
            places: where that begins and ends in the data.
            odd: the numbers of bodies whose part is no value join.
        """
        raise NotImplementedError


def by_level(columns: Sequence[FilledColumn]) -> Iterator[FilledColumn]:
    """Columns with their members, in the order of compiled readers."""
    levels = [columns]
    for level in levels:
        yield from level
        levels += [column.members for column in level if column.members]


class Filler:
    """Has a compiled reader fill columns.

    Args:
        columns: the columns.
        reader: reads them.
    """

    def __init__(self, columns: Sequence[FilledColumn], reader: ColumnReader) -> None:
        self._columns = columns
        self._in_order = list(by_level(columns))
        self._reader = reader

    def columns(self, bodies: Bodies) -> tuple[list[pa.Array], list[int]]:
        """The columns of some bodies, and the numbers of those that are odd: without values.

        Raises:
            PipelineError: a value is out of the range of its type.
        """
        found, numbers = self._reader.read(bodies.data, bodies.starts, bodies.ends)
        filled = dict(zip(self._in_order, found, strict=True))
        odd = set(numbers)
        return [column.make(bodies, filled, odd) for column in self._columns], sorted(odd)


def in_their_places(
    columns: Iterable[pa.Array], others: Iterable[pa.Array], odd: Sequence[int]
) -> list[pa.Array]:
    """Columns with values of others in them.

    Args:
        columns: the columns.
        others: for each, what stands in some rows.
        odd: which rows.
    """
    return [
        pa.concat_arrays([values, again]).take(_places(len(values), odd))
        for values, again in zip(columns, others, strict=True)
    ]


def _places(count: int, odd: Sequence[int]) -> pa.Array:
    places: npt.NDArray[np.int64] = np.arange(count)
    places[odd] = np.arange(count, count + len(odd))
    return pa.array(places)


def _bits(flags: bytes | bytearray) -> bytes:
    return np.packbits(np.frombuffer(flags, np.bool_), bitorder="little").tobytes()
