"""Fields of bodies as values for columns, strictly by the columns' types.

Bodies of the type `json` are decoded by a msgspec type made for exactly the columns, which passes
over everything else. Fields of the other types come from the readers that the server's filters use,
and are converted: there, everything may be a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from operator import attrgetter, itemgetter
from types import GenericAlias
from typing import Annotated, Any, Final, TypeAlias, TypedDict, cast

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.errors import PipelineError
from server.message_types.base import Value
from server.message_types.registry import MessageTypes

Body: TypeAlias = bytes | memoryview


READABLE: Final = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat")
"""Message types whose fields can be read without knowing the server's configuration."""

_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
_SIMPLE: Final[dict[type[DataType], type]] = {
    StringType: str,
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    DateType: date,
    TimestampType: datetime,
    TimestampNTZType: datetime,
    BinaryType: bytes,
}


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


def read_fields(schema: StructType, message_type: str | None, advice: str = "") -> FieldReader:
    """Make a reader of fields.

    Args:
        schema: the fields.
        message_type: of the bodies, None if it is not known.
        advice: what else to do if they cannot be read of such bodies.

    Raises:
        PipelineError: there is no way to read such fields of such bodies.
    """
    if message_type == "json":
        return _json_reader(schema)
    if message_type in READABLE:
        return _value_reader(schema, message_type)
    raise PipelineError(
        f"schema: the fields {', '.join(schema.names)} cannot be read of messages of type"
        f" {message_type or 'unknown'}; read the column body instead{advice}"
    )


def _json_reader(schema: StructType) -> FieldReader:
    names = {f"f{number}": name for number, name in enumerate(schema.names)}
    kinds = [field_type(field.dataType, field.name) for field in schema]
    row = msgspec.defstruct(
        "Row",
        [(slot, kind, None) for slot, kind in zip(names, kinds, strict=True)],
        rename=names,
        gc=False,
    )
    decode = msgspec.json.Decoder(row).decode

    def rows(bodies: Sequence[Body]) -> list[Any]:
        found: list[Any] = []
        rest = iter(bodies)
        while len(found) < len(bodies):
            try:
                found.extend(map(decode, rest))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                body = bytes(bodies[len(found)])
                if body:
                    raise PipelineError(
                        f"schema: a message does not fit: {error}; it is {body[:200]!r}"
                    ) from None
                found.append(row())
        return found

    return FieldReader(rows, {name: attrgetter(slot) for slot, name in names.items()})


def field_type(kind: DataType, column: str) -> Any:
    """The msgspec type for a column's type.

    Raises:
        PipelineError: there is none.
    """
    bits = _BITS.get(type(kind))
    if bits is not None:
        limit = 1 << (bits - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)] | None
    simple = _SIMPLE.get(type(kind))
    if simple is not None:
        return simple | None
    if isinstance(kind, ArrayType):
        element = field_type(kind.elementType, column)
        return GenericAlias(list, (element,)) | None
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        value = field_type(kind.valueType, column)
        return GenericAlias(dict, (str, value)) | None
    if isinstance(kind, StructType):
        members = {field.name: field_type(field.dataType, column) for field in kind}
        make = cast("Any", TypedDict)  # the type checker knows it with literal members only
        return make("Member", members, total=False) | None
    raise PipelineError(
        f"schema: column {column!r}: no field of a message is of type {kind.simpleString()}"
    )


def _value_reader(schema: StructType, message_type: str) -> FieldReader:
    """Single values by their paths; columns that are structs are put together from them."""
    paths: list[tuple[str, ...]] = []
    columns = [_value_of(one.dataType, (one.name,), paths, message_type) for one in schema]
    extract = MessageTypes().get(message_type).extractor(paths)

    def row(body: Body) -> tuple[Any, ...]:
        values = extract(bytes(body))
        return tuple(column(values) for column in columns)

    return FieldReader(
        lambda bodies: list(map(row, bodies)),
        {name: itemgetter(slot) for slot, name in enumerate(schema.names)},
    )


def _value_of(
    kind: DataType, path: tuple[str, ...], paths: list[tuple[str, ...]], message_type: str
) -> Callable[[Sequence[Value]], Any]:
    """What gives a column, or a member of one, of the values that `paths` lead to.

    Args:
        kind: its type.
        path: where it is.
        paths: the paths to extract; those that it needs are added.
        message_type: of the bodies.
    """
    if isinstance(kind, StructType):
        members = {
            one.name: _value_of(one.dataType, (*path, one.name), paths, message_type)
            for one in kind
        }

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
            f"schema: column {name!r}: of messages of type {message_type}, only single values,"
            " arrays of them and structs with them can be read"
        )
    slot = len(paths)
    paths.append(path)
    if isinstance(innermost, BinaryType):
        return lambda values: _as_bytes(values[slot])
    wanted = field_type(kind, name)
    return lambda values: _converted(values[slot], wanted, name)


def _as_bytes(value: Value) -> Any:
    """What stands in the message, which may be no text."""
    if isinstance(value, list):
        return [_as_bytes(one) for one in value]
    return None if value is None else str(value).encode("utf-8", "surrogateescape")


def _converted(value: Value, kind: Any, column: str) -> Any:
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        if kind == str | None and isinstance(value, (bool, int, float)):
            return str(value)
        raise PipelineError(
            f"schema: a message does not fit: column {column!r}: {error}; it is {value!r}"
        ) from None
