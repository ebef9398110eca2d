"""The commands of Flight SQL that ask for the catalogue: their results as tables of Arrow.

There is one catalogue, which has the name of the instance; the schemas are those of the tables that
the user sees. Source: FlightSql.proto of Apache Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from server.sql.flight.arrow_types import table_schema
from server.sql.flight.sql_info import SQL_INFO_SCHEMA, XDBC_SCHEMA, sql_info, xdbc_types
from server.sql.query.errors import SqlError
from server.sql.query.tables import TableKind
from server.sql.sqlstate import INVALID_PARAMETER_VALUE
from server.util.limits import MAX_TOPIC_NAME_LENGTH

if TYPE_CHECKING:
    from server.sql.query.tables import Table

_TABLE_TYPES: Final = {
    TableKind.VIEW: "VIEW",
    TableKind.CONFLATED: "VIEW",
    TableKind.STATISTICS: "SYSTEM TABLE",
}
"""The types of kinds of tables other than TABLE."""
_TABLE: Final = "TABLE"


def _fields(*names: str, nullable: Sequence[str] = ()) -> pa.Schema:
    """Return a schema of texts."""
    return pa.schema([pa.field(name, pa.string(), nullable=name in nullable) for name in names])


_CATALOGS: Final = _fields("catalog_name")
_SCHEMAS: Final = _fields("catalog_name", "db_schema_name", nullable=["catalog_name"])
_TABLES: Final = _fields(
    "catalog_name",
    "db_schema_name",
    "table_name",
    "table_type",
    nullable=["catalog_name", "db_schema_name"],
)
_TABLE_SCHEMA: Final = pa.field("table_schema", pa.binary(), nullable=False)
_TYPES: Final = _fields("table_type")
_KEYS: Final = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("key_name", pa.string()),
        pa.field("key_sequence", pa.int32(), nullable=False),
    ]
)
_REFERENCES: Final = pa.schema(
    [
        pa.field("pk_catalog_name", pa.string()),
        pa.field("pk_db_schema_name", pa.string()),
        pa.field("pk_table_name", pa.string(), nullable=False),
        pa.field("pk_column_name", pa.string(), nullable=False),
        pa.field("fk_catalog_name", pa.string()),
        pa.field("fk_db_schema_name", pa.string()),
        pa.field("fk_table_name", pa.string(), nullable=False),
        pa.field("fk_column_name", pa.string(), nullable=False),
        pa.field("key_sequence", pa.int32(), nullable=False),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)


class MetadataSource(NamedTuple):
    """The catalogue that a user sees.

    Attributes:
        catalogue: the name of the catalogue.
        tables: returns the tables; on a worker thread.
    """

    catalogue: str
    tables: Callable[[], Sequence[Table]]


def _catalogs(_command: Any, source: MetadataSource) -> pa.Table:
    return _table([{"catalog_name": source.catalogue}], _CATALOGS)


def _schemas(command: Any, source: MetadataSource) -> pa.Table:
    matches = _pattern(command, "db_schema_filter_pattern")
    names = dict.fromkeys(table.schema for table in _tables_of(command, "catalog", source))
    rows = [
        {"catalog_name": source.catalogue, "db_schema_name": name}
        for name in sorted(names)
        if matches(name)
    ]
    return _table(rows, _SCHEMAS)


def _tables(command: Any, source: MetadataSource) -> pa.Table:
    matches_schema = _pattern(command, "db_schema_filter_pattern")
    matches_name = _pattern(command, "table_name_filter_pattern")
    types = set(command.table_types)
    rows: list[dict[str, object]] = [
        {
            "catalog_name": source.catalogue,
            "db_schema_name": table.schema,
            "table_name": table.name,
            "table_type": _type_of(table),
        }
        | (
            {"table_schema": table_schema(table).serialize().to_pybytes()}
            if command.include_schema
            else {}
        )
        for table in sorted(
            _tables_of(command, "catalog", source),
            key=lambda table: (_type_of(table), table.schema, table.name),
        )
        if matches_schema(table.schema)
        and matches_name(table.name)
        and (not types or _type_of(table) in types)
    ]
    return _table(rows, _tables_schema(command))


def _tables_schema(command: Any) -> pa.Schema:
    return _TABLES.append(_TABLE_SCHEMA) if command.include_schema else _TABLES


def _table_types(_command: Any, _source: MetadataSource) -> pa.Table:
    names = sorted({_TABLE, *_TABLE_TYPES.values()})
    return _table([{"table_type": name} for name in names], _TYPES)


def _primary_keys(command: Any, source: MetadataSource) -> pa.Table:
    rows = [
        {
            "catalog_name": source.catalogue,
            "db_schema_name": table.schema,
            "table_name": table.name,
            "column_name": name,
            "key_name": f"{table.name}_pkey",
            "key_sequence": number,
        }
        for table in _tables_of(command, "catalog", source)
        if table.name == command.table
        and (not command.HasField("db_schema") or table.schema == command.db_schema)
        for number, name in enumerate(table.key, 1)
    ]
    return _table(rows, _KEYS)


def _no_references(_command: Any, _source: MetadataSource) -> pa.Table:
    return _table([], _REFERENCES)


def _sql_info(command: Any, _source: MetadataSource) -> pa.Table:
    return sql_info(set(command.info))


def _xdbc_types(command: Any, _source: MetadataSource) -> pa.Table:
    return xdbc_types(command.data_type if command.HasField("data_type") else None)


_COMMANDS: Final[
    dict[str, tuple[pa.Schema | Callable[[Any], pa.Schema], Callable[..., pa.Table]]]
] = {
    "CommandGetCatalogs": (_CATALOGS, _catalogs),
    "CommandGetDbSchemas": (_SCHEMAS, _schemas),
    "CommandGetTables": (_tables_schema, _tables),
    "CommandGetTableTypes": (_TYPES, _table_types),
    "CommandGetPrimaryKeys": (_KEYS, _primary_keys),
    "CommandGetExportedKeys": (_REFERENCES, _no_references),
    "CommandGetImportedKeys": (_REFERENCES, _no_references),
    "CommandGetCrossReference": (_REFERENCES, _no_references),
    "CommandGetSqlInfo": (SQL_INFO_SCHEMA, _sql_info),
    "CommandGetXdbcTypeInfo": (XDBC_SCHEMA, _xdbc_types),
}
"""The columns and the function of each command."""


def is_metadata(name: str) -> bool:
    """Return whether a command asks for the catalogue."""
    return name in _COMMANDS


def metadata_schema(name: str, command: Any) -> pa.Schema:
    """Return the columns of the result of a command."""
    schema = _COMMANDS[name][0]
    return schema(command) if callable(schema) else schema


def metadata_table(name: str, command: Any, source: MetadataSource) -> pa.Table:
    """Return the result of a command; on a worker thread."""
    return _COMMANDS[name][1](command, source)


def _table(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def _type_of(table: Table) -> str:
    return _TABLE_TYPES.get(table.kind, _TABLE)


def _tables_of(command: Any, field: str, source: MetadataSource) -> Sequence[Table]:
    """Return the tables of the catalogue that a command names: all, or none."""
    if command.HasField(field) and getattr(command, field) not in ("", source.catalogue):
        return ()
    return source.tables()


def _pattern(command: Any, field: str) -> Callable[[str], bool]:
    """Return the test of a pattern of LIKE; without one, everything matches.

    Raises:
        SqlError: the pattern is too long.
    """
    if not command.HasField(field):
        return lambda _: True
    pattern = getattr(command, field)
    if len(pattern) > MAX_TOPIC_NAME_LENGTH:
        raise SqlError(
            INVALID_PARAMETER_VALUE,
            f"a pattern of names has at most {MAX_TOPIC_NAME_LENGTH} characters",
        )
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return lambda text: _is_like(text, parts)


def _is_like(text: str, parts: Sequence[str]) -> bool:
    """Return whether a text matches a pattern, in time proportional to both lengths at most.

    Only the last % is tried again with one more character: those before it have been matched as
    early as possible.
    """
    at = index = 0
    retry_at = retry_index = -1
    while at < len(text):
        part = parts[index] if index < len(parts) else None
        if part == "%":
            index += 1
            retry_at, retry_index = at, index
        elif part is not None and (part == "_" or part[-1] == text[at]):
            at, index = at + 1, index + 1
        elif retry_index >= 0:
            retry_at += 1
            at, index = retry_at, retry_index
        else:
            return False
    return all(part == "%" for part in parts[index:])
