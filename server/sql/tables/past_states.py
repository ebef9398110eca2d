"""The point in the past as of which a topic is read: for topics with History.

A moment is taken as it is. A bookmark is looked up in the transaction log, on its worker thread, as
for `sow` with a bookmark (server/engine/commands/as_of.py).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from server.engine.commands.as_of import point_of
from server.engine.commands.errors import CommandRefusedError
from server.sql.query.errors import SqlError
from server.sql.query.names import quote
from server.sql.query.tables import HISTORY_SCHEMA
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE
from server.sql.statement_threads import blocking_wait
from server.storage.journal import BookmarkError
from server.storage.journal.read.bookmarks import parse_bookmark
from server.storage.sow.history import HistoryPoint
from server.storage.sow.records import to_nanoseconds

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.sql.query.tables import AsOf
    from server.topics.record_source import RecordSource
    from server.topics.transaction_log import BookmarkResolution

_NANOSECONDS: Final = 1000  # in a microsecond


def find_point(
    engine: Engine, session_number: int, as_of: AsOf, call: Callable[[Callable[[], None]], None]
) -> HistoryPoint:
    """Return the point of a moment; on a worker thread, which waits for a look-up.

    Args:
        engine: the engine.
        session_number: the number of the session, by which look-ups are shared.
        as_of: the moment.
        call: schedules a call on the engine's thread.

    Raises:
        SqlError: the bookmark is malformed or not in the log, or the log cannot be read.
    """
    if as_of.timestamp_us is not None:
        return HistoryPoint(as_of.timestamp_us * _NANOSECONDS)
    log = engine.transaction_log
    try:
        request = parse_bookmark(as_of.bookmark)
    except BookmarkError as error:
        raise SqlError(INVALID_PARAMETER_VALUE, str(error)) from None
    if log is None:
        raise SqlError(INVALID_PARAMETER_VALUE, "there is no transaction log with bookmarks")
    if request.ends:
        raise SqlError(INVALID_PARAMETER_VALUE, "AS OF BOOKMARK expects one bookmark, no range")
    point: Future[HistoryPoint] = Future()

    def on_resolved(position: BookmarkResolution) -> None:
        if isinstance(position, BookmarkError):
            point.set_exception(SqlError(INVALID_PARAMETER_VALUE, str(position)))
            return
        try:
            point.set_result(point_of(log, position))
        except CommandRefusedError as refusal:
            point.set_exception(SqlError(INVALID_PARAMETER_VALUE, refusal.detail or str(refusal)))

    call(lambda: log.resolve_bookmark(session_number, request, "fail", on_resolved))
    with blocking_wait():
        return point.result()


def check_history(engine: Engine, source: RecordSource, as_of: AsOf, point: HistoryPoint) -> None:
    """Check that a topic has the states of a point; on the engine's thread.

    Raises:
        SqlError: it has no History, or none that reaches back that far, or a bookmark means nothing
            to it.
    """
    log = engine.transaction_log
    is_recorded = log is not None and log.is_recorded(source.type_name, source.name)
    history = source.table.history
    if history is None:
        hint = "Topics with History in the configuration have past states."
        if is_recorded and not source.is_container:
            hint = f"Its messages are in {HISTORY_SCHEMA}.{quote(source.name)}. {hint}"
        raise SqlError(FEATURE_NOT_SUPPORTED, f"topic {source.name} has no past states", hint=hint)
    if as_of.timestamp_us is None and not is_recorded:
        raise SqlError(
            INVALID_PARAMETER_VALUE,
            f"the messages of {source.name} are not in the transaction log, where they could be "
            "found by their bookmarks",
            hint="Write AS OF and a time.",
        )
    if history.current_rows_at(point, to_nanoseconds(engine.clock.now())) is None:
        raise SqlError(
            INVALID_PARAMETER_VALUE,
            f"topic {source.name} has no past states of that time: its Window is shorter",
        )
