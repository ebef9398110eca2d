"""The columns of results as Arrow describes them, before there is a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from server.sql.query import pg_types
from server.sql.query.tables import SqlType

if TYPE_CHECKING:
    from server.sql.postgres.types import ResultColumn
    from server.sql.query.results import QueryColumn
    from server.sql.query.tables import Table

_ARROW_TYPES: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "HUGEINT": pa.decimal128(38, 0),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "UHUGEINT": pa.decimal128(38, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BLOB": pa.binary(),
    "BIT": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_S": pa.timestamp("us"),
    "TIMESTAMP_MS": pa.timestamp("us"),
    "TIMESTAMP_NS": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "INTERVAL": pa.month_day_nano_interval(),
}
"""DuckDB's types in results; others are texts (server/sql/query/processes/result_batches.py)."""

_DECIMAL: Final = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")

DIGEST_BYTES: Final = 8
"""Bytes of the digest of a schema."""

_LIVE_TYPES: Final = {kind.oid: kind.arrow_type for kind in SqlType}


def arrow_type(duckdb_name: str) -> pa.DataType:
    """Return the type in Arrow for DuckDB's type of a result."""
    if duckdb_name.endswith("[]") and not duckdb_name.startswith(pg_types.COMPOSITE_TYPES):
        element = duckdb_name.removesuffix("[]")
        is_fixed = element.endswith("]") and not element.endswith("[]")
        return pa.string() if is_fixed else pa.list_(arrow_type(element))
    decimal = _DECIMAL.fullmatch(duckdb_name)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW_TYPES.get(duckdb_name, pa.string())


def parameter_type(oid: int) -> pa.DataType:
    """Return the type in Arrow for the OID of a parameter; text if it is unknown."""
    return arrow_type(pg_types.duckdb_type(oid) or "VARCHAR")


def query_schema(columns: Sequence[QueryColumn]) -> pa.Schema:
    """Return the schema of the result of a query."""
    return pa.schema([(column.name, arrow_type(column.duckdb_type)) for column in columns])


def digest(schema: pa.Schema) -> bytes:
    """Return some bytes that differ if the columns of two schemas do."""
    return blake2b(schema.serialize(), digest_size=DIGEST_BYTES).digest()


def live_schema(columns: Sequence[ResultColumn]) -> pa.Schema:
    """Return the schema of a SUBSCRIBE."""
    return pa.schema([(column.name, _LIVE_TYPES[column.type_oid]) for column in columns])


def table_schema(table: Table) -> pa.Schema:
    """Return the schema of a table, with the types in SQL as metadata."""
    return pa.schema(
        [
            pa.field(
                column.name,
                column.type.arrow_type,
                metadata={"ARROW:FLIGHT:SQL:TYPE_NAME": column.type.sql_name},
            )
            for column in table.columns
        ]
    )


def with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns as a client has been told them."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
