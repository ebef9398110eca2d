"""The output of statements for clients of PostgreSQL: messages, and waits between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from server.sql.live.feed import LiveWait
from server.sql.live.rows import LiveRows
from server.sql.postgres.errors import Diagnostic, FormatError
from server.sql.postgres.formats import encode_data_rows
from server.sql.postgres.messages import BINARY_FORMAT
from server.sql.postgres.pieces import ColumnFormat
from server.sql.query.errors import SqlError
from server.sql.result_columns import REVALIDATION, ResultChangedError
from server.sql.row_cursor import RowCursor
from server.sql.sqlstate import INTERNAL_ERROR

if TYPE_CHECKING:
    import pyarrow as pa

    from server.sql.copy_input import CopySource


_MAX_UNREAD: Final = 2 * 1024 * 1024
"""Bytes of output that the client has not read at which its statement is suspended."""


class Output(NamedTuple):
    """Bytes for the client.

    Attributes:
        data: the bytes.
        rows: the number of rows in them.
        wait: the wait for changes, or for data of a COPY, after which the statement goes on; None
            to go on at once.
        awaited: a write, after which the statement goes on; it occupies no thread until then.
    """

    data: bytes
    rows: int = 0
    wait: LiveWait | CopySource | None = None
    awaited: Future[Any] | None = None


Answer = Callable[[], bytes]
"""Answers an event; called on the event loop's thread."""
StatementOutput = Generator[Output, None, Answer]
"""Yields the output of statements, and returns what ends it."""


class OutputWindow:
    """Counts the output of a statement that the client has not read; for two threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._unread_bytes = 0

    def add(self, size: int) -> bool:
        """Count bytes that were posted; return whether there is room for more."""
        with self._lock:
            self._unread_bytes += size
            return self._unread_bytes < _MAX_UNREAD

    def remove(self, size: int) -> None:
        """Count bytes that were read."""
        with self._lock:
            self._unread_bytes -= size


def send_rows(
    rows: RowCursor | LiveRows,
    limit: int | None,
    formats: Sequence[int],
    timeout_s: float | None = None,
) -> Generator[Output, None, int]:
    """Yield rows as messages; return their number.

    Args:
        rows: the rows.
        limit: the maximum number; None for all.
        formats: the formats of the columns.
        timeout_s: how long to wait for changes, see `LiveRows.fetch`.
    """
    column_formats = [
        ColumnFormat(column.type_oid, binary=code == BINARY_FORMAT)
        for column, code in zip(rows.columns, formats, strict=True)
    ]
    before = rows.taken
    batch: pa.RecordBatch | LiveWait
    for batch in rows.fetch(limit, timeout_s) if isinstance(rows, LiveRows) else rows.take(limit):
        if isinstance(batch, LiveWait):
            yield Output(b"", 0, batch)
            continue
        yield Output(encode_data_rows(batch, column_formats), batch.num_rows)
    return rows.taken - before


class StatementFailure(NamedTuple):
    """The error that has ended a statement.

    Attributes:
        diagnostic: the error, for the client; None if there is none.
        defect: the exception, if it is a defect of the server.
    """

    diagnostic: Diagnostic | None = None
    defect: Exception | None = None


NO_FAILURE: Final = StatementFailure()


def failure_of(error: Exception) -> StatementFailure:
    """Return an exception as the failure of a statement."""
    match error:
        case SqlError():
            return StatementFailure(to_diagnostic(error))
        case FormatError():
            return StatementFailure(Diagnostic(error.sqlstate, str(error)))
    # A defect: the client must not wait without end.
    text = f"internal error: {type(error).__name__}"
    return StatementFailure(Diagnostic(INTERNAL_ERROR, text), error)


def to_diagnostic(error: SqlError) -> Diagnostic:
    """Return an error as the protocol sends it."""
    return Diagnostic(
        error.sqlstate,
        error.message,
        detail=error.detail or "",
        hint=error.hint or "",
        position=error.position or 0,
        routine=REVALIDATION if isinstance(error, ResultChangedError) else "",
    )
