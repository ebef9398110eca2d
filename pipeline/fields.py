"""Fields of bodies as columns, strictly by the columns' types.

Bodies of the type `json` are read by compiled code (`pipeline.json_columns`), and so are plain
columns of fix, nvfix, msgpack and bson (`pipeline.compiled_readers`). Other fields are read by the
readers that the server's filters use, and then converted, because these may return any value as a
text. A value that does not fit is converted again leniently: whole numbers may be written like
`5.0`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
)

from pipeline.arrow import column_of
from pipeline.bson_decimals import with_decimals
from pipeline.compiled_readers import FieldReader, plain_reader
from pipeline.errors import PipelineError, SchemaError, UnfitError
from pipeline.json_columns import DECODE_ERRORS, JsonReader
from pipeline.packed_bodies import PackedBodies
from pipeline.raw_value import NESTED, StructMembers, decoded, with_parts
from pipeline.spark_types import field_type, hook, is_time
from pipeline.times import time_rule
from server.expressions.numerals import numeral
from server.message_types.base import MessageType, Value
from server.message_types.pretty import TreeDecoder
from server.message_types.registry import MessageTypes

if TYPE_CHECKING:
    from pipeline.expressions.environment import Environment

READABLE: Final = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat")
"""Message types with fields that are readable without the server's configuration."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_fields(
    schema: StructType,
    message_type: str | None,
    advice: str = "",
    *,
    timestamps: str | None = None,
    environment: Environment | None = None,
) -> FieldReader:
    """Return a reader of fields.

    Args:
        schema: the fields.
        message_type: the message type of the bodies, None if unknown.
        advice: the advice for an error, if the fields cannot be read from such bodies.
        timestamps: the form of times, one of `times.TIMESTAMPS`; None for the message type's.
        environment: the message types of a configuration; None without one.

    Raises:
        PipelineError: such fields cannot be read from such bodies.
    """
    module = message_type
    if environment is not None and message_type is not None:
        module = environment.module(message_type)
    if module == "json":
        return JsonReader(schema, time_rule(module, timestamps))
    if module is not None and message_type is not None:
        kind = _message_type(message_type, environment)
        if kind is not None:
            by_value = partial(ValueReader, kind=kind, module=module, timestamps=timestamps)
            return plain_reader(schema, kind, time_rule(module, timestamps), by_value)
    raise SchemaError(
        f"schema: the fields {', '.join(schema.names)} cannot be read from messages of type"
        f" {message_type or 'unknown'}; read the column body instead{advice}"
    )


def _message_type(name: str, environment: Environment | None) -> MessageType | None:
    """Return the message type with a name; None if its fields cannot be read."""
    if environment is None:
        return MessageTypes().get(name) if name in READABLE else None
    kind = environment.message_type(name)
    return kind if kind.capabilities.fields else None


class ValueReader:
    """Reads single values by their paths; builds columns that are structs from them.

    Args:
        schema: the columns.
        kind: the message type of the bodies.
        module: the module of the message type.
        timestamps: the form of times; None for the message type's.

    Raises:
        PipelineError: such a column cannot be read from such bodies.
    """

    def __init__(
        self, schema: StructType, kind: MessageType, module: str, timestamps: str | None
    ) -> None:
        convert = _Converter(kind, module, timestamps)
        self._fields = to_arrow_schema(schema, timezone="UTC")
        self._column_builders = [
            convert.column_builder(field.dataType, (field.name,)) for field in schema
        ]
        self._extract = convert.extractor()

    def columns(self, bodies: PackedBodies) -> dict[str, pa.Array]:
        """See `FieldReader.columns`."""
        rows = [self._read_row(number, body) for number, body in enumerate(bodies)]
        columns = zip(*rows, strict=True) if rows else ([] for _ in self._fields)
        return {
            field.name: column_of(values, field)
            for field, values in zip(self._fields, columns, strict=True)
        }

    def _read_row(self, number: int, body: memoryview) -> list[Any]:
        try:
            values = self._extract(bytes(body))
            return [value(values) for value in self._column_builders]
        except PipelineError as problem:
            raise UnfitError(str(problem), number) from None


class _Converter:
    """Converts the values that a message type reads to columns.

    Args:
        kind: the message type of the bodies.
        module: the module of the message type.
        timestamps: the form of times; None for the message type's.
    """

    def __init__(self, kind: MessageType, module: str, timestamps: str | None) -> None:
        self._kind = kind
        self._module = module
        self._decode_hook = hook(time_rule(module, timestamps), from_text=True)
        self._paths: list[tuple[str, ...]] = []
        self._time_slots: list[int] = []
        """The indexes of the values that are times."""
        self._decimal_slots: list[int] = []
        """The indexes of the values that are decimals."""
        self._structs: list[StructMembers] = []
        self._decode_tree: Callable[[bytes], Any] | None = None
        """Decodes whole bodies, if a column needs that; the body is the last value then."""

    def extractor(self) -> Callable[[bytes], Sequence[Any]]:
        """Return the function that reads the values for the columns from a body."""
        extract: Callable[[bytes], Sequence[Any]] = self._kind.extractor(self._paths)
        if self._module == "msgpack" and self._time_slots:
            extract = _with_extensions(
                extract, {slot: self._paths[slot] for slot in self._time_slots}
            )
        if self._module == "bson" and self._decimal_slots:
            extract = with_decimals(
                extract, {slot: self._paths[slot] for slot in self._decimal_slots}
            )
        if self._module in NESTED and isinstance(self._kind, TreeDecoder):
            extract = with_parts(extract, self._kind.tree, self._paths, self._structs)
        return extract if self._decode_tree is None else _with_tree(extract, self._decode_tree)

    def column_builder(
        self, kind: DataType, path: tuple[str, ...]
    ) -> Callable[[Sequence[Value]], Any]:
        """Return the function that builds a column, or a member of one, from the values.

        Args:
            kind: the type.
            path: the path in the body.
        """
        if is_time(kind) and self._module == "protobuf":
            return self._protobuf_time_builder(kind, path)
        if isinstance(kind, StructType):
            return self._struct_builder(kind, path)
        return self._value_builder(kind, path)

    def _struct_builder(
        self, kind: StructType, path: tuple[str, ...]
    ) -> Callable[[Sequence[Value]], Any]:
        """Return the function that builds a struct from its members."""
        begin = len(self._paths)
        members = {
            field.name: self.column_builder(field.dataType, (*path, field.name)) for field in kind
        }
        number = len(self._structs)
        self._structs.append(StructMembers(path, slice(begin, len(self._paths))))

        def struct(values: Sequence[Any]) -> dict[str, Any] | None:
            fields = {name: member(values) for name, member in members.items()}
            if any(value is not None for value in fields.values()):
                return fields
            if self._module not in NESTED:
                return None
            instead = values[len(self._paths) + number]
            if instead is None or isinstance(instead, dict):
                return None if instead is None else fields
            raise _unfit(".".join(path), f"Expected `object | null`, got {instead!r}", instead)

        return struct

    def _value_builder(
        self, kind: DataType, path: tuple[str, ...]
    ) -> Callable[[Sequence[Value]], Any]:
        """Return the function that converts a single value, or an array of them."""
        name = ".".join(path)
        innermost = kind
        while isinstance(innermost, ArrayType):
            innermost = innermost.elementType
        # Values that the message type reads by a path have no arrays in arrays: they are one array.
        has_arrays = isinstance(kind, ArrayType) and isinstance(kind.elementType, ArrayType)
        if has_arrays or isinstance(innermost, (MapType, StructType)):
            return self._document_builder(kind, path)
        slot = len(self._paths)
        self._paths.append(path)
        if is_time(innermost):
            self._time_slots.append(slot)
        if isinstance(innermost, BinaryType):
            return lambda values: _as_bytes(values[slot], name)
        target_type = field_type(kind, name, own_times=True)
        lenient = field_type(kind, name, own_times=True, lenient=True, from_text=True)
        if isinstance(innermost, DecimalType):
            self._decimal_slots.append(slot)
            return lambda values: self._convert(
                _as_number(values[slot], name), target_type, lenient, name
            )
        return lambda values: self._convert(values[slot], target_type, lenient, name)

    def _document_builder(
        self, kind: DataType, path: tuple[str, ...]
    ) -> Callable[[Sequence[Value]], Any]:
        """Return the function that builds a map, or an array with arrays, structs or maps."""
        name = ".".join(path)
        if not isinstance(self._kind, TreeDecoder):
            raise SchemaError(
                f"schema: column {name!r}: from messages of type {self._kind.name}, only single"
                " values, arrays of them and structs with them can be read"
            )
        if _has_bytes(kind):
            raise SchemaError(
                f"schema: column {name!r}: bytes within maps and within arrays of structs or arrays"
                " cannot be read; use string"
            )
        self._decode_tree = self._kind.tree
        target_type = field_type(kind, name, own_times=True)
        lenient = field_type(kind, name, own_times=True, lenient=True, from_text=True)

        def document(values: Sequence[Any]) -> Any:
            value = values[-1]
            for step in path:
                value = value.get(step) if isinstance(value, dict) else None
            return self._convert(value, target_type, lenient, name)

        return document

    def _protobuf_time_builder(
        self, kind: DataType, path: tuple[str, ...]
    ) -> Callable[[Sequence[Value]], Any]:
        """Return the function for a time: a text, a number, or a `google.protobuf.Timestamp`."""
        plain = self._value_builder(kind, path)
        at = len(self._paths) - 1
        self._paths += [(*path, "seconds"), (*path, "nanos")]

        def moment(values: Sequence[Value]) -> Any:
            if values[at] is not True:  # True stands for a message
                return plain(values)
            seconds, nanos = values[at + 1], values[at + 2]
            if not isinstance(seconds, int) or not isinstance(nanos, int):
                return plain(values)
            try:
                found = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
            except OverflowError:
                return plain(values)
            return found.date() if isinstance(kind, DateType) else found

        return moment

    def _convert(self, value: Value, kind: Any, lenient: Any, column: str) -> Any:
        if value is None:
            return None
        try:
            return msgspec.convert(value, kind, strict=False, dec_hook=self._decode_hook)
        except DECODE_ERRORS as error:
            if kind == str | None and isinstance(value, (bool, int, float)):
                return str(value)
            try:
                return msgspec.convert(value, lenient, strict=False, dec_hook=self._decode_hook)
            except DECODE_ERRORS:
                raise _unfit(column, error, value) from None


def _unfit(column: str, problem: object, value: object) -> PipelineError:
    return SchemaError(
        f"schema: a message does not fit: column {column!r}: {problem}; value: {value!r}"
    )


def _has_bytes(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_bytes(kind.elementType)
        case MapType():
            return _has_bytes(kind.valueType)
        case StructType():
            return any(_has_bytes(member.dataType) for member in kind)
    return isinstance(kind, BinaryType)


def _with_tree(
    extract: Callable[[bytes], Sequence[Any]], tree: Callable[[bytes], Any]
) -> Callable[[bytes], Sequence[Any]]:
    """Append the decoded body to the values; PipelineError: it cannot be decoded."""
    return lambda body: [*extract(body), decoded(tree, body)]


def _with_extensions(
    extract: Callable[[bytes], Sequence[Any]], times: Mapping[int, tuple[str, ...]]
) -> Callable[[bytes], Sequence[Any]]:
    """Include MessagePack's timestamps, which the server reads as bytes, in the values.

    Args:
        extract: reads the values.
        times: the paths of possible timestamps, by their indexes.
    """

    def extended(body: bytes) -> Sequence[Any]:
        values = list(extract(body))
        try:
            document = msgspec.msgpack.decode(body)
        except DECODE_ERRORS:
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


def _as_bytes(value: Any, column: str) -> Any:
    """Return the bytes of a value in the message, which may not be valid text."""
    if isinstance(value, list):
        return [_as_bytes(item, column) for item in value]
    if isinstance(value, dict):
        raise _unfit(column, "Expected `bytes | null`, got `object`", value)
    return None if value is None else str(value).encode("utf-8", "surrogateescape")


def _as_number(value: Any, column: str) -> Any:
    """Return a value unchanged; PipelineError: it is a text, but not a number."""
    if isinstance(value, list):
        return [_as_number(item, column) for item in value]
    if isinstance(value, str) and numeral(value) is None:
        raise _unfit(column, "Expected `decimal | null`, got `str`", value)
    return value
