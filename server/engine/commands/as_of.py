"""The point in the past that a query of a topic with History requests.

It is a moment, or the bookmark of a message, which is looked up in the transaction log: the state
is then the one after this message.

Source: AMPS Command Reference, Historical SOW Query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from amperage.wire.bookmarks import EPOCH, is_now, parse_moment
from server.engine.commands.bookmark_subscribe import read_bookmark
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse
from server.storage.journal import BookmarkError, JournalUnreadableError
from server.storage.sow.history import HistoryPoint

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.session import Session
    from server.storage.journal import LogSpan
    from server.topics.sow_registry import TopicSelection
    from server.topics.transaction_log import BookmarkResolution, TransactionLog

_NANOSECONDS: Final = 1000  # in a microsecond


def with_point(
    session: Session,
    header: Header,
    topics: Sequence[TopicSelection],
    query: Callable[[HistoryPoint | None], None],
) -> None:
    """Call a query when its requested point is known.

    Args:
        session: the connection that sent it.
        header: its header.
        topics: its topics; if none of them has History, the bookmark is ignored.
        query: called with the point, or None for now; called at once if no look-up is needed. It
            may refuse the command.

    Raises:
        CommandRefusedError: the bookmark is invalid, or cannot be looked up.
    """
    text = header.bookmark
    has_history = any(topic.source.table.history is not None for topic in topics)
    if text is None or is_now(text) or not has_history:
        query(None)
        return
    moment_us = 0 if text == EPOCH else parse_moment(text)
    if moment_us is not None:
        query(HistoryPoint(moment_us))
        return
    _look_up(session, header, text, topics, query)


def _look_up(
    session: Session,
    header: Header,
    text: str,
    topics: Sequence[TopicSelection],
    query: Callable[[HistoryPoint | None], None],
) -> None:
    log = session.engine.transaction_log
    is_journaled = all(session.find_topic(topic.source.name).is_journaled for topic in topics)
    if log is None or not is_journaled:
        raise CommandRefusedError(
            "invalid bookmark",
            f"{text!r}: expected a moment like 20260102T123500Z; the messages of the topic are not "
            "in a transaction log, where they could be found by their bookmarks",
        )
    request = read_bookmark(header)
    if request.ends:
        raise CommandRefusedError(
            "invalid bookmark", f"{text!r}: expected one point in time, no range"
        )

    def on_resolved(position: BookmarkResolution) -> None:
        if not session.is_open:
            return
        if isinstance(position, BookmarkError):
            refuse(session, header, "bookmark not found", str(position))
            return
        try:
            query(point_of(log, position))
        except CommandRefusedError as refusal:
            refuse(session, header, refusal.reason, refusal.detail)

    log.resolve_bookmark(session.number, request, "fail", on_resolved)


def point_of(log: TransactionLog, span: LogSpan) -> HistoryPoint:
    """Return the point behind which a part of the log begins.

    Raises:
        CommandRefusedError: the log cannot be read at the moment.
    """
    if span.begin_timestamp:
        return HistoryPoint(span.begin_timestamp * _NANOSECONDS)
    try:
        recorded_us = log.timestamp_us_of(span.after_txid)
    except JournalUnreadableError as error:
        raise CommandRefusedError(
            "bookmark not found", f"the transaction log cannot be read: {error}"
        ) from None
    return HistoryPoint(0 if recorded_us is None else recorded_us * _NANOSECONDS, span.after_txid)
