"""Cursors of DuckDB, of which those for queries of one table are kept with the table's name.

To make a table known to DuckDB takes as long as a small query. So the cursor of a query of one
table is used again for tables of the same name and columns; it reads the rows that the table has at
the moment. With several tables DuckDB has to know their sizes: these are made known for each query.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_MAX_CURSORS: Final = 16
_MAX_CHECKED_TEXTS: Final = 64
_MAX_CHECKED_LENGTH: Final = 10_000
"""Cursors that are kept, and texts, with their length in characters."""

_Key: TypeAlias = tuple[str, pa.Schema]


class _TableRows:
    """A table with other rows in each query: see Arrow's PyCapsule interface."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows: pa.Table | None = None
        self._schema: Final = schema

    def __arrow_c_schema__(self) -> object:
        """Return the columns."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Begin a stream of the rows."""
        rows = self._schema.empty_table() if self.rows is None else self.rows
        return rows.__arrow_c_stream__(requested_schema)


class QueryCursor(NamedTuple):
    """A cursor that knows the tables of a query.

    Attributes:
        cursor: the cursor.
        key: the name and the columns of its only table; None if the cursor is for one query.
        table: that table.
    """

    cursor: duckdb.DuckDBPyConnection
    key: _Key | None = None
    table: _TableRows | None = None


class QueryCursors:
    """The cursors of a database; for one query at a time.

    Args:
        database: the database.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database: Final = database
        self._kept: OrderedDict[_Key, QueryCursor] = OrderedDict()
        self._queries: OrderedDict[str, None] = OrderedDict()

    def open(self, tables: Mapping[str, pa.Table], streams: Mapping[str, object]) -> QueryCursor:
        """Return a cursor that knows some tables.

        Args:
            tables: tables by name.
            streams: tables that are read while they are used.
        """
        if len(tables) == 1 and not streams:
            ((name, rows),) = tables.items()
            kept = self._kept.pop((name, rows.schema), None) or self._make_kept(name, rows.schema)
            if kept.table is not None:
                kept.table.rows = rows
            return kept
        cursor = self._database.cursor()
        for name, source in (*tables.items(), *streams.items()):
            cursor.register(name, source)
        return QueryCursor(cursor)

    def _make_kept(self, name: str, schema: pa.Schema) -> QueryCursor:
        table = _TableRows(schema)
        cursor = self._database.cursor()
        cursor.register(name, table)
        return QueryCursor(cursor, (name, schema), table)

    def release(self, opened: QueryCursor, *, is_finished: bool) -> None:
        """Keep or close a cursor. Nothing may refer to a result any more.

        Args:
            opened: the cursor.
            is_finished: whether the query has come to its end; the cursor is closed if not.
        """
        if opened.table is not None:
            opened.table.rows = None
        if opened.key is None or not is_finished:
            _close(opened.cursor)
            return
        self._kept[opened.key] = opened
        if len(self._kept) > _MAX_CURSORS:
            _close(self._kept.popitem(last=False)[1].cursor)

    def is_query(self, cursor: duckdb.DuckDBPyConnection, text: str) -> bool:
        """Return whether DuckDB reads a text as one query; the last texts are kept."""
        import duckdb

        if text in self._queries:
            self._queries.move_to_end(text)
            return True
        types = [statement.type for statement in cursor.extract_statements(text)]
        if types != [duckdb.StatementType.SELECT]:
            return False
        if len(text) <= _MAX_CHECKED_LENGTH:
            self._queries[text] = None
            if len(self._queries) > _MAX_CHECKED_TEXTS:
                self._queries.popitem(last=False)
        return True


def _close(cursor: duckdb.DuckDBPyConnection) -> None:
    with suppress(Exception):
        cursor.close()
