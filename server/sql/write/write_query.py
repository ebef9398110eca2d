"""The query for the rows of a statement that writes, and the columns that it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.read_only import check_read_only
from server.sql.query.statement import Statement, StatementKind
from server.sql.query.tables import SqlType, Table, TableKind
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, WRONG_OBJECT_TYPE
from server.sql.tables.columns import Metadata
from server.sql.write.row_versions import VersionedRows
from server.sql.write.write_statement import WriteStatement, rows_query
from server.sql.write.write_target import (
    INSERTED_METADATA,
    WriteColumn,
    WriteTarget,
    check_no_overlap,
    is_metadata,
    metadata_refused,
    not_writable,
    require_fields,
)
from server.storage.sow.keys.key_source import PublisherKeys

if TYPE_CHECKING:
    from server.sql.query.tables import TableSource
    from server.sql.tables.catalogue import SessionTables
    from server.sql.tables.instance_tables import SessionTopic

_UNKNOWN_OIDS: Final = (0, 705)
_BODY: Final = Metadata.BODY.value.name
_KEY: Final = Metadata.KEY.value.name
_TOPIC: Final = Metadata.TOPIC.value.name


class WriteQuery(NamedTuple):
    """A statement that writes, prepared for execution.

    Attributes:
        statement: the statement.
        target: the topic.
        columns: the columns of fields that are written, by name, in order.
        metadata: the metadata that are written, in the order of the columns.
        query: the query for the rows.
        source: the tables that it reads.
        refused: the metadata that must be NULL in rows of INSERT.
        types: the types of the columns of INSERT; None for fields that are new.
        topic: the topic as the user sees it; None if it is no table.
    """

    statement: WriteStatement
    target: WriteTarget
    columns: dict[str, WriteColumn]
    metadata: tuple[str, ...]
    query: Statement
    source: TableSource
    refused: frozenset[str] = frozenset()
    types: tuple[SqlType | None, ...] = ()
    topic: SessionTopic | None = None


def plan_insert(
    statement: Statement,
    write: WriteStatement,
    target: WriteTarget,
    parameter_types: Sequence[int],
    tables: SessionTables,
) -> WriteQuery:
    """Return the query for the rows of an INSERT.

    Args:
        statement: the statement.
        write: its parts.
        target: the topic.
        parameter_types: the types of its parameters that the client asked for.
        tables: the tables of the user.

    Raises:
        SqlError: the topic takes no such rows.
    """
    table = target.table
    if table is not None and table.kind in (TableKind.VIEW, TableKind.CONFLATED):
        raise not_writable(table)
    if target.records is not None and target.records.is_container and table is not None:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            f'"{target.topic}" stands for the topics of a pattern',
            hint='Write to one of these topics by its name: INSERT INTO "topic" (...).',
        )
    metadata = tuple(name for name in write.columns if is_metadata(name, target))
    columns = {name: target.find_column(name) for name in write.columns if name not in metadata}
    _check_insert(write, target, columns, metadata)
    assert write.source is not None  # noqa: S101 - of INSERT
    types = tuple(
        _metadata_type(name, target) if name in metadata else columns[name].sql_type
        for name in write.columns
    )
    source = _with_types(write.source, types, parameter_types)
    query = _as_query(statement, source)
    taken = INSERTED_METADATA if _has_publisher_keys(target) else INSERTED_METADATA - {_KEY}
    refused = frozenset(metadata) - taken
    return WriteQuery(write, target, columns, metadata, query, tables, refused, types)


def plan_change(
    statement: Statement,
    write: WriteStatement,
    target: WriteTarget,
    parameter_types: Sequence[int],
    tables: SessionTables,
) -> WriteQuery:
    """Return the query for the records of an UPDATE or DELETE.

    Args:
        statement: the statement.
        write: its parts.
        target: the topic.
        parameter_types: the types of its parameters that the client asked for.
        tables: the tables of the user.

    Raises:
        SqlError: the topic has no records that can be changed so.
    """
    table = target.table
    if table is None or target.records is None:
        if table is not None:
            raise not_writable(table)
        hint = "Publish to it by INSERT."
        if target.records is not None and target.records.is_container:
            hint = f'Write to the table "{target.records.name}", WHERE _topic is the name.'
        raise SqlError(
            WRONG_OBJECT_TYPE,
            f'"{target.topic}" is no table with records that the user may read',
            hint=hint,
        )
    columns: dict[str, WriteColumn] = {}
    for name in write.columns:
        if is_metadata(name, target):
            raise metadata_refused(name)
        column = columns[name] = target.find_column(name)
        target.check_updatable(name, column.path)
    if columns:
        require_fields(target)
    if not target.is_flat:
        check_no_overlap(columns)
    rows = VersionedRows(tables, table)
    metadata = (_KEY, rows.version_column, *((_TOPIC,) if _has_topic(table) else ()))
    values = [
        _with_type(value, column.sql_type, parameter_types)
        for value, column in zip(write.values, columns.values(), strict=True)
    ]
    query = _as_query(statement, rows_query(write, metadata, values))
    return WriteQuery(write, target, columns, metadata, query, rows)


def _as_query(statement: Statement, tree: exp.Expr) -> Statement:
    check_read_only(tree)
    return Statement(
        statement.text,
        StatementKind.SELECT,
        "SELECT",
        statement.offset,
        tree=tree,
        parameter_count=statement.parameter_count,
    )


def _check_insert(
    write: WriteStatement,
    target: WriteTarget,
    columns: dict[str, WriteColumn],
    metadata: Sequence[str],
) -> None:
    if _BODY not in metadata:
        require_fields(target)
        if not columns:
            raise metadata_refused(metadata[0])
    if not target.is_flat:
        check_no_overlap(columns)
    if write.replaced is not None:
        _check_conflict(write, target, columns, metadata)


def _check_conflict(
    write: WriteStatement,
    target: WriteTarget,
    columns: dict[str, WriteColumn],
    metadata: Sequence[str],
) -> None:
    """Check that ON CONFLICT is what a delta does: it sets all columns that are no key."""
    if target.records is None or not target.key_fields or metadata:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            "ON CONFLICT needs a topic with a Key, and fields",
            hint="INSERT without ON CONFLICT replaces the whole record.",
        )
    key = {name for name, column in columns.items() if column.path in target.key_fields}
    if len(key) < len(target.key_fields) or (write.conflict_key and set(write.conflict_key) != key):
        raise SqlError(
            "42P10",
            "there is no unique constraint matching the ON CONFLICT specification",
            hint="The columns of the key are "
            + ", ".join(".".join(map(str, path)) for path in target.key_fields)
            + "; INSERT has to name them all.",
        )
    assert write.replaced is not None  # noqa: S101 - by the caller
    if write.replaced - key != columns.keys() - key:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            "ON CONFLICT DO UPDATE has to set all columns that INSERT names",
            hint="Write SET column = EXCLUDED.column for each column that is no key.",
        )


def _has_publisher_keys(target: WriteTarget) -> bool:
    records = target.records
    return records is not None and isinstance(records.key_source(target.topic), PublisherKeys)


def _has_topic(table: Table) -> bool:
    return any(column.name == _TOPIC for column in table.columns) and _TOPIC in table.key


def _metadata_type(name: str, target: WriteTarget) -> SqlType:
    return SqlType.BYTEA if name == _BODY and target.is_binary else SqlType.TEXT


def _with_types(
    source: exp.Expr, types: Sequence[SqlType | None], parameter_types: Sequence[int]
) -> exp.Expr:
    """Return the rows of INSERT; give parameters the types of their columns."""
    if isinstance(source, exp.Values):
        for row in source.expressions:
            if isinstance(row, exp.Tuple):
                row.set(
                    "expressions",
                    [
                        _with_type(value, kind, parameter_types)
                        for value, kind in zip(row.expressions, types, strict=True)
                    ],
                )
    elif isinstance(source, exp.Select) and len(source.expressions) == len(types):
        source.set(
            "expressions",
            [
                _with_type(value, kind, parameter_types)
                for value, kind in zip(source.expressions, types, strict=True)
            ],
        )
    return source


def _with_type(value: exp.Expr, kind: SqlType | None, parameter_types: Sequence[int]) -> exp.Expr:
    """Return a parameter with the type of its column, if the client has given it none."""
    inner = value
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if kind is None or not isinstance(inner, exp.Parameter):
        return value
    number = int(inner.this.name)
    declared = parameter_types[number - 1] if number <= len(parameter_types) else 0
    if declared not in _UNKNOWN_OIDS:
        return value
    return exp.Cast(
        this=inner.copy(), to=exp.DataType.build(kind.sql_name, dialect="postgres", udt=True)
    )
