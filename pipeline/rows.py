"""Messages as rows: Arrow batches with the columns of a schema.

A schema has one of two forms.

bodies    a column `body`, text or binary, and any of the metadata columns `topic`, `sow_key`,
          `bookmark`, `timestamp` and `correlation_id`. This is the default of a source; the other
          columns of `MESSAGE_METADATA` are included only if a schema names them.
fields    every column is a field of the body. Metadata columns may be among them with an underscore
          before their name, so that a field called `topic` can be read as well: `_topic`.

A value that a message or a record does not have is NULL. A field whose value does not have the type
of its column is an error, unless the user chooses otherwise (`pipeline.tolerance`): a wrong row
would be worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from amperage.client import Message
from pipeline.arrow import check_names, require_values
from pipeline.compiled_readers import FieldReader
from pipeline.errors import SchemaError
from pipeline.fields import READABLE, read_fields
from pipeline.message_columns import MessageColumns
from pipeline.packed_bodies import PackedBodies
from pipeline.tolerance import STRICT, Tolerance, tolerated

TEXT_TYPES: Final = ("json", "fix", "nvfix", "xml")
"""Message types with text bodies."""

BODY: Final = "body"
_SHOWN: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "sow_key": StringType(),
    "bookmark": StringType(),
    "timestamp": TimestampType(),
    "correlation_id": StringType(),
}
MESSAGE_METADATA: Final[dict[str, DataType]] = _SHOWN | {
    "message_type": StringType(),
    "client": StringType(),
    "sequence": LongType(),
    "length": LongType(),
    "user": StringType(),
}
"""Name and type of each, the same as in journals (`pipeline.journal.columns`)."""
_OF_RECORDS: Final[dict[str, DataType]] = {"command": StringType(), "expiration": IntegerType()}
"""The metadata of a stream that includes deletions of records."""
_COMMANDS: Final = ("publish", "sow_delete")

_ADVICE: Final = (
    ", or end the option server with a message type:"
    f" {', '.join(f'/amps/{name}' for name in READABLE)}; for message types of a configuration,"
    " give it with the option config"
)


def default_schema(message_type: str | None, *, has_deletions: bool = False) -> StructType:
    """Return the schema of bodies with the most used metadata columns.

    Args:
        message_type: the message type, None if unknown.
        has_deletions: whether the messages include deletions.
    """
    body = StringType() if message_type in TEXT_TYPES else BinaryType()
    shown = {**_SHOWN, **_OF_RECORDS} if has_deletions else _SHOWN
    columns = [StructField(name, kind) for name, kind in shown.items()]
    return StructType([StructField(BODY, body), *columns])


class RowFormat:
    """Converts messages to rows.

    Args:
        schema: the columns.
        message_type: the message type, None if unknown.
        tolerance: how messages that do not fit are handled.
        has_deletions: whether the messages include deletions of records, whose body is a list of
            keys.

    Attributes:
        metadata: the metadata of the columns, by their names without underscore.
        fields: the columns that are fields of the body.

    Raises:
        PipelineError: such messages cannot have this schema.
    """

    def __init__(
        self,
        schema: StructType,
        message_type: str | None,
        tolerance: Tolerance = STRICT,
        *,
        has_deletions: bool = False,
    ) -> None:
        check_names(schema)
        self._message_type = message_type
        self._mode = tolerance.mode
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self.has_bodies = BODY in schema.names
        prefix = "" if self.has_bodies else "_"
        kinds = {**MESSAGE_METADATA, **_OF_RECORDS} if has_deletions else MESSAGE_METADATA
        known = {f"{prefix}{name}": name for name in kinds}
        if has_deletions and not {BODY, "command"}.issubset(schema.names):
            raise SchemaError(
                "schema: with option commands='all', expected the columns body and command: the"
                " body of a sow_delete is a list of keys"
            )
        if self.has_bodies:
            _check_bodies(schema, known)
        self.metadata = frozenset(known[name] for name in schema.names if name in known)
        self._metadata_names = {name: known[name] for name in schema.names if name in known}
        for name, header in self._metadata_names.items():
            _check_type(schema[name], kinds[header])
        self._corrupt_column = None if self.has_bodies else tolerance.corrupt_column(schema)
        rest = [
            field
            for field in schema
            if is_body_field(field.name, self.has_bodies) and field.name != self._corrupt_column
        ]
        self.fields = StructType(rest)
        self._reader: FieldReader | None = None
        if rest:
            self._reader = read_fields(
                self.fields,
                message_type,
                _ADVICE,
                timestamps=tolerance.timestamps,
                environment=tolerance.environment,
            )

    def batch(self, messages: Sequence[Message] | MessageColumns) -> pa.RecordBatch:
        """Return a batch of rows.

        Raises:
            PipelineError: a body does not have such fields, or lacks a value that must not be NULL.
        """
        arrived = (
            messages
            if isinstance(messages, MessageColumns)
            else MessageColumns.from_messages(messages)
        )

        def make(start: int, stop: int, *, fits: bool) -> pa.RecordBatch:
            return self._make_batch(arrived, start, stop, fits=fits)

        batches = list(tolerated(make, len(arrived), self._mode))
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches(batches or [pa.RecordBatch.from_pylist([], self._schema)])

    def _make_batch(
        self, arrived: MessageColumns, start: int, stop: int, *, fits: bool
    ) -> pa.RecordBatch:
        bodies = arrived.bodies.slice_range(start, stop)
        fields: dict[str, pa.Array] = {}
        if self._reader is not None and fits:
            fields = self._reader.columns(bodies)
        if self.has_bodies:
            fields[BODY] = _whole(self._schema.field(BODY), bodies)
        if self._corrupt_column is not None and not fits:
            fields[self._corrupt_column] = _whole(self._schema.field(self._corrupt_column), bodies)
        for name, header in self._metadata_names.items():
            fields[name] = self._metadata_column(arrived, header).slice(start, stop - start)
        columns = [
            fields.get(field.name, pa.nulls(len(bodies), field.type)) for field in self._schema
        ]
        for column, field in zip(columns, self._schema, strict=True):
            require_values(column, field)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _metadata_column(self, arrived: MessageColumns, name: str) -> pa.Array:
        match name:
            case "timestamp":
                return arrived.timestamps
            case "length":
                return arrived.lengths
            case "client":
                return arrived.publishers.field("client")
            case "sequence":
                return arrived.publishers.field("sequence")
            case "message_type":
                return pa.repeat(pa.scalar(self._message_type, pa.string()), len(arrived))
            case "user":
                return arrived.header_column("user_id")
            case "command":
                return pc.if_else(arrived.header_column("reason").is_null(), *_COMMANDS)
            case "expiration":
                return arrived.header_column("expiration").cast(pa.int64()).cast(pa.int32())
            case _:
                return arrived.header_column(name)


def is_body_field(name: str, has_bodies: bool) -> bool:
    """Return whether a column is a field of the body."""
    return not has_bodies and not (name.startswith("_") and name[1:] in MESSAGE_METADATA)


def _whole(field: pa.Field, bodies: PackedBodies) -> pa.Array:
    """Return bodies unchanged: a string need not be UTF-8, as in Spark's own texts."""
    return bodies.to_arrow().view(field.type)


def _check_bodies(schema: StructType, known: dict[str, str]) -> None:
    body = schema[BODY].dataType
    if not isinstance(body, (StringType, BinaryType)):
        advice = ": parse_json(body) converts it to VARIANT" if body == VariantType() else ""
        raise SchemaError(
            f"schema: column body is {body.simpleString()}, expected string or binary{advice}"
        )
    for name in schema.names:
        if name != BODY and name not in known:
            raise SchemaError(
                f"schema: column {name!r}: with a column body, only {', '.join(known)} are allowed;"
                " remove body to read the fields of the body as columns"
            )


def _check_type(field: StructField, expected: DataType) -> None:
    if field.dataType != expected:
        raise SchemaError(
            f"schema: column {field.name!r} is {field.dataType.simpleString()},"
            f" expected {expected.simpleString()}"
        )
