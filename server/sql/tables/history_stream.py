"""The rows of one part of the log, which a query process pulls as it needs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from server.expressions.regex.budget import TooCostlyError
from server.sql.query.tables import HISTORY_SCHEMA
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.errors import (
    ColumnsWidenedError,
    InvalidFilterError,
    MisfitError,
    ScanCancelledError,
    ScanError,
    UnknownBookmarkError,
)
from server.sql.tables.history_rows import EntryFilter, EntryRows
from server.storage.journal import (
    MESSAGES,
    JournalEntryKind,
    JournalTopic,
    JournalUnreadableError,
    LogSpan,
)
from server.storage.journal.errors import reason
from server.storage.journal.read.bookmarks import BookmarkError, EntryName, parse_bookmark
from server.topics.subscriptions.entitlement_limits import permitted_filter

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.sql.query.errors import SqlError
    from server.sql.query.tables import LogBound, ScanRequest
    from server.sql.tables.history_table import HistoryColumns
    from server.topics.transaction_log import TransactionLog

_BATCH_ENTRIES: Final = 256
_BATCH_BYTES: Final = 256 * 1024
"""Entries, and bytes of bodies, that are read at once: parsing them holds Python's lock."""
_TIMESTAMP_SLACK_US: Final = 1_000_000
"""Microseconds by which the part of the log between two times is longer than necessary."""
_KINDS: Final = MESSAGES | {JournalEntryKind.SOW_DELETE}
_NO_NAME: Final = ""
"""The name of the column of a stream without columns."""
_DURABLE_TIMEOUT_S: Final = 60.0
"""Time limit for published messages to be on stable storage."""


class HistoryStream:
    """The rows of one scan of history, read while they are used, in an Arrow stream.

    Each stream that is begun has all rows. They are read on the thread that uses the stream.

    Args:
        log: the transaction log.
        topic: the topic.
        message_type: parses bodies.
        functions: the functions that filters may call.
        columns: the columns, which may be widened.
        outputs: the columns to return, in order.
        permit: the user's permit to read the topic.
        requested: the client's own filter, None for all entries.
        request: the scan.
        client_name: the name of the client.
        is_cancelled: returns whether the query is cancelled.
        on_widened: called when a column has got another type.
        post: schedules a call on the engine's thread.

    Attributes:
        schema: the columns.
        num_rows: the number of rows that have been read.
        records_scanned: the number of entries that have been read, of those that the user may see.
        error: the reason why reading has failed; None if it has not.
    """

    def __init__(
        self,
        log: TransactionLog,
        topic: JournalTopic,
        message_type: MessageType,
        functions: Functions,
        columns: HistoryColumns,
        outputs: Sequence[FieldColumn | Metadata],
        permit: Permit,
        requested: Expr | None,
        request: ScanRequest,
        client_name: str,
        is_cancelled: Callable[[], bool],
        on_widened: Callable[[], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._on_widened: Final = on_widened
        self.num_rows = 0
        self.records_scanned = 0
        self.error: SqlError | None = None
        self._log: Final = log
        self._topic: Final = topic
        self._message_type: Final = message_type
        self._functions: Final = functions
        self._columns: Final = columns
        self._outputs: Final = outputs
        self._permit: Final = permit
        self._filter: Final = permitted_filter(permit, requested)
        self._request: Final = request
        self._is_cancelled: Final = is_cancelled
        self._post: Final = post
        self._is_closed = False
        self._span = LogSpan(log.journal.first_txid - 1, last_txid=log.last_txid)
        self._is_durable: Final[Future[None]] = Future()
        self._release_log: Final = log.hold_files(
            lambda: self._span.after_txid + 1, f"SQL query of {client_name}"
        )
        if log.journal.write_error is None:
            log.when_durable(lambda: self._is_durable.set_result(None))
        else:
            self._span = LogSpan(self._span.after_txid, last_txid=log.durable_txid)
            self._is_durable.set_result(None)
        self.schema: pa.Schema = pa.schema(
            [
                (output.column.name, output.column.type.arrow_type)
                if isinstance(output, FieldColumn)
                else (output.value.name, output.value.type.arrow_type)
                for output in outputs
            ]
            or [(_NO_NAME, pa.bool_())]
        )

    def rename(self, names: Sequence[str]) -> None:
        """Give the columns other names, before the first stream is begun."""
        self.schema = pa.schema(
            [field.with_name(name) for field, name in zip(self.schema, names, strict=True)]
        )

    def close(self) -> None:
        """Release the cursor of the log that the rows are read from; from any thread."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._post(self._release_log)
            except RuntimeError:  # the event loop has ended, and with it the log
                return

    def prepare(self) -> None:
        """Wait until the log can be read, and find the part to read; on a worker thread.

        Raises:
            ScanError: a bookmark is not in the log, or the log cannot be read.
        """
        wait_until_durable(self._is_durable, self._is_cancelled)
        try:
            self._span = self._part(self._request.bounds)
        except OSError as error:
            raise ScanError(f"the transaction log cannot be read: {reason(error)}") from None

    def _part(self, bounds: Sequence[LogBound]) -> LogSpan:
        first, last = self._span.after_txid + 1, self._span.last_txid or 0
        for bound in bounds:
            low, high = self._range_of(bound)
            if bound.sign in (">", ">=", "="):
                first = max(first, low + (bound.sign == ">"))
            if bound.sign in ("<", "<=", "="):
                last = min(last, high - (bound.sign == "<"))
        return LogSpan(first - 1, last_txid=max(last, first - 1))

    def _range_of(self, bound: LogBound) -> tuple[int, int]:
        """Return the first and the last place at which a value may be."""
        journal = self._log.journal
        if bound.kind == "timestamp":
            earliest = journal.first_since(int(bound.value) - _TIMESTAMP_SLACK_US)
            latest = journal.first_since(int(bound.value) + _TIMESTAMP_SLACK_US)
            # One further on each side, since `>` and `<` leave that out.
            return earliest - 1, latest
        if bound.kind == "txid":
            return int(bound.value), int(bound.value)
        txid = self._find(str(bound.value))
        if txid is None:
            if bound.sign == "=":
                return 1, 0
            raise UnknownBookmarkError(f"bookmark not found: {bound.value:.100}")
        last = txid
        if bound.sign == "=":  # an entry that came late may have the name, too
            (point,) = parse_bookmark(str(bound.value)).starts
            assert isinstance(point, EntryName)  # noqa: S101 - it was found
            later: int | None = txid
            while later is not None:
                last = later
                later = journal.find_later(point.client, point.sequence, last)
        return txid, last

    def _find(self, text: str) -> int | None:
        try:
            points = parse_bookmark(text).starts
        except BookmarkError:
            return None
        if len(points) != 1 or not isinstance(points[0], EntryName):
            return None
        return self._log.journal.find(points[0].client, points[0].sequence)

    # ---- reading, on any thread

    def __arrow_c_schema__(self) -> object:
        """Return the columns without beginning a stream."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Begin a stream."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read()
        except ScanError as error:
            self.error = error
            raise
        except TooCostlyError as error:
            self.error = InvalidFilterError(str(error))
            raise
        except JournalUnreadableError as error:
            self.error = ScanError(f"the transaction log cannot be read: {error}")
            raise
        except MisfitError as misfit:
            with self._columns.lock:
                for path, sql_type in misfit.types.items():
                    self._columns.widen(path, sql_type)
            self._on_widened()
            self.error = ColumnsWidenedError(
                f"columns of {HISTORY_SCHEMA}.{self._topic.name} have values of other types; "
                "they have these types now"
            )
            raise
        except Exception as error:  # any error: DuckDB would show its text to the client
            self.error = ScanError(f"internal error: {type(error).__name__}")
            raise

    def _read(self) -> Iterator[pa.RecordBatch]:
        hides_count = self._permit.filter is not None
        entry_filter = EntryFilter(self._filter, self._message_type, self._functions)
        rows = EntryRows(
            self._message_type,
            self._outputs,
            self._permit,
            entry_filter,
            self._log.journal.clock_steps,
        )
        kinds = MESSAGES if hides_count else _KINDS
        limit = self._request.limit
        last_txid = self._span.last_txid or 0
        cursor = self._log.journal.replay(self._span, self._topic.__eq__, kinds, lambda: last_txid)
        found = 0
        while not cursor.is_caught_up and (limit is None or found < limit):
            if self._is_cancelled() or self._is_closed:
                raise ScanCancelledError("the query was cancelled")
            before = cursor.position
            entries = cursor.read_raw_range(_BATCH_ENTRIES, _BATCH_BYTES)
            if not entries and cursor.position == before:
                raise ScanError("the transaction log ends before the last entry")
            if not len(entries):
                continue
            batch = rows.read(entries)
            self.records_scanned += batch.matches if hides_count else len(entries)
            if batch.row_count:
                found += batch.row_count
                self.num_rows += batch.row_count
                yield pa.RecordBatch.from_arrays(batch.arrays, schema=self.schema)


def wait_until_durable(is_durable: Future[None], is_cancelled: Callable[[], bool]) -> None:
    """Wait on a worker thread until entries of the log can be read.

    Args:
        is_durable: completed when they are on stable storage.
        is_cancelled: returns whether the statement is cancelled.

    Raises:
        ScanError: that takes too long, or the statement is cancelled.
    """
    deadline = time.monotonic() + _DURABLE_TIMEOUT_S
    while True:
        try:
            is_durable.result(0.1)
        except TimeoutError:
            if is_cancelled():
                raise ScanCancelledError("the query was cancelled") from None
            if time.monotonic() > deadline:
                raise ScanError(
                    "what was published has not been stored in the transaction log in time"
                ) from None
        else:
            return
