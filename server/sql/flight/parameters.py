"""The values of parameters, from the record batches that a client sends.

The bytes are a client's: types are limited to those of single values and lists of them, batches are
checked after they are read, and compressed ones are refused, since they can be larger than memory.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from server.sql.query.errors import SqlError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, PROTOCOL_VIOLATION

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PARAMETER_ROWS: Final = 100_000
"""Rows of parameters of one statement, each of which is an execution."""

_MAX_COLUMNS: Final = 65_535
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_ALIGNMENT: Final = 8

_types = pa.types
_VALUE_TYPES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    _types.is_null,
    _types.is_boolean,
    _types.is_integer,
    _types.is_floating,
    _types.is_decimal128,
    _types.is_decimal256,
    _types.is_string,
    _types.is_large_string,
    _types.is_binary,
    _types.is_large_binary,
    _types.is_fixed_size_binary,
    _types.is_date,
    _types.is_time,
    _types.is_timestamp,
    _types.is_duration,
)

_RECORD_BATCH_COMPRESSION: Final = 3
"""The number of the field `compression` of RecordBatch (Message.fbs)."""
_MESSAGE_HEADER: Final = 2
"""The number of the field `header` of Message."""


class ParameterReader:
    """Reads the rows of parameters of one statement.

    Attributes:
        rows: the rows so far.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []
        self._schema: pa.Schema | None = None

    def read(self, header: bytes, body: bytes) -> None:
        """Read a message of the stream.

        Args:
            header: the metadata of the IPC message.
            body: its body.

        Raises:
            SqlError: it is malformed, or has values of types that parameters do not have.
        """
        if not header:
            return
        try:
            message = pa.ipc.read_message(_encapsulate(header, body))
            if message.type == "schema":
                self._schema = _checked_schema(pa.ipc.read_schema(message))
            elif message.type == "record batch" and self._schema is not None:
                self._read_batch(message, header)
            else:
                raise _malformed(f"a message {message.type}")
        except (pa.ArrowException, ValueError, OSError, struct.error, IndexError) as error:
            raise _malformed(str(error)[:200]) from None

    def _read_batch(self, message: pa.Message, header: bytes) -> None:
        if _is_compressed(header):
            raise SqlError(FEATURE_NOT_SUPPORTED, "compressed batches are not supported")
        batch = pa.ipc.read_record_batch(message, self._schema)
        if batch.num_rows + len(self.rows) > MAX_PARAMETER_ROWS:
            raise SqlError(
                "54000", f"a statement has at most {MAX_PARAMETER_ROWS} rows of parameters"
            )
        batch.validate(full=True)
        columns = [_values(column) for column in batch.columns]
        if columns:
            self.rows += zip(*columns, strict=True)


def _encapsulate(header: bytes, body: bytes) -> pa.Buffer:
    """Return an IPC message with its prefix, as a stream has it."""
    padding = -len(header) % _ALIGNMENT
    size = struct.pack("<i", len(header) + padding)
    return pa.py_buffer(b"".join((_CONTINUATION, size, header, bytes(padding), body)))


def _checked_schema(schema: pa.Schema) -> pa.Schema:
    if len(schema) > _MAX_COLUMNS:
        raise _malformed("too many columns")
    for field in schema:
        if not _is_value(field.type):
            raise SqlError(
                FEATURE_NOT_SUPPORTED, f"parameters cannot have the type {str(field.type)[:100]}"
            )
    return schema


def _is_value(kind: pa.DataType) -> bool:
    if _types.is_list(kind) or _types.is_large_list(kind):
        kind = kind.value_type
    return any(test(kind) for test in _VALUE_TYPES)


def _values(column: pa.Array) -> Sequence[object]:
    kind = column.type
    if _types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif _types.is_duration(kind) and kind.unit == "ns":
        column = column.cast(pa.duration("us"), safe=False)
    elif _types.is_time64(kind) and kind.unit == "ns":
        column = column.cast(pa.time64("us"), safe=False)
    values: Sequence[Any] = column.to_pylist()
    return values


def _is_compressed(header: bytes) -> bool:
    """Return whether the metadata of a batch, a FlatBuffer, names a compression."""
    (root,) = struct.unpack_from("<I", header, 0)
    place = _field_place(header, root, _MESSAGE_HEADER)
    if place is None:
        return False
    (offset,) = struct.unpack_from("<I", header, place)
    return _field_place(header, place + offset, _RECORD_BATCH_COMPRESSION) is not None


def _field_place(buffer: bytes, table: int, number: int) -> int | None:
    """Return where a table of a FlatBuffer has a field; None if it has it not."""
    (distance,) = struct.unpack_from("<i", buffer, table)
    fields = table - distance
    (size,) = struct.unpack_from("<H", buffer, fields)
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", buffer, fields + at)
    return table + offset if offset else None


def _malformed(reason: str) -> SqlError:
    return SqlError(PROTOCOL_VIOLATION, f"the parameters are malformed: {reason}")
