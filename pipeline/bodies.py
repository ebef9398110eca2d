"""Rows as messages: converts the columns of a DataFrame to publish it.

A schema has one of the two forms that `pipeline.rows` describes.

bodies    `body` is the message. `topic`, `sow_key`, `correlation_id` and `expiration` (seconds) go
          into its header; `bookmark` and `timestamp`, which the server assigns, are ignored, so
          that rows that were read can be written.
fields    the columns become a JSON object, without NULL ones. Columns named `_topic` and so on go
          into the header.

A deletion with keys needs no message: if the columns are only `sow_key` and other metadata columns,
they are of the first form, without a body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructType

from pipeline.arrow import check_names
from pipeline.errors import SchemaError
from pipeline.json_bodies import JsonWriter
from pipeline.rows import BODY, MESSAGE_METADATA
from pipeline.spark_types import field_type

_HEADERS: Final = ("topic", "sow_key", "correlation_id", "expiration")
_WHOLE_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")


class OutgoingMessages(NamedTuple):
    """The messages for a batch of rows.

    Attributes:
        bodies: the bodies.
        headers: the values of their headers, by the client's names, as far as there are columns.
    """

    bodies: list[bytes]
    headers: dict[str, list[Any]]


class BodyFormat:
    """Converts rows to messages.

    Args:
        schema: the columns.
        message_type: the message type, None if unknown.
        deletes: whether the messages are to delete records.

    Attributes:
        headers: the names of the headers that rows have.
        has_bodies: whether rows have a body, or fields to make one of.

    Raises:
        PipelineError: such columns cannot be converted to messages of that type.
    """

    def __init__(
        self, schema: StructType, message_type: str | None, *, deletes: bool = False
    ) -> None:
        check_names(schema)
        known = dict.fromkeys((*MESSAGE_METADATA, *_HEADERS))
        is_whole = BODY in schema.names
        is_keys = deletes and "sow_key" in schema.names and set(schema.names) <= known.keys()
        prefix = "" if is_whole or is_keys else "_"
        special = {f"{prefix}{name}": name for name in known}
        self._header_columns = {
            special[name]: name for name in schema.names if special.get(name) in _HEADERS
        }
        self.headers = tuple(self._header_columns)
        for header, column in self._header_columns.items():
            _check_header(header, column, schema[column].dataType)
        fields = [field for field in schema if field.name not in special and field.name != BODY]
        self.has_bodies = is_whole or bool(fields)
        self._writer = JsonWriter()
        self._field_names = [field.name for field in fields]
        self._make_bodies: Callable[[pa.RecordBatch], list[bytes]] = self._write_objects
        if is_whole:
            if fields:
                raise SchemaError(
                    f"schema: column {fields[0].name!r}: with a column body, only"
                    f" {', '.join(special)} are allowed; remove body to publish columns as fields"
                )
            _check_body(schema[BODY].dataType)
            self._make_bodies = _whole
        elif fields and message_type != "json":
            raise SchemaError(
                f"schema: the columns {', '.join(self._field_names)} can be published as messages"
                f" of type json only, and the type is {message_type or 'unknown'}; convert them to"
                " a column body, or end the option server with /amps/json"
            )
        for field in fields:
            field_type(field.dataType, field.name)

    def messages(self, batch: pa.RecordBatch) -> OutgoingMessages:
        """Return the messages for a batch of rows, in their order.

        Raises:
            PipelineError: a row has no body, no topic, or a negative lifetime.
        """
        headers = {
            header: batch.column(column).to_pylist()
            for header, column in self._header_columns.items()
        }
        shortest = min(
            (lifetime for lifetime in headers.get("expiration", ()) if lifetime is not None),
            default=0,
        )
        if shortest < 0:
            raise SchemaError(
                f"schema: column {self._header_columns['expiration']!r} is {shortest} in a row;"
                " expected seconds, from 0"
            )
        if not all(headers.get("topic", [True])):
            raise SchemaError(
                f"schema: column {self._header_columns['topic']!r} is NULL or empty in a row;"
                " expected the topic of the row"
            )
        return OutgoingMessages(self._make_bodies(batch), headers)

    def _write_objects(self, batch: pa.RecordBatch) -> list[bytes]:
        if not self._field_names:
            return [b""] * batch.num_rows
        return self._writer.bodies(batch.select(self._field_names)).to_list()


def _whole(batch: pa.RecordBatch) -> list[bytes]:
    column = batch.column(BODY)
    if column.null_count:
        raise SchemaError("schema: column body is NULL in a row; filter such rows out")
    bodies: list[bytes] = column.cast(pa.binary()).to_pylist()
    return bodies


def _check_body(kind: DataType) -> None:
    if not isinstance(kind, (StringType, BinaryType)):
        raise SchemaError(
            f"schema: column body is {kind.simpleString()}, expected string or binary"
        )


def _check_header(header: str, column: str, kind: DataType) -> None:
    if header == "expiration":
        if kind.simpleString() not in _WHOLE_NUMBERS:
            raise SchemaError(
                f"schema: column {column!r} is {kind.simpleString()}, expected"
                f" {LongType().simpleString()}: seconds"
            )
    elif not isinstance(kind, StringType):
        raise SchemaError(f"schema: column {column!r} is {kind.simpleString()}, expected string")
