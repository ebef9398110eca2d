"""Fields of JSON bodies as Arrow columns, a block of bodies at a time.

Compiled code parses the bodies (`pipeline.native.json_columns`) and fills plain columns:
numbers, texts, times in ISO 8601, and objects and arrays of them. For maps, decimals and other
types it returns their positions, and each is decoded by its type. Bodies that are not plain, of
which there may be none or a few, are parsed again, value by value: whole numbers may be written
like `5.0`, and NaN and Infinity, which JSON does not have, are numbers to the server and to many
publishers. A value that is still invalid causes an error with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, StructType

from pipeline.arrow import column_of
from pipeline.arrow_fill import (
    ARRAY,
    OBJECT,
    ColumnFiller,
    ColumnRequest,
    FilledColumn,
    plain_kind,
    replace_values,
)
from pipeline.errors import UnfitError
from pipeline.native.columns import Kind
from pipeline.native.json_columns import JsonColumnReader
from pipeline.packed_bodies import PackedBodies
from pipeline.spark_types import field_type, hook
from pipeline.times import TimeRule

DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""The errors of the decoders."""

_PART: Final = (Kind.PART, 16)

JsonBodyDecoder = Callable[[bytes | memoryview], Any]


class _Column(FilledColumn):
    """A column, or a member of one.

    Args:
        field: its name and type in Arrow.
        kind: its type in Spark.
        path: its path in the body.
        times: the rule for times.
    """

    def __init__(self, field: pa.Field, kind: DataType, path: str, times: TimeRule) -> None:
        self.path = path
        plain = plain_kind(kind, with_times=times.is_iso)
        members: list[_Column] = []
        if plain is None and isinstance(kind, StructType) and kind.fields:
            plain = OBJECT
            members = [
                _Column(
                    field.type[number], schema_field.dataType, f"{path}.{schema_field.name}", times
                )
                for number, schema_field in enumerate(kind)
            ]
        elif isinstance(kind, ArrayType) and _is_plain(kind.elementType, times):
            plain = ARRAY
            members = [_Column(field.type.value_field, kind.elementType, f"{path}[]", times)]
        super().__init__(field, plain or _PART, members)
        self._decode = _decoder(kind, path, times, lenient=False)
        self._decode_leniently = _decoder(kind, path, times, lenient=True)

    def decode_column(
        self, data: bytes, valid: bytearray, places: bytes | bytearray, odd: set[int]
    ) -> pa.Array:
        return column_of(self._decode_parts(data, valid, places, odd), self.field)

    def _decode_parts(
        self, data: bytes, valid: bytearray, places: bytes | bytearray, odd: set[int]
    ) -> Iterator[Any]:
        borders = np.frombuffer(places, np.int64).reshape(-1, 2).tolist()
        for number, is_there, (start, end) in zip(count(), valid, borders, strict=False):
            try:
                yield self._decode(data[start:end]) if is_there else None
            except DECODE_ERRORS:
                odd.add(number)
                yield None

    def decode_odd_part(self, part: bytes) -> Any:
        """Decode a part of an odd body, leniently if necessary.

        Raises:
            msgspec.MsgspecError: it is not a valid value; or ValueError, or RecursionError.
        """
        try:
            return self._decode(part)
        except DECODE_ERRORS as error:
            try:
                return self._decode_leniently(part)
            except DECODE_ERRORS:
                raise error from None


class JsonReader:
    """Reads columns of bodies of the type `json`.

    Args:
        schema: the columns.
        times: the rule for times.

    Raises:
        PipelineError: a column has a type that fields cannot have.
    """

    def __init__(self, schema: StructType, times: TimeRule) -> None:
        fields = to_arrow_schema(schema, timezone="UTC")
        self._columns = [
            _Column(field, schema_field.dataType, schema_field.name, times)
            for field, schema_field in zip(fields, schema, strict=True)
        ]
        requests = [column.request for column in self._columns]
        self._filler = ColumnFiller(self._columns, JsonColumnReader(requests))
        self._part_reader = JsonColumnReader(
            [ColumnRequest(column.field.name.encode(), *_PART) for column in self._columns]
        )

    def columns(self, bodies: PackedBodies) -> dict[str, pa.Array]:
        """Return the columns of some bodies.

        Raises:
            PipelineError: a body does not fit the schema.
        """
        plain, odd = self._filler.columns(bodies)
        if odd:
            rows = zip(*self._decode_odd_rows(bodies, odd), strict=True)
            again = map(column_of, rows, [column.field for column in self._columns])
            plain = replace_values(plain, again, odd)
        return {
            column.field.name: values for column, values in zip(self._columns, plain, strict=True)
        }

    def _decode_odd_rows(self, bodies: PackedBodies, odd: Sequence[int]) -> Iterator[list[Any]]:
        """Yield a row for each odd body."""
        odd_bodies = bodies.select(odd)
        columns, malformed = self._part_reader.read(
            odd_bodies.data, odd_bodies.starts, odd_bodies.ends
        )
        if malformed:
            number = odd[malformed[0]]
            raise _unfit(number, bodies[number], _malformation(bodies[number]))
        borders = [np.frombuffer(places, np.int64).reshape(-1, 2) for _, places, _ in columns]
        for row, number in enumerate(odd):
            values: list[Any] = []
            for column, (valid, _, _), places in zip(self._columns, columns, borders, strict=True):
                start, end = places[row]
                try:
                    part = bodies.data[start:end]
                    values.append(column.decode_odd_part(part) if valid[row] else None)
                except DECODE_ERRORS as error:
                    raise _unfit(number, bodies[number], _at(column.path, error)) from None
            yield values


def _is_plain(kind: DataType, times: TimeRule) -> bool:
    """Return whether compiled code reads all values of a type, and returns no positions."""
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType, times)
    if isinstance(kind, StructType) and kind.fields:
        return all(_is_plain(field.dataType, times) for field in kind)
    return plain_kind(kind, with_times=times.is_iso) is not None


def _decoder(kind: DataType, path: str, times: TimeRule, *, lenient: bool) -> JsonBodyDecoder:
    target_type = field_type(kind, path, own_times=not times.is_iso, lenient=lenient)
    make = hook(times, from_text=False)
    decode = msgspec.json.Decoder(target_type, dec_hook=make).decode
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
            # Python's own parser accepts NaN and Infinity.
            return msgspec.convert(json.loads(bytes(part)), target_type, dec_hook=make)

    return decode_leniently


def _malformation(body: memoryview) -> object:
    try:
        msgspec.json.decode(body, type=dict)
    except DECODE_ERRORS as error:
        return error
    return "it is not a readable object"


def _at(path: str, error: Exception) -> str:
    """Return the problem of a value with its path."""
    text, separator, within = str(error).partition(" - at `$")
    if separator or isinstance(error, msgspec.ValidationError):
        return f"{text} - at `$.{path}{within or '`'}"
    return f"column {path!r}: {text}"


def _unfit(number: int, body: memoryview, problem: object) -> UnfitError:
    return UnfitError(
        f"schema: a message does not fit: {problem}; message: {bytes(body[:200])!r}", number
    )
