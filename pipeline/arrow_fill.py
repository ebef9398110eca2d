"""Arrow columns from the columns that compiled readers fill (`pipeline.native.columns`)."""

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

from pipeline.native.columns import ColumnReader, Kind
from pipeline.packed_bodies import PackedBodies

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
ARRAY: Final = (Kind.ARRAY, 0)

ColumnBuffers = tuple[bytearray, bytes | bytearray, bytearray | None]
"""The buffers that a compiled reader returns for a column: valid, values, offsets."""


class ColumnRequest(NamedTuple):
    """A column, as compiled readers take it.

    Attributes:
        name: the key of its values, encoded.
        kind: the kind of its values.
        width: of a value, in bytes: 1, 2, 4 or 8 for WHOLE, 4 or 8 for REAL, 1 for TRUTH, 8 for
            MOMENT, 4 for DAY, 16 for PART; 0 for the others.
        members: the columns of an OBJECT; the element of an ARRAY.
    """

    name: bytes
    kind: Kind
    width: int
    members: Sequence[ColumnRequest] = ()


def plain_kind(kind: DataType, *, with_times: bool) -> tuple[Kind, int] | None:
    """Return the kind and width of single values of a type for compiled readers, or None.

    Args:
        kind: the type.
        with_times: whether the readers read times.
    """
    return _PLAIN.get(kind) or (_TIMES.get(kind) if with_times else None)


class FilledColumn:
    """A column, or a member of one.

    Args:
        field: its name and type in Arrow.
        kind: its kind and width for compiled readers.
        members: the members of a struct; the element of an array.
    """

    def __init__(
        self, field: pa.Field, kind: tuple[Kind, int], members: Sequence[FilledColumn] = ()
    ) -> None:
        self.field = field
        self.kind, self._width = kind
        self.members = members

    @property
    def request(self) -> ColumnRequest:
        """The request for it to a compiled reader."""
        members = [member.request for member in self.members]
        return ColumnRequest(self.field.name.encode(), self.kind, self._width, members)

    def build_array(
        self, bodies: PackedBodies, filled: Mapping[FilledColumn, ColumnBuffers], odd: set[int]
    ) -> pa.Array:
        """Return the column.

        Args:
            bodies: the bodies that were read.
            filled: the buffers of each column from the compiled reader.
            odd: the numbers of bodies with NULL values; bodies with invalid values are added.

        Raises:
            PipelineError: a value is out of the range of its type.
        """
        valid, values, offsets = filled[self]
        kind = self.field.type
        if self.kind is Kind.PART:
            return self.decode_column(bodies.data, valid, values, odd)
        if self.kind is Kind.OBJECT:
            members = [member.build_array(bodies, filled, odd) for member in self.members]
            missing = pa.array(~np.frombuffer(valid, np.bool_))
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=missing)
        validity = None if 0 not in valid else pa.py_buffer(_bits(valid))
        if self.kind is Kind.ARRAY:
            elements = self.members[0].build_array(bodies, filled, odd)
            buffers = [validity, pa.py_buffer(offsets)]
            return pa.Array.from_buffers(kind, len(valid), buffers, children=[elements])
        if self.kind is Kind.TRUTH:
            values = _bits(values)
        buffers = [values] if offsets is None else [offsets, values]
        return pa.Array.from_buffers(kind, len(valid), [validity, *map(pa.py_buffer, buffers)])

    def decode_column(
        self, data: bytes, valid: bytearray, places: bytes | bytearray, odd: set[int]
    ) -> pa.Array:
        """Return the column of parts of bodies; only for classes that request parts.

        Args:
            data: the bytes that contain the parts.
            valid: a byte for each row, nonzero if it has a part.
            places: the begin and end of each part in the data.
            odd: the numbers of bodies without a valid part are added.
        """
        raise NotImplementedError


def by_level(columns: Sequence[FilledColumn]) -> Iterator[FilledColumn]:
    """Yield columns with their members, in the order of compiled readers."""
    levels = [columns]
    for level in levels:
        yield from level
        levels += [column.members for column in level if column.members]


class ColumnFiller:
    """Fills columns by a compiled reader.

    Args:
        columns: the columns.
        reader: the compiled reader.
    """

    def __init__(self, columns: Sequence[FilledColumn], reader: ColumnReader) -> None:
        self._columns = columns
        self._flattened_columns = list(by_level(columns))
        self._reader = reader

    def columns(self, bodies: PackedBodies) -> tuple[list[pa.Array], list[int]]:
        """Return the columns of some bodies, and the numbers of odd bodies, which have no values.

        Raises:
            PipelineError: a value is out of the range of its type.
        """
        found, numbers = self._reader.read(bodies.data, bodies.starts, bodies.ends)
        filled = dict(zip(self._flattened_columns, found, strict=True))
        odd = set(numbers)
        return [column.build_array(bodies, filled, odd) for column in self._columns], sorted(odd)


def replace_values(
    columns: Iterable[pa.Array], others: Iterable[pa.Array], odd: Sequence[int]
) -> list[pa.Array]:
    """Return columns with some values replaced.

    Args:
        columns: the columns.
        others: for each column, the values for some rows.
        odd: the indexes of these rows.
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
