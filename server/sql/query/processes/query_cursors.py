"""Cursors of DuckDB, of which those for queries of one table are kept with the table's name.

To make a table known to DuckDB takes as long as a small query. So the cursor of a query of one
table is used again for tables of the same name and columns; it reads the rows that the table has at
the moment. With several tables DuckDB has to know their sizes: these are made known for each query.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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


class _KeptCursor(NamedTuple):
    """A cursor, and the table that it knows."""

    cursor: duckdb.DuckDBPyConnection
    table: _TableRows


class QueryCursors:
    """The cursors of a database; for one query at a time.

    Args:
        database: the database.
    """

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database: Final = database
        self._kept: OrderedDict[_Key, _KeptCursor] = OrderedDict()
        self._queries: OrderedDict[str, None] = OrderedDict()

    @contextmanager
    def open(
        self, tables: Mapping[str, pa.Table], streams: Mapping[str, object]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor that knows some tables.

        Args:
            tables: tables by name.
            streams: tables that are read while they are used.
        """
        if len(tables) == 1 and not streams:
            ((name, rows),) = tables.items()
            with self._open_kept((name, rows.schema), rows) as cursor:
                yield cursor
            return
        cursor = self._database.cursor()
        try:
            for name, source in (*tables.items(), *streams.items()):
                cursor.register(name, source)
            yield cursor
        finally:
            _close(cursor)

    @contextmanager
    def _open_kept(self, key: _Key, rows: pa.Table) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the cursor of a table. After an error it is not used again."""
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = _KeptCursor(self._database.cursor(), _TableRows(key[1]))
            kept.cursor.register(key[0], kept.table)
        kept.table.rows = rows
        try:
            yield kept.cursor
        except BaseException:
            _close(kept.cursor)
            raise
        finally:
            kept.table.rows = None
        self._kept[key] = kept
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
