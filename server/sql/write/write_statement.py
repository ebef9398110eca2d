"""INSERT, UPDATE and DELETE: the rows that they write, and the query that finds them.

A statement that writes is divided into a target, the names of columns, and a query, which is
executed as any other. Parts of PostgreSQL's syntax that mean something else here are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.names import find_position
from server.sql.sqlstate import (
    DUPLICATE_COLUMN,
    FEATURE_NOT_SUPPORTED,
    GROUPING_ERROR,
    SYNTAX_ERROR,
)

_INSERT_PARTS: Final = frozenset({"this", "expression", "conflict", "default", "returning"})
_UPDATE_PARTS: Final = frozenset({"this", "expressions", "where", "returning", "from_"})
_DELETE_PARTS: Final = frozenset({"this", "where", "returning", "using"})
_TABLE_PARTS: Final = frozenset({"this", "db", "alias", "only"})


class WriteKind(Enum):
    """The kind of a statement that writes."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class WriteStatement(NamedTuple):
    """A statement that writes.

    Attributes:
        kind: the kind.
        schema: the schema that the target is written with; None for none.
        name: the target's name.
        columns: the names of the columns that are written, in order; none for DELETE.
        table: the target's node, with its alias.
        source: the rows of INSERT; None for the others.
        values: the expressions of UPDATE, in the order of the columns.
        where: the condition of UPDATE and DELETE.
        replaced: the columns that ON CONFLICT DO UPDATE sets; None without ON CONFLICT.
        conflict_key: the columns of ON CONFLICT; none if it has none.
        returning: the expressions of RETURNING; none without it.
    """

    kind: WriteKind
    schema: str | None
    name: str
    columns: tuple[str, ...]
    table: exp.Table
    source: exp.Expr | None = None
    values: tuple[exp.Expr, ...] = ()
    where: exp.Where | None = None
    replaced: frozenset[str] | None = None
    conflict_key: tuple[str, ...] = ()
    returning: tuple[exp.Expr, ...] = ()


def read_write_statement(tree: exp.Expr) -> WriteStatement:
    """Return the parts of an INSERT, UPDATE or DELETE.

    Raises:
        SqlError: the statement has parts that are not supported.
    """
    match tree:
        case exp.Insert():
            return _read_insert(tree)
        case exp.Update():
            return _read_update(tree)
        case exp.Delete():
            return _read_delete(tree)
        case _:
            raise SqlError(SYNTAX_ERROR, "expected INSERT, UPDATE or DELETE")


def _read_insert(tree: exp.Insert) -> WriteStatement:
    _check_parts(tree, _INSERT_PARTS, "INSERT")
    target = tree.this
    if not isinstance(target, exp.Schema) or not target.expressions or not tree.expression:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            "INSERT needs the names of the columns",
            hint="Columns have the order in which fields were first seen, which differs between"
            " instances: write INSERT INTO topic (column, ...), or (_body) for a whole message.",
        )
    table = _target_table(target.this)
    columns = tuple(_column_name(node) for node in target.expressions)
    _check_distinct(columns)
    replaced, conflict_key = _read_conflict(tree.args.get("conflict"))
    source = tree.expression.copy()
    source.parent = None
    for node in list(source.find_all(exp.Var)):
        if node.name.upper() == "DEFAULT":
            node.replace(exp.null())
    if isinstance(source, exp.Values):
        for row in source.expressions:
            width = len(row.expressions) if isinstance(row, exp.Tuple) else 1
            if width != len(columns):
                more = "expressions than target columns", "target columns than expressions"
                raise SqlError(SYNTAX_ERROR, f"INSERT has more {more[width < len(columns)]}")
    schema, name = _target_name(table)
    return WriteStatement(
        WriteKind.INSERT,
        schema,
        name,
        columns,
        table,
        source,
        replaced=replaced,
        conflict_key=conflict_key,
        returning=_read_returning(tree),
    )


def _read_conflict(node: exp.Expr | None) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """Return the columns that ON CONFLICT DO UPDATE sets, and those of its key."""
    if node is None:
        return None, ()
    action = node.args.get("action")
    is_update = action is not None and action.name.upper() == "DO UPDATE"
    hint = (
        "Write ON CONFLICT (key) DO UPDATE SET column = EXCLUDED.column for all columns that are"
        " no key; INSERT without ON CONFLICT replaces the whole record."
    )
    if not is_update or node.args.get("where") or node.args.get("constraint"):
        raise SqlError(FEATURE_NOT_SUPPORTED, "this ON CONFLICT is not supported", hint=hint)
    replaced: set[str] = set()
    for assignment in node.args.get("expressions") or ():
        column, value = assignment.this, assignment.expression
        if (
            not isinstance(assignment, exp.EQ)
            or not isinstance(column, exp.Column)
            or not isinstance(value, exp.Column)
            or _folded(value.args.get("table")) != "excluded"
            or _folded(value.this) != _folded(column.this)
        ):
            raise SqlError(FEATURE_NOT_SUPPORTED, "this ON CONFLICT is not supported", hint=hint)
        replaced.add(_folded(column.this))
    key: list[str] = []
    for node_ in node.args.get("conflict_keys") or ():
        column = node_.this if isinstance(node_, exp.Ordered) else node_
        if not isinstance(column, exp.Column | exp.Identifier):
            raise SqlError(FEATURE_NOT_SUPPORTED, "this ON CONFLICT is not supported", hint=hint)
        key.append(_folded(column.this if isinstance(column, exp.Column) else column))
    return frozenset(replaced), tuple(key)


def _read_update(tree: exp.Update) -> WriteStatement:
    _check_parts(tree, _UPDATE_PARTS, "UPDATE")
    if tree.args.get("from_"):
        raise _join_refused("UPDATE ... FROM")
    table = _target_table(tree.this)
    columns: list[str] = []
    values: list[exp.Expr] = []
    for assignment in tree.expressions:
        column = assignment.this
        if not isinstance(assignment, exp.EQ) or not isinstance(column, exp.Column):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "UPDATE sets one column at a time",
                hint="Write SET a = 1, b = 2; an element of an array cannot be set.",
            )
        if column.table:
            raise SqlError(
                SYNTAX_ERROR, f'syntax error: write SET "{column.name}" without the table'
            )
        columns.append(_folded(column.this))
        value = assignment.expression
        is_default = isinstance(value, exp.Column) and not value.table and _is_default(value.this)
        values.append(exp.null() if is_default else value.copy())
    _check_distinct(columns)
    schema, name = _target_name(table)
    return WriteStatement(
        WriteKind.UPDATE,
        schema,
        name,
        tuple(columns),
        table,
        values=tuple(values),
        where=tree.args.get("where"),
        returning=_read_returning(tree),
    )


def _read_delete(tree: exp.Delete) -> WriteStatement:
    _check_parts(tree, _DELETE_PARTS, "DELETE")
    if tree.args.get("using"):
        raise _join_refused("DELETE ... USING")
    table = _target_table(tree.this)
    schema, name = _target_name(table)
    return WriteStatement(
        WriteKind.DELETE,
        schema,
        name,
        (),
        table,
        where=tree.args.get("where"),
        returning=_read_returning(tree),
    )


def rows_query(
    statement: WriteStatement, metadata: Iterable[str], values: Iterable[exp.Expr] = ()
) -> exp.Select:
    """Return the query for the rows that UPDATE and DELETE change.

    Args:
        statement: the statement.
        metadata: the names of columns that the result begins with.
        values: the expressions that follow.
    """
    alias = statement.table.args.get("alias")
    qualifier = alias.this if alias is not None else statement.table.this
    columns: list[exp.Expr] = [
        exp.Column(this=exp.to_identifier(name, quoted=True), table=qualifier.copy())
        for name in metadata
    ]
    where = statement.where
    return exp.Select(
        expressions=[*columns, *(value.copy() for value in values)],
        from_=exp.From(this=statement.table.copy()),
        where=where.copy() if where is not None else None,
    )


def returning_query(statement: WriteStatement) -> exp.Select:
    """Return the query of RETURNING over the rows that the statement has written."""
    return exp.Select(
        expressions=[node.copy() for node in statement.returning],
        from_=exp.From(this=statement.table.copy()),
    )


def _check_parts(tree: exp.Expr, known: frozenset[str], name: str) -> None:
    for part, value in tree.args.items():
        if value and part not in known:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f"this form of {name} is not supported",
                hint="Begin the statement with INSERT, and write WITH after the columns."
                if part == "with_"
                else "Leave out what PostgreSQL does not have.",
            )


def _read_returning(tree: exp.Expr) -> tuple[exp.Expr, ...]:
    """Return the expressions of RETURNING.

    Raises:
        SqlError: one of them is not decided by a row alone.
    """
    returning = tree.args.get("returning")
    if returning is None:
        return ()
    for kinds, sqlstate, problem in _NOT_RETURNED:
        found = returning.find(*kinds)
        if found is not None:
            raise SqlError(sqlstate, problem, position=find_position(found))
    return tuple(returning.expressions)


_NOT_RETURNED: Final = (
    ((exp.Query,), FEATURE_NOT_SUPPORTED, "subqueries are not supported in RETURNING"),
    ((exp.Window,), "42P20", "window functions are not allowed in RETURNING"),
    ((exp.AggFunc,), GROUPING_ERROR, "aggregate functions are not allowed in RETURNING"),
)
"""Parts of queries that RETURNING cannot have."""


def _join_refused(what: str) -> SqlError:
    return SqlError(
        FEATURE_NOT_SUPPORTED,
        f"{what} is not supported",
        hint="Read other tables by subqueries.",
    )


def _target_table(node: exp.Expr | None) -> exp.Table:
    if (
        not isinstance(node, exp.Table)
        or not isinstance(node.this, exp.Identifier)
        or any(value and part not in _TABLE_PARTS for part, value in node.args.items())
    ):
        raise SqlError(SYNTAX_ERROR, "expected the name of a topic")
    table = node.copy()
    table.parent = None
    table.set("only", None)
    return table


def _target_name(table: exp.Table) -> tuple[str | None, str]:
    schema = table.args.get("db")
    return (None if schema is None else _folded(schema)), _folded(table.this)


def _column_name(node: exp.Expr) -> str:
    if not isinstance(node, exp.Identifier):
        raise SqlError(SYNTAX_ERROR, "expected the name of a column")
    return _folded(node)


def _check_distinct(columns: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in columns:
        if name in seen:
            raise SqlError(DUPLICATE_COLUMN, f'column "{name}" specified more than once')
        seen.add(name)


def _folded(node: exp.Expr | None) -> str:
    """Return the name of an identifier, in lower case if it is not quoted."""
    if not isinstance(node, exp.Identifier):
        return ""
    text = str(node.this)
    return text if node.args.get("quoted") else text.lower()


def _is_default(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Identifier)
        and not node.args.get("quoted")
        and (node.name.upper() == "DEFAULT")
    )
