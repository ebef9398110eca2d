"""The types of casts in trees of sqlglot, as PostgreSQL's."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from server.sql.query import pg_types

_TYPE_NAMES: Final = {
    "TEXT": "text", "VARCHAR": "varchar", "NVARCHAR": "varchar", "CHAR": "bpchar", "NAME": "name",
    "BPCHAR": "bpchar", "INT": "int4", "BIGINT": "int8", "SMALLINT": "int2", "TINYINT": "int2",
    "BOOLEAN": "bool", "DOUBLE": "float8", "FLOAT": "float4", "DECIMAL": "numeric",
    "TIMESTAMPTZ": "timestamptz", "TIMESTAMP": "timestamp", "DATE": "date", "TIME": "time",
    "TIMETZ": "timetz", "INTERVAL": "interval", "JSON": "json", "JSONB": "jsonb", "UUID": "uuid",
    "VARBINARY": "bytea", "BINARY": "bytea", "TIMESTAMPLTZ": "timestamptz", "INET": "inet",
}  # fmt: skip
"""The names of PostgreSQL's types, by those of sqlglot."""


def type_name(data_type: exp.Expr) -> str | None:
    """Return the name of a type of a cast, in `pg_types`, with brackets for arrays."""
    if not isinstance(data_type, exp.DataType):
        return None
    if data_type.this == exp.DataType.Type.ARRAY:
        inner = data_type.expressions[0] if data_type.expressions else None
        name = type_name(inner) if inner is not None else None
        return None if name is None else f"{name}[]"
    if data_type.this == exp.DataType.Type.USERDEFINED:
        kind = data_type.args.get("kind")
        name = kind.name if isinstance(kind, exp.Expr) else str(kind or "")
        return name.lower()
    return _TYPE_NAMES.get(data_type.this.name)


def type_oid(data_type: exp.Expr) -> int | None:
    """Return the OID of the type of a cast; None if it is unknown."""
    name = type_name(data_type)
    return None if name is None else pg_types.find_oid(name)


def cast_to(value: exp.Expr, duckdb: str) -> exp.Cast:
    """Return a cast to a type of DuckDB."""
    return exp.Cast(this=value, to=exp.DataType.build(duckdb, dialect="duckdb", udt=True))
