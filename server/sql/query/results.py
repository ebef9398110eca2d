"""Results of queries: their columns and rows, and those of statements that are no queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from server.sql.query.session import SqlSession
    from server.sql.query.statement import Statement


class QueryColumn(NamedTuple):
    """A column of a result, as described to a client.

    Attributes:
        name: the name; several may have the same.
        oid: the OID of the type.
        duckdb_type: the type in DuckDB.
    """

    name: str
    oid: int
    duckdb_type: str = "VARCHAR"


class Description(NamedTuple):
    """A statement's parameters and result, without executing it.

    Attributes:
        parameter_oids: the types of `$1`, `$2`, ...
        columns: the columns of the result; None if there is no result.
        warnings: unknown parts of the catalogue, for the log.
    """

    parameter_oids: tuple[int, ...]
    columns: tuple[QueryColumn, ...] | None
    warnings: tuple[str, ...] = ()


class QueryResult:
    """The result of a query: its columns, and its rows as they are computed.

    It has to be read to its end, or closed.

    Attributes:
        columns: the columns.
        warnings: unknown parts of the catalogue, for the log.
    """

    def __init__(
        self,
        columns: Sequence[QueryColumn],
        batches: Iterator[pa.RecordBatch],
        warnings: Sequence[str] = (),
    ) -> None:
        self.columns = tuple(columns)
        self.warnings = tuple(warnings)
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; the columns are those of `columns`, in their order.

        Raises:
            SqlError: the query fails or is cancelled.
        """
        return self._batches

    def close(self) -> None:
        """End the query."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


# ---- results that are no queries

EXPLAIN_COLUMNS: Final = (QueryColumn("QUERY PLAN", 25),)


def _rows(
    columns: Sequence[QueryColumn], rows: Sequence[Sequence[str]], warnings: Sequence[str] = ()
) -> QueryResult:
    arrays = [pa.array([row[index] for row in rows], pa.string()) for index in range(len(columns))]
    names = [column.name for column in columns]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    return QueryResult(columns, iter([batch]), warnings)


def explained(lines: Sequence[str], warnings: Sequence[str]) -> QueryResult:
    """Return the lines of EXPLAIN as a result."""
    return _rows(EXPLAIN_COLUMNS, [[line] for line in lines], warnings)


def show_columns(statement: Statement) -> tuple[QueryColumn, ...]:
    """Return the columns of a SHOW."""
    if statement.name == "ALL":
        return tuple(QueryColumn(name, 25) for name in ("name", "setting", "description"))
    return (QueryColumn((statement.name or "").lower(), 25),)


def show(statement: Statement, session: SqlSession) -> QueryResult:
    """Return the result of a SHOW."""
    columns = show_columns(statement)
    if statement.name == "ALL":
        return _rows(columns, list(session.settings()))
    return _rows(columns, [[session.setting(statement.name or "") or ""]])
