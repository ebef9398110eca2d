"""Fields of bodies as values for columns, strictly by the columns' types.

Bodies of the type `json` are decoded by a msgspec type made for exactly the columns, which passes
over everything else. Fields of the other types come from the readers that the server's filters use,
and are converted: there, everything may be a text.

What does not fit is looked at a second time: whole numbers may be written like `5.0`, and NaN and
Infinity, which JSON does not have, are numbers to the server and to many a publisher.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
)

from pipeline.errors import PipelineError
from pipeline.kinds import field_type, hook, is_time
from pipeline.times import time_rule
from server.message_types.base import Value
from server.message_types.registry import MessageTypes

Body: TypeAlias = bytes | memoryview

READABLE: Final = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat")
"""Message types whose fields can be read without knowing the server's configuration."""

_UNFIT: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What the decoders raise."""


@dataclass(frozen=True, slots=True)
class FieldReader:
    """Reads bodies in two steps, between which rows can be dropped.

    Attributes:
        rows: gives a row for each body; raises PipelineError for a body that does not fit.
        values: for each column what gives its value of a row.
    """

    rows: Callable[[Sequence[Body]], list[Any]]
    values: Mapping[str, Callable[[Any], Any]]

    def columns(self, rows: Sequence[Any]) -> dict[str, list[Any]]:
        """The values of each column."""
        return {name: list(map(value, rows)) for name, value in self.values.items()}


def read_fields(
    schema: StructType,
    message_type: str | None,
    advice: str = "",
    *,
    timestamps: str | None = None,
) -> FieldReader:
    """Make a reader of fields.

    Args:
        schema: the fields.
        message_type: of the bodies, None if it is not known.
        advice: what else to do if they cannot be read of such bodies.
        timestamps: what is a time, one of `times.TIMESTAMPS`; None goes by the message type.

    Raises:
        PipelineError: there is no way to read such fields of such bodies.
    """
    if message_type == "json":
        return _json_reader(schema, timestamps)
    if message_type in READABLE:
        return _value_reader(schema, message_type, timestamps)
    raise PipelineError(
        f"schema: the fields {', '.join(schema.names)} cannot be read of messages of type"
        f" {message_type or 'unknown'}; read the column body instead{advice}"
    )


def _json_reader(schema: StructType, timestamps: str | None) -> FieldReader:
    names = {f"f{number}": name for number, name in enumerate(schema.names)}
    times = time_rule("json", timestamps)
    make = hook(times, from_text=False)

    def row_type(*, lenient: bool) -> Any:
        kinds = [
            field_type(one.dataType, one.name, own_times=not times.is_iso, lenient=lenient)
            for one in schema
        ]
        fields = [(slot, kind, None) for slot, kind in zip(names, kinds, strict=True)]
        return msgspec.defstruct("Row", fields, rename=names, gc=False)

    row = row_type(lenient=False)
    decode = msgspec.json.Decoder(row, dec_hook=make).decode
    lenient_row = row_type(lenient=True)
    decode_leniently = msgspec.json.Decoder(lenient_row, dec_hook=make).decode

    def look_again(body: Body) -> Any:
        if not body:
            return row()
        try:
            return decode_leniently(body)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Python's own reader knows NaN and Infinity.
            return msgspec.convert(json.loads(bytes(body)), lenient_row, dec_hook=make)

    def rows(bodies: Sequence[Body]) -> list[Any]:
        found: list[Any] = []
        rest = iter(bodies)
        read: Callable[[Body], Any] = decode
        while len(found) < len(bodies):
            try:
                found.extend(map(read, rest))
            except _UNFIT as error:
                body = bodies[len(found)]
                try:
                    found.append(look_again(body))
                except _UNFIT:
                    first = error if read is decode else _error_of(decode, body)
                    raise PipelineError(
                        f"schema: a message does not fit: {first}; it is {bytes(body[:200])!r}"
                    ) from None
                # Where one message has such numbers, others have.
                read = look_again
        return found

    return FieldReader(rows, {name: attrgetter(slot) for slot, name in names.items()})


def _error_of(decode: Callable[[Body], Any], body: Body) -> object:
    """What the first look has to say; the second knows types that nobody else does."""
    try:
        decode(body)
    except _UNFIT as error:
        return error
    return "it cannot be read"


def _value_reader(schema: StructType, message_type: str, timestamps: str | None) -> FieldReader:
    """Single values by their paths; columns that are structs are put together from them."""
    convert = _Converter(message_type, timestamps)
    columns = [convert.column(one.dataType, (one.name,)) for one in schema]
    extract = convert.extractor()

    def row(body: Body) -> tuple[Any, ...]:
        values = extract(bytes(body))
        return tuple(column(values) for column in columns)

    return FieldReader(
        lambda bodies: list(map(row, bodies)),
        {name: itemgetter(slot) for slot, name in enumerate(schema.names)},
    )


class _Converter:
    """Makes columns of the values that a message type reads.

    Args:
        message_type: of the bodies.
        timestamps: what is a time; None goes by the message type.
    """

    def __init__(self, message_type: str, timestamps: str | None) -> None:
        self._message_type = message_type
        self._hook = hook(time_rule(message_type, timestamps), from_text=True)
        self._paths: list[tuple[str, ...]] = []
        self._times: list[int] = []
        """Which of the values are times."""

    def extractor(self) -> Callable[[bytes], Sequence[Any]]:
        """What reads the values that the columns are made of."""
        extract = MessageTypes().get(self._message_type).extractor(self._paths)
        if self._message_type == "msgpack" and self._times:
            return _with_extensions(extract, {slot: self._paths[slot] for slot in self._times})
        return extract

    def column(self, kind: DataType, path: tuple[str, ...]) -> Callable[[Sequence[Value]], Any]:
        """What gives a column, or a member of one, of the values.

        Args:
            kind: its type.
            path: where it is.
        """
        if isinstance(kind, StructType):
            members = {one.name: self.column(one.dataType, (*path, one.name)) for one in kind}

            def struct(values: Sequence[Value]) -> dict[str, Any] | None:
                found = {name: member(values) for name, member in members.items()}
                return None if all(value is None for value in found.values()) else found

            return struct
        name = ".".join(path)
        innermost = kind
        while isinstance(innermost, ArrayType):
            innermost = innermost.elementType
        if isinstance(innermost, (MapType, StructType)):
            raise PipelineError(
                f"schema: column {name!r}: of messages of type {self._message_type}, only single"
                " values, arrays of them and structs with them can be read"
            )
        slot = len(self._paths)
        self._paths.append(path)
        if is_time(innermost):
            self._times.append(slot)
        if isinstance(innermost, BinaryType):
            return lambda values: _as_bytes(values[slot])
        wanted = field_type(kind, name, own_times=True)
        lenient = field_type(kind, name, own_times=True, lenient=True)
        return lambda values: self._converted(values[slot], wanted, lenient, name)

    def _converted(self, value: Value, kind: Any, lenient: Any, column: str) -> Any:
        if value is None:
            return None
        try:
            return msgspec.convert(value, kind, strict=False, dec_hook=self._hook)
        except _UNFIT as error:
            if kind == str | None and isinstance(value, (bool, int, float)):
                return str(value)
            try:
                return msgspec.convert(value, lenient, strict=False, dec_hook=self._hook)
            except _UNFIT:
                raise PipelineError(
                    f"schema: a message does not fit: column {column!r}: {error}; it is {value!r}"
                ) from None


def _with_extensions(
    extract: Callable[[bytes], Sequence[Value]], times: Mapping[int, tuple[str, ...]]
) -> Callable[[bytes], Sequence[Any]]:
    """Has MessagePack's timestamps among the values, which are bytes to the server.

    Args:
        extract: gives the values.
        times: the paths of those that may be such timestamps, by their places.
    """

    def extended(body: bytes) -> Sequence[Any]:
        values = list(extract(body))
        try:
            document = msgspec.msgpack.decode(body)
        except _UNFIT:
            return values
        for slot, path in times.items():
            found = document
            for name in path:
                found = found.get(name) if isinstance(found, dict) else None
            if _has_moments(found):
                values[slot] = found
        return values

    return extended


def _has_moments(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_has_moments, value))
    return isinstance(value, datetime)


def _as_bytes(value: Value) -> Any:
    """What stands in the message, which may be no text."""
    if isinstance(value, list):
        return [_as_bytes(one) for one in value]
    return None if value is None else str(value).encode("utf-8", "surrogateescape")
