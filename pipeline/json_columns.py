"""Fields of JSON bodies as Arrow columns, a block of bodies at a time.

Compiled code goes through the bodies (`server.message_types.json_columns`) and fills what is plain:
numbers, texts, times in ISO 8601, and objects of them. Of arrays, maps, decimals and what else a
column may hold it says where they stand, and each is decoded by its type. Bodies that are not
plain, of which there may be none or a few, are gone through once more, value by value: whole
numbers may be written like `5.0`, and NaN and Infinity, which JSON does not have, are numbers to
the server and to many a publisher. What is no value even so makes an error that says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
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
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.arrow import column_of
from pipeline.errors import UnfitError
from pipeline.kinds import field_type, hook
from pipeline.packed import Bodies
from pipeline.times import TimeRule
from server.message_types.json_columns import ColumnReader, Kind

UNFIT: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What the decoders raise."""

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
_PART: Final = (Kind.PART, 16)

Filled = tuple[bytearray, bytes | bytearray, bytearray | None]
"""What the compiled reader has of a column."""

Decode = Callable[[bytes | memoryview], Any]


class _Wanted(NamedTuple):
    """A column, as the compiled reader wants to know it."""

    name: bytes
    kind: Kind
    width: int
    members: Sequence[_Wanted] = ()


class _Column:
    """A column, or a member of one.

    Args:
        field: its name and type, as Arrow has them.
        kind: its type, as Spark has it.
        path: where it is in the body.
        times: what is a time.
    """

    def __init__(self, field: pa.Field, kind: DataType, path: str, times: TimeRule) -> None:
        self.field = field
        self.path = path
        self.members: list[_Column] = []
        plain = _PLAIN.get(kind) or (_TIMES.get(kind) if times.is_iso else None)
        if plain is None and isinstance(kind, StructType) and kind.fields:
            plain = (Kind.OBJECT, 0)
            self.members = [
                _Column(field.type[number], one.dataType, f"{path}.{one.name}", times)
                for number, one in enumerate(kind)
            ]
        self._kind, self._width = plain or _PART
        self._decode = _decoder(kind, path, times, lenient=False)
        self._decode_leniently = _decoder(kind, path, times, lenient=True)

    @property
    def wanted(self) -> _Wanted:
        """What the compiled reader is to do for it."""
        members = [member.wanted for member in self.members]
        return _Wanted(self.field.name.encode(), self._kind, self._width, members)

    def make(self, bodies: Bodies, filled: Mapping[_Column, Filled], odd: set[int]) -> pa.Array:
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
        if self._kind is Kind.PART:
            return column_of(self._parts(bodies.data, valid, values, odd), self.field)
        if self._kind is Kind.OBJECT:
            members = [member.make(bodies, filled, odd) for member in self.members]
            missing = pa.array(~np.frombuffer(valid, np.bool_))
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=missing)
        if self._kind is Kind.TRUTH:
            values = _bits(values)
        buffers = [values] if offsets is None else [offsets, values]
        there = None if all(valid) else pa.py_buffer(_bits(valid))
        return pa.Array.from_buffers(kind, len(valid), [there, *map(pa.py_buffer, buffers)])

    def _parts(
        self, data: bytes, valid: bytearray, places: bytes | bytearray, odd: set[int]
    ) -> Iterator[Any]:
        borders = np.frombuffer(places, np.int64).reshape(-1, 2).tolist()
        for number, is_there, (start, end) in zip(count(), valid, borders, strict=False):
            try:
                yield self._decode(data[start:end]) if is_there else None
            except UNFIT:
                odd.add(number)
                yield None

    def look_again(self, part: bytes) -> Any:
        """The value that a part of an odd body is.

        Raises:
            msgspec.MsgspecError: it is none; or ValueError, or RecursionError.
        """
        try:
            return self._decode(part)
        except UNFIT as error:
            try:
                return self._decode_leniently(part)
            except UNFIT:
                raise error from None


class JsonReader:
    """Reads columns of bodies of the type `json`.

    Args:
        schema: the columns.
        times: what is a time.

    Raises:
        PipelineError: a column is of a type that no field has.
    """

    def __init__(self, schema: StructType, times: TimeRule) -> None:
        fields = to_arrow_schema(schema, timezone="UTC")
        self._columns = [
            _Column(field, one.dataType, one.name, times)
            for field, one in zip(fields, schema, strict=True)
        ]
        self._in_order = list(_by_level(self._columns))
        self._reader = ColumnReader([column.wanted for column in self._columns])
        self._parts = ColumnReader(
            [_Wanted(column.field.name.encode(), *_PART) for column in self._columns]
        )

    def columns(self, bodies: Bodies) -> dict[str, pa.Array]:
        """The columns of some bodies.

        Raises:
            PipelineError: a body does not fit the schema.
        """
        found, numbers = self._reader.read(bodies.data, bodies.starts, bodies.ends)
        filled = dict(zip(self._in_order, found, strict=True))
        odd = set(numbers)
        plain = [column.make(bodies, filled, odd) for column in self._columns]
        if odd:
            plain = self._with_odd(plain, bodies, sorted(odd))
        return {
            column.field.name: values for column, values in zip(self._columns, plain, strict=True)
        }

    def _with_odd(
        self, columns: Iterable[pa.Array], bodies: Bodies, odd: list[int]
    ) -> list[pa.Array]:
        """Columns with the values of odd bodies in them."""
        rows = list(self._look_again(bodies, odd))
        places = np.arange(len(bodies))
        places[odd] = np.arange(len(bodies), len(bodies) + len(odd))
        return [
            pa.concat_arrays([values, column_of(again, column.field)]).take(pa.array(places))
            for values, column, again in zip(
                columns, self._columns, zip(*rows, strict=True), strict=True
            )
        ]

    def _look_again(self, bodies: Bodies, odd: Sequence[int]) -> Iterator[list[Any]]:
        """A row for each odd body."""
        chosen = bodies.some(odd)
        found, malformed = self._parts.read(chosen.data, chosen.starts, chosen.ends)
        if malformed:
            number = odd[malformed[0]]
            raise _unfit(number, bodies[number], _malformation(bodies[number]))
        borders = [np.frombuffer(places, np.int64).reshape(-1, 2) for _, places, _ in found]
        for row, number in enumerate(odd):
            values: list[Any] = []
            for column, (valid, _, _), places in zip(self._columns, found, borders, strict=True):
                start, end = places[row]
                try:
                    part = bodies.data[start:end]
                    values.append(column.look_again(part) if valid[row] else None)
                except UNFIT as error:
                    raise _unfit(number, bodies[number], _at(column.path, error)) from None
            yield values


def _by_level(columns: Sequence[_Column]) -> Iterator[_Column]:
    """Columns with their members, in the order of the compiled reader."""
    levels = [columns]
    for level in levels:
        yield from level
        levels += [column.members for column in level if column.members]


def _decoder(kind: DataType, path: str, times: TimeRule, *, lenient: bool) -> Decode:
    wanted = field_type(kind, path, own_times=not times.is_iso, lenient=lenient)
    make = hook(times, from_text=False)
    decode = msgspec.json.Decoder(wanted, dec_hook=make).decode
    if not lenient:
        return decode

    def decode_leniently(part: bytes | memoryview) -> Any:
        try:
            return decode(part)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if part[:1] == b'"':
                raise
            # Python's own reader knows NaN and Infinity.
            return msgspec.convert(json.loads(bytes(part)), wanted, dec_hook=make)

    return decode_leniently


def _bits(flags: bytes | bytearray) -> bytes:
    return np.packbits(np.frombuffer(flags, np.bool_), bitorder="little").tobytes()


def _malformation(body: memoryview) -> object:
    try:
        msgspec.json.decode(body, type=dict)
    except UNFIT as error:
        return error
    return "it is no object that can be read"


def _at(path: str, error: Exception) -> str:
    """What is wrong with a value, and where it is."""
    text, separator, within = str(error).partition(" - at `$")
    if separator or isinstance(error, msgspec.ValidationError):
        return f"{text} - at `$.{path}{within or '`'}"
    return f"column {path!r}: {text}"


def _unfit(number: int, body: memoryview, problem: object) -> UnfitError:
    return UnfitError(
        f"schema: a message does not fit: {problem}; it is {bytes(body[:200])!r}", number
    )
