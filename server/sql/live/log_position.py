"""The place in the transaction log at which a SUBSCRIBE AS OF begins.

A time is looked up as a bookmark is, on the log's worker thread. Entries of that very time belong
to the past, as in a query AS OF it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_PARAMETER_VALUE
from server.sql.statement_threads import blocking_wait
from server.sql.tables.errors import ScanError
from server.storage.journal import BookmarkError, JournalUnreadableError
from server.storage.journal.read.bookmarks import BookmarkRequest, LogTimestamp, parse_bookmark
from server.storage.sow.history import HistoryPoint
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND, to_nanoseconds
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.sql.query.tables import AsOf
    from server.topics.record_source import RecordSource
    from server.topics.transaction_log import BookmarkResolution, TransactionLog


class LogHold:
    """A place in the log, from which on its files are retained.

    Args:
        log: the transaction log.
        after_txid: the txid before the first entry that is needed.
        reader_name: the reader, for operators.

    Attributes:
        after_txid: see above; the reader advances it, on any thread.
    """

    def __init__(self, log: TransactionLog, after_txid: int, reader_name: str) -> None:
        self.after_txid = after_txid
        self.release: Final = log.hold_files(lambda: self.after_txid + 1, reader_name)


class LogPosition(NamedTuple):
    """A place in the log, and the moment that it stands for.

    Attributes:
        hold: retains the files.
        after_txid: the txid of the last entry that belongs to the past.
        timestamp_us: the moment, in microseconds since 1970; 0 if it precedes all entries.
    """

    hold: LogHold
    after_txid: int
    timestamp_us: int


def find_log_position(
    session: Session,
    log: TransactionLog,
    as_of: AsOf,
    post: Callable[[Callable[[], None]], None],
    on_hold: Callable[[LogHold], None],
) -> LogPosition:
    """Return the place of a moment; on a worker thread, which waits for a look-up.

    Args:
        session: the client's session.
        log: the transaction log.
        as_of: the moment.
        post: schedules a call on the engine's thread.
        on_hold: takes the hold on the files, on the engine's thread; it may refuse it.

    Raises:
        SqlError: the bookmark is malformed or not in the log, the time lies in the future or before
            the log, or the log cannot be read.
    """
    request = _request_of(as_of, session.engine.clock.now())
    found: Future[tuple[int, LogHold] | BookmarkError] = Future()

    def on_resolved(position: BookmarkResolution) -> None:
        if isinstance(position, BookmarkError):
            found.set_result(position)
            return
        hold = LogHold(log, position.after_txid, f"SQL SUBSCRIBE of {session.client_name}")
        try:
            on_hold(hold)
            found.set_result((position.after_txid, hold))
        except Exception as error:
            hold.release()
            found.set_exception(error)

    post(lambda: log.resolve_bookmark(session.number, request, "fail", on_resolved))
    with blocking_wait():
        position = found.result()
    try:
        if isinstance(position, BookmarkError):
            raise SqlError(INVALID_PARAMETER_VALUE, str(position), hint=_extent_of(log))
        after_txid, hold = position
        if as_of.timestamp_us is not None:
            if after_txid < log.journal.first_txid and not is_whole(log):
                raise SqlError(
                    INVALID_PARAMETER_VALUE,
                    "the transaction log has nothing of that time any more",
                    hint=_extent_of(log),
                )
            return LogPosition(hold, after_txid, as_of.timestamp_us)
        return LogPosition(hold, after_txid, _timestamp_us(log, after_txid) or 0)
    except JournalUnreadableError as error:
        raise ScanError(f"the transaction log cannot be read: {error}") from None


def find_past_start(
    source: RecordSource, position: LogPosition, log: TransactionLog, now_s: float
) -> tuple[int, HistoryPoint | None]:
    """Return where reading begins, so that the records of a moment are known.

    It is called on the engine's thread, and retains the log from there on.

    Args:
        source: the topic.
        position: the moment.
        log: the transaction log.
        now_s: the time, in seconds since 1970.

    Returns:
        The txid before the first entry to read, and the point of the topic's History to begin with;
        None to begin without records. With a granularity, History may have older states than those
        of the moment: the entries behind the oldest one are read again.

    Raises:
        SqlError: neither History nor the log reaches back far enough.
    """
    history, first_txid = source.table.history, log.journal.first_txid
    if history is not None:
        timestamp = position.timestamp_us * NANOSECONDS_IN_MICROSECOND
        point = HistoryPoint(timestamp, position.after_txid)
        if history.current_rows_at(point, to_nanoseconds(now_s)) is not None:
            row = history.find_oldest_inexact(point)
            after_txid = position.after_txid
            if row is not None:
                after_txid = min(after_txid, source.table.store.read_record(row).sequence)
            if after_txid >= first_txid - 1:
                position.hold.after_txid = after_txid
                return after_txid, point
    if is_whole(log):
        position.hold.after_txid = first_txid - 1
        return first_txid - 1, None
    raise SqlError(
        INVALID_PARAMETER_VALUE,
        f'the records of "{source.name}" at that moment are not known: the beginning of the'
        " transaction log has been removed"
        + ("" if history is None else ", and the Window of History is shorter"),
        hint="Topics with History have the records of past moments." if history is None else None,
    )


def is_whole(log: TransactionLog) -> bool:
    """Return whether the log has its first file: nothing has been removed."""
    return log.journal.files[0].number == 0


def _request_of(as_of: AsOf, now_s: float) -> BookmarkRequest:
    if as_of.timestamp_us is not None:
        if as_of.timestamp_us > now_s * MICROSECONDS_PER_SECOND:
            raise SqlError(INVALID_PARAMETER_VALUE, "SUBSCRIBE cannot begin in the future")
        return BookmarkRequest((LogTimestamp(as_of.timestamp_us + 1),))
    try:
        request = parse_bookmark(as_of.bookmark)
    except BookmarkError as error:
        raise SqlError(INVALID_PARAMETER_VALUE, str(error)) from None
    if request.ends:
        raise SqlError(INVALID_PARAMETER_VALUE, "AS OF BOOKMARK expects one bookmark, no range")
    return request


def _extent_of(log: TransactionLog) -> str:
    """Return which part of the past is in the log, for a hint."""
    times = [
        _timestamp_us(log, txid) for txid in (log.journal.first_txid, log.journal.durable_txid)
    ]
    known = [datetime.fromtimestamp(time / MICROSECONDS_PER_SECOND, UTC) for time in times if time]
    if not known:
        return "The transaction log is empty."
    return f"The transaction log has entries from {known[0]} to {known[-1]}."


def _timestamp_us(log: TransactionLog, txid: int) -> int | None:
    recorded_us = log.timestamp_us_of(txid)
    return None if recorded_us is None else recorded_us + log.journal.clock_steps.correction(txid)
