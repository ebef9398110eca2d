"""The columns of a journal's DataFrame: bodies with metadata, or fields of the messages.

The two forms are those of `pipeline.rows`. With a column `body`, metadata columns have their plain
names. Without one, columns are fields of the messages, and metadata columns have an underscore
before their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from pipeline.arrow import check_names
from pipeline.errors import SchemaError
from pipeline.journal.columns import ENTRY_METADATA
from pipeline.journal.predicates import ColumnPredicate, accept, without_implied
from pipeline.rows import BODY, TEXT_TYPES
from pipeline.tolerance import STRICT, Tolerance


def default_schema(message_types: Iterable[str]) -> StructType:
    """Return the schema of whole messages with all metadata.

    Args:
        message_types: the message types; bodies are strings if all of these are texts.
    """
    body = StringType() if set(message_types) <= set(TEXT_TYPES) else BinaryType()
    fields = [StructField(name, kind) for name, kind in ENTRY_METADATA.items()]
    return StructType([StructField(BODY, body), *fields])


class JournalSchema:
    """The columns of a read.

    Args:
        schema: the columns.
        tolerance: how messages that do not fit are handled.

    Attributes:
        arrow_schema: the Arrow schema.
        has_bodies: whether one of the columns is whole messages.
        metadata: the name of the metadata by that of the column.
        fields: the columns that are fields of messages.
        corrupt_column: the column for messages that do not fit; None for none.

    Raises:
        PipelineError: a column is not valid; the text names it.
    """

    def __init__(self, schema: StructType, tolerance: Tolerance = STRICT) -> None:
        check_names(schema)
        self._schema = schema
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.has_bodies = BODY in schema.names
        prefix = "" if self.has_bodies else "_"
        known = {f"{prefix}{name}": name for name in ENTRY_METADATA}
        self.metadata = {name: known[name] for name in schema.names if name in known}
        self.corrupt_column = None if self.has_bodies else tolerance.corrupt_column(schema)
        rest = [
            field
            for field in schema
            if field.name not in known and field.name != self.corrupt_column
        ]
        if self.has_bodies:
            _check(schema[BODY], StringType(), BinaryType())
            for field in rest:
                if field.name != BODY:
                    raise SchemaError(
                        f"schema: column {field.name!r}: with a column body, only"
                        f" {', '.join(known)} are allowed; remove body to read the fields of"
                        " messages as columns"
                    )
            rest = []
        for name, what in self.metadata.items():
            _check(schema[name], ENTRY_METADATA[what])
        self.fields = StructType(rest)
        self._whole_columns = {BODY if self.has_bodies else self.corrupt_column}

    def accept_filters(self, filters: Iterable[Filter]) -> tuple[ColumnPredicate, ...]:
        """Return the predicates of the filters that can be tested while reading."""
        accepted = []
        for _, predicate in accept(filters, self._schema):
            if predicate is None or predicate.column in self._whole_columns:
                continue
            if predicate.column in self.metadata:
                accepted.append(replace(predicate, column=self.metadata[predicate.column]))
            else:
                accepted.append(replace(predicate, is_on_field=True))
        return without_implied(accepted)


def _check(field: StructField, *expected: DataType) -> None:
    if field.dataType not in expected:
        names = " or ".join(kind.simpleString() for kind in expected)
        raise SchemaError(
            f"schema: column {field.name!r} is {field.dataType.simpleString()}, expected {names}"
        )
