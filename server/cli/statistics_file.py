"""A statistics database, opened read-only, with the tables and functions for queries.

X_STATIC and X_DYNAMIC are joined under their base name, whichever program has made them. The file
is not written to, and a server that records statistics in it is not delayed.

Source: AMPS User Guide, Query Statistics Database.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from server.statistics.layout import quoted
from server.statistics.timestamps import from_text, to_local_text, to_text
from server.storage.journal.format.layout import decode_text, encode_text
from server.util.json_lines import base64_field, plain_field
from server.util.safe_open import open_regular

ResultRow: TypeAlias = tuple[Any, ...]
_Scalar: TypeAlias = int | str

_STATIC: Final = "_STATIC"
_DYNAMIC: Final = "_DYNAMIC"

_FUNCTIONS: Final[Mapping[str, Callable[[Any], _Scalar]]] = {
    "iso8601": lambda given: to_text(int(given)),
    "iso8601_local": lambda given: to_local_text(int(given)),
    "timestamp": lambda given: from_text(str(given)),
}

_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"

_MIN_DATABASE_SIZE: Final = 512
"""Minimum size of a database in bytes; SQLite treats a shorter file as an empty one."""

_BUSY_SECONDS: Final = 10.0

_INTERRUPT_CHECK_STEPS: Final = 100_000
"""Instructions of SQLite's virtual machine between two checks for an interrupt."""


class StatisticsFileError(Exception):
    """A database cannot be read, or a query cannot be answered. The text is for the user."""


class StatisticsFile:
    """An open database.

    Args:
        name: name of the file.

    Raises:
        StatisticsFileError: it cannot be read.

    Attributes:
        joined_tables: the names of joined tables, sorted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._error_text: str | None = None
        try:
            self._connection = _open(name)
            self._tables = {name for (name,) in self._connection.execute(_TABLES)}
            self.joined_tables = self._join_tables()
        except sqlite3.Error as error:
            raise StatisticsFileError(f"{name}: {error}") from None
        except UnicodeEncodeError:
            raise StatisticsFileError(f"{name}: the name of a table is no UTF-8") from None
        for function, compute in _FUNCTIONS.items():
            self._connection.create_function(function, 1, self._keep_error_text(function, compute))
        self._connection.set_progress_handler(lambda: 0, _INTERRUPT_CHECK_STEPS)
        self._connection.set_authorizer(self._authorize)

    def query(self, query: str, *values: object) -> tuple[list[str], Iterator[ResultRow]]:
        """Execute a query, and return its columns, with unique names, and its rows.

        Raises:
            StatisticsFileError: it is no query, or it cannot be answered; also while rows are read.
        """
        try:
            cursor = self._connection.execute(query, values)
        except UnicodeError:  # SQLite's error about names of tables and columns
            raise StatisticsFileError(
                f"{self._name}: expected names and queries in UTF-8"
            ) from None
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise self._make_error(error) from None
        names = [column[0] for column in cursor.description or ()]
        return [*_distinct(names)], self._rows(cursor)

    def rows_since(self, base: str, timestamp: int) -> tuple[list[str], Iterator[ResultRow]] | None:
        """Return the rows of a joined table since a timestamp, the oldest first.

        Returns:
            Columns and rows as of `query`; None if the table is not one of values over time.

        Raises:
            StatisticsFileError: it cannot be read; also while rows are.
        """
        names, _ = self.query(f"SELECT * FROM {quoted(base)} LIMIT 0")
        if names[:2] != ["timestamp", "static_id"]:
            return None
        order = "timestamp >= ? ORDER BY timestamp, static_id"
        return self.query(f"SELECT * FROM {quoted(base)} WHERE {order}", timestamp)

    def table_sizes(self) -> Iterator[tuple[str, int, int | None]]:
        """Yield each table with its rows and bytes, indexes included, then the totals.

        Bytes are None if this SQLite cannot count them.

        Raises:
            StatisticsFileError: the database is damaged.
        """
        count = size = 0
        sizes = self._table_bytes()
        for (table,) in self.query(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
        )[1]:
            [(rows,)] = self.query(f"SELECT count(*) FROM {quoted(str(table))}")[1]
            count += rows
            size += sizes.get(table, 0)
            yield table, rows, sizes.get(table)
        yield "total", count, size if sizes else None

    def _table_bytes(self) -> dict[str, int]:
        """Return the bytes of each table; empty if this SQLite cannot count them."""
        try:
            pages = self._connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name")
            sizes = dict(pages.fetchall())
        except sqlite3.OperationalError:
            return {}
        except sqlite3.Error as error:
            raise self._make_error(error) from None
        sizes_by_table: dict[str, int] = {}
        for name, table in self.query("SELECT name, tbl_name FROM sqlite_master")[1]:
            sizes_by_table[str(table)] = sizes_by_table.get(str(table), 0) + sizes.get(name, 0)
        return sizes_by_table

    def _authorize(self, action: int, *_: str | None) -> int:
        """Refuse ATTACH, which would create a database where there is none; VACUUM INTO, too."""
        if action != sqlite3.SQLITE_ATTACH:
            return sqlite3.SQLITE_OK
        self._error_text = "other databases cannot be attached, nor made"
        return sqlite3.SQLITE_DENY

    def _rows(self, cursor: sqlite3.Cursor) -> Iterator[ResultRow]:
        try:
            yield from cursor
        except sqlite3.Error as error:
            raise self._make_error(error) from None

    def _make_error(self, error: Exception) -> BaseException:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return KeyboardInterrupt()
        return StatisticsFileError(f"{self._name}: {self._error_text or error}")

    def _keep_error_text(
        self, name: str, compute: Callable[[Any], _Scalar]
    ) -> Callable[[Any], _Scalar | None]:
        """Return a function for queries that keeps the cause of an error, which SQLite does not."""

        def call(value: Any) -> _Scalar | None:
            if value is None:
                return None
            try:
                return compute(value)
            except (ValueError, OverflowError) as error:
                self._error_text = f"{name}: {error}"
                raise

        return call

    def _join_tables(self) -> list[str]:
        """Create a view for each pair of tables, and for each table without a counterpart."""
        tables = self._tables
        bases = {
            table.removesuffix(end) for table in tables for end in _ENDS if table.endswith(end)
        }
        for base in sorted(bases - tables):
            parts = [f"{base}{end}" for end in _ENDS if f"{base}{end}" in tables]
            joined = " JOIN ".join(map(quoted, parts))
            if len(parts) == len(_ENDS):
                joined += " ON " + " = ".join(f"{quoted(table)}.static_id" for table in parts)
            self._connection.execute(f"CREATE TEMP VIEW {quoted(base)} AS SELECT * FROM {joined}")
        return sorted(bases)


_ENDS: Final = (_DYNAMIC, _STATIC)


def as_json(names: list[str], row: ResultRow) -> bytes:
    """Return a row as a line with a JSON object.

    Blobs are in base64, and so are texts that are no UTF-8; JSON has no infinite numbers, so these
    are texts.
    """
    fields = [*map(_field, names, row)]
    distinct = _distinct([name for name, _ in fields])  # a column may be called a_base64
    values = dict(zip(distinct, (value for _, value in fields), strict=True))
    return json.dumps(values, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _field(name: str, value: object) -> tuple[str, object]:
    match value:
        case bytes():
            return base64_field(name, value)
        case float() if math.isinf(value):
            return name, "Infinity" if value > 0 else "-Infinity"
        case _:
            return plain_field(name, value)


def as_csv(values: list[str] | ResultRow) -> bytes:
    """Return values as a line of comma-separated values."""
    return encode_text(",".join(map(_cell, values)) + "\n")


def _cell(value: object) -> str:
    text = _as_text(value)
    if any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _as_text(value: object) -> str:
    match value:
        case None:
            return ""
        case float():
            return f"{value:.15g}"
        case bytes():
            return value.hex()
        case _:
            return str(value)


def _distinct(names: list[str]) -> Iterator[str]:
    """Yield unique names; repeated ones get a number, as in SQLite."""
    taken: set[str] = set()
    for name in names:
        number, candidate = 0, name
        while candidate in taken:
            number += 1
            candidate = f"{name}:{number}"
        taken.add(candidate)
        yield candidate


def _open(name: str) -> sqlite3.Connection:
    """Open a file read-only.

    A database that no process has open (without -wal and -journal) is opened as immutable. SQLite
    then makes no files beside it, for which there may be no permission.

    Raises:
        sqlite3.Error: it is no database.
        StatisticsFileError: it cannot be opened.
    """
    path = Path(name)
    try:
        open_regular(path).close()
    except OSError as error:
        raise StatisticsFileError(f"{name}: {error.strerror or error}") from None
    is_shared = Path(f"{name}-wal").exists() or Path(f"{name}-journal").exists()
    size = path.stat().st_size
    if not is_shared and size < _MIN_DATABASE_SIZE:
        raise StatisticsFileError(f"{name}: it has {size} bytes, less than a database")
    how = "mode=ro" if is_shared else "mode=ro&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
    )
    connection.text_factory = decode_text
    connection.execute("PRAGMA schema_version").fetchall()
    return connection
