"""The data model of SQL queries: types, columns, tables, and the interface of their sources.

A query names the columns of each table that it reads, and a filter that its source applies. The
source answers with Arrow tables that are of one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.tables.history_stream import HistoryStream

AMPS_SCHEMA: Final = "amps"
"""The schema of all topics with names that are unique in the instance."""

HISTORY_SCHEMA: Final = "history"
"""The schema of the tables that have the entries of the transaction log."""

SEARCH_PATH: Final = (AMPS_SCHEMA, "pg_catalog")
"""The schemas in which an unqualified name is looked for, in this order."""


class SqlType(Enum):
    """The type of a column.

    A value of a column is NULL where a record lacks the field or has a null. The empty text is a
    text, unlike in filters, where it equals NULL.

    Attributes:
        sql_name: the name in PostgreSQL, as `format_type` prints it.
        duckdb_name: the name in DuckDB.
        oid: the OID in PostgreSQL (its `pg_type.dat`).
    """

    sql_name: str
    duckdb_name: str
    oid: int

    BOOLEAN = ("boolean", "BOOLEAN", 16)
    BIGINT = ("bigint", "BIGINT", 20)
    DOUBLE = ("double precision", "DOUBLE", 701)
    NUMERIC = ("numeric", "DECIMAL(38, 9)", 1700)
    TEXT = ("text", "VARCHAR", 25)
    BYTEA = ("bytea", "BLOB", 17)
    TIMESTAMPTZ = ("timestamp with time zone", "TIMESTAMPTZ", 1184)
    JSONB = ("jsonb", "JSON", 3802)

    def __init__(self, sql_name: str, duckdb_name: str, oid: int) -> None:
        self.sql_name = sql_name
        self.duckdb_name = duckdb_name
        self.oid = oid

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the type of the column in Arrow; JSONB is its text."""
        import pyarrow as pa

        match self:
            case SqlType.BOOLEAN:
                return pa.bool_()
            case SqlType.BIGINT:
                return pa.int64()
            case SqlType.DOUBLE:
                return pa.float64()
            case SqlType.NUMERIC:
                return pa.decimal128(38, 9)
            case SqlType.BYTEA:
                return pa.binary()
            case SqlType.TIMESTAMPTZ:
                return pa.timestamp("us", tz="UTC")
            case _:
                return pa.string()


class TableKind(Enum):
    """The kind of data behind a table."""

    TOPIC = "topic"
    VIEW = "view"
    CONFLATED = "conflated topic"
    QUEUE = "queue"
    HISTORY = "history"
    STATISTICS = "statistics"


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: the name; a nested field is `a.b`.
        type: the type of all its values.
        description: shown by `\\d+` and by tools.
        path: the field in filters of the expression language, such as `/a/b`; None if filters
            cannot read the column, so that conditions on it are never pushed down.
        is_metadata: whether it is no field of the record: NATURAL JOIN does not compare it.
    """

    name: str
    type: SqlType
    description: str = ""
    path: str | None = None
    is_metadata: bool = False


class Table(NamedTuple):
    """A table that a client sees.

    Attributes:
        schema: `amps`, or the message type.
        name: the topic's name.
        kind: the kind of data.
        columns: the columns, in order, with distinct names.
        key: names of the columns that identify a row; empty if there are none.
        is_writable: whether the user may publish to the topic.
    """

    schema: str
    name: str
    kind: TableKind
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    is_writable: bool = False

    @property
    def privileges(self) -> tuple[str, ...]:
        """The privileges of the user."""
        if not self.is_writable:
            return ("SELECT",)
        if self.kind is TableKind.QUEUE:
            return ("SELECT", "INSERT")
        return ("SELECT", "INSERT", "UPDATE", "DELETE")


class LogBound(NamedTuple):
    """A condition on the place of an entry in the log, which limits the part that is read.

    Attributes:
        kind: the compared value: `txid`, `timestamp` or `bookmark`.
        sign: `=`, `<`, `<=`, `>` or `>=`. The order of bookmarks is that of their entries.
        value: the txid, the microseconds since 1970, or the bookmark.
    """

    kind: str
    sign: str
    value: int | str

    def __str__(self) -> str:
        """Return the condition, for EXPLAIN."""
        value = self.value
        if self.kind == "timestamp":
            value = str(datetime.fromtimestamp(int(value) / 1_000_000, UTC))
        return f"_{self.kind} {self.sign} {value}"


class AsOf(NamedTuple):
    """A moment of the past as of which a table is read.

    Attributes:
        timestamp_us: the microseconds since 1970; None if a message is named instead.
        bookmark: the bookmark of the message after which the state is read.
    """

    timestamp_us: int | None = None
    bookmark: str = ""

    def __str__(self) -> str:
        """Return the moment, for EXPLAIN."""
        if self.timestamp_us is None:
            return f"bookmark {self.bookmark}"
        return str(datetime.fromtimestamp(self.timestamp_us / 1_000_000, UTC))


class ScanRequest(NamedTuple):
    """The part of a table that a query needs.

    Attributes:
        table: the table, as `TableSource.tables` returned it.
        columns: names of the columns, in the order of the result; may be empty, if only the number
            of rows is needed.
        filter: a filter in the expression language; None for all rows. Rows for which it is not
            true are left out.
        limit: the maximum number of rows; None for all.
        bounds: the part of the log to read, for tables of history.
        as_of: the moment as of which the table is read; None for now.
        max_bytes: the memory of the rows, beyond which the scan fails (53200); None for that of a
            query.
    """

    table: Table
    columns: tuple[str, ...]
    filter: str | None = None
    limit: int | None = None
    bounds: tuple[LogBound, ...] = ()
    as_of: AsOf | None = None
    max_bytes: int | None = None


class ScanResult(NamedTuple):
    """The rows of a scan.

    Attributes:
        data: the requested columns, of the types that the table says. Without columns, a table of
            no columns that has `num_rows`, or a stream of one column without a name.
        records_scanned: the number of records that were read, for EXPLAIN; of those that the user
            may see. A stream has a number of its own.
    """

    data: pa.Table | HistoryStream
    records_scanned: int = 0


class TableSource(Protocol):
    """Tables, as one user sees them: the server's topics, or tables in memory."""

    def tables(self) -> Sequence[Table]:
        """Return all tables that the user may see."""
        ...

    def scan(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        """Return the rows for all requests, in their order, as of one moment.

        It blocks, and is called on a worker thread.
        """
        ...


def find_table(tables: Sequence[Table], schema: str | None, name: str) -> Table | None:
    """Return the user's table of a name, in any case if no other is meant; None if it is none."""
    place = schema or AMPS_SCHEMA
    folded: Table | None = None
    for table in tables:
        if table.schema == place and table.name == name:
            return table
        is_folded = (table.schema.lower(), table.name.lower()) == (place.lower(), name.lower())
        if is_folded and folded is None:
            folded = table
    return folded
