"""The check that a statement only reads, and has no parts of FROM that are not supported."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, SYNTAX_ERROR

_ROOTS: Final = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery, exp.Table)

_FORBIDDEN: Final = (
    *(exp.DML, exp.DDL, exp.Command, exp.Into, exp.Copy, exp.Pragma, exp.Attach, exp.Detach),
    *(exp.Set, exp.Use, exp.Drop, exp.Kill, exp.Show, exp.Transaction, exp.Commit, exp.Rollback),
)

_REFUSED: Final = (
    (exp.Pivot, "PIVOT", "Write aggregates with FILTER (WHERE ...), or UNION ALL."),
    (exp.TableSample, "TABLESAMPLE", "Write a condition such as WHERE random() < 0.1."),
    ((exp.Describe, exp.Summarize), "DESCRIBE", "Read information_schema.columns."),
    (exp.HistoricalData, "a table as of another time", "A query reads the current records."),
)
"""Parts of FROM that not all tables would keep on the way to DuckDB."""


def check_read_only(tree: exp.Expr) -> None:
    """Raise an error for anything but a query.

    Raises:
        SqlError: the tree writes, defines, locks or sets something, or has parts of FROM that are
            not supported.
    """
    if isinstance(tree, exp.DML) and not isinstance(tree, _ROOTS):
        raise _writing_query()
    if not isinstance(tree, _ROOTS):
        raise SqlError(SYNTAX_ERROR, "expected a query: SELECT, VALUES, TABLE or WITH")
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN) and not isinstance(node, _ROOTS):
            raise _writing_query()
        if isinstance(node, exp.Lock):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "queries take no locks",
                hint="Leave out FOR UPDATE: a query reads one consistent snapshot.",
            )
        for kind, what, hint in _REFUSED:
            if isinstance(node, kind):
                raise SqlError(FEATURE_NOT_SUPPORTED, f"{what} is not supported", hint=hint)
        if isinstance(node, exp.Table) and node.args.get("rows_from"):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "ROWS FROM is not supported",
                hint="Write the functions in FROM one by one.",
            )
        if isinstance(node, exp.Placeholder | exp.SessionParameter):
            raise SqlError(SYNTAX_ERROR, "parameters are written $1, $2, ...")


def _writing_query() -> SqlError:
    return SqlError(
        FEATURE_NOT_SUPPORTED,
        "a query writes nothing",
        hint="Begin statements that write with INSERT, UPDATE or DELETE, such as INSERT INTO topic"
        " (...) WITH ... SELECT.",
    )
