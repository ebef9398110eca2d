"""sow_and_subscribe with a bookmark: sends the records of a past moment, and all changes since.

The query returns the state of that moment, as far as it was kept, and the log is replayed from
there. With top_n and skip_n, a page of these records is sent and followed.

A topic whose History has a granularity may have kept an older state of a record instead of the one
of the moment. The replay then begins behind the oldest of these, so that no change is missed.

Source: AMPS User Guide, Historical SOW Query and Subscribe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from amperage.wire.bookmarks import NOW, is_now
from server.engine.commands.acks import NOT_READABLE, acknowledge
from server.engine.commands.as_of import point_of
from server.engine.commands.bookmark_subscribe import (
    make_subscription,
    read_bookmark,
    read_not_found,
)
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse
from server.engine.commands.parsing.options import option_refusal
from server.engine.commands.parsing.pagination import check_replacement, read_page, single_topic
from server.engine.commands.parsing.query_parameters import read_query_terms
from server.engine.commands.parsing.topic_selection import read_topic, records_of, require_topic
from server.engine.commands.query import QueryCommand, count_tested_records
from server.engine.commands.queue_acks import queue_of
from server.engine.commands.subscribe import (
    add_subscription,
    make_sent_record_callback,
    read_sub_id,
)
from server.engine.queries.page_query import PageQuery
from server.engine.replays.historical_pages import HistoricalPage
from server.engine.replays.replay import Replay
from server.security.permissions import Permission
from server.storage.journal import BookmarkError
from server.storage.sow.store import RecordStoreError
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.session import Session
    from server.storage.journal import LogSpan
    from server.storage.sow.history import HistoryPoint
    from server.topics.sow_registry import TopicSelection
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.transaction_log import BookmarkResolution

_DELTA: Final = "sow_and_delta_subscribe"


def is_requested(session: Session, header: Header, options: Mapping[str, str]) -> bool:
    """Return whether a command requests a past state that is kept; other topics send their own now.

    Raises:
        CommandRefusedError: the topic is missing, is not a valid regular expression, or is a queue:
            a client that requests its past does not mean to consume messages.
    """
    if header.bookmark is None or is_now(header.bookmark):
        return False
    selector = read_topic(session, header, options)
    if queue_of(session, selector) is not None:
        require_topic(session, Permission.READ_TOPIC, selector)
        raise CommandRefusedError(
            "invalid bookmark",
            f"a queue keeps nothing that is past: expected {NOW} or none; subscribe with a bookmark"
            " replays the topics that feed it",
        )
    topics = records_of(session, Permission.READ_TOPIC, selector)
    return any(selected.source.table.history is not None for selected in topics)


def handle(session: Session, header: Header, options: Mapping[str, str]) -> None:
    """Query and subscribe as of a moment.

    Raises:
        CommandRefusedError: the bookmark, an option or the id cannot be used, or the user may not
            read; or the changes since then were not recorded.
    """
    selector = read_topic(session, header, options)
    terms = read_query_terms(session, header, options)
    topics = records_of(session, Permission.READ_TOPIC, selector)
    log = session.engine.transaction_log
    if log is None or not all(
        session.find_topic(selected.source.name).is_journaled for selected in topics
    ):
        raise CommandRefusedError(
            "invalid bookmark",
            f"expected {NOW}: the topic keeps past records, but what followed is not in a "
            "transaction log",
        )
    if header.command == _DELTA:
        raise CommandRefusedError(
            "invalid command", "a replay from a bookmark sends whole messages, not deltas"
        )
    page = read_page(terms)
    sub_id = read_sub_id(session, header, options)
    if page is not None:
        _check_page(options, session.subscriptions.get(sub_id))
        selector = single_topic(session, selector)
    check_replacement(selector, page, None, session.subscriptions.get(sub_id))
    subscription = make_subscription(session, header, options, selector, sub_id, terms.keys, page)
    add_subscription(session, header, subscription)

    def on_resolved(position: BookmarkResolution) -> None:
        if session.subscriptions.get(sub_id) is not subscription:
            return  # it has ended, or has been replaced
        if isinstance(position, BookmarkError):
            session.end_subscription(sub_id)
            refuse(session, header, "bookmark not found", str(position))
            return
        try:
            point = point_of(log, position)
        except CommandRefusedError as refusal:
            session.end_subscription(sub_id)
            refuse(session, header, refusal.reason, refusal.detail)
            return
        command = QueryCommand(
            session, header, replace(terms, as_of=point), subscription.presentation, sub_id
        )
        acknowledge(session, header, "processed", sub_id=sub_id, query_id=command.query_id)
        span = replace(
            position, after_txid=_replay_start(topics, point, position), begin_timestamp=0
        )
        replay = subscription.replay
        assert isinstance(replay, Replay)  # noqa: S101 - see make_subscription
        try:
            queries = command.open_queries(topics)
        except RecordStoreError as error:
            session.end_subscription(sub_id)
            refuse(session, header, NOT_READABLE, str(error))
            return
        if page is not None:
            query = _page_query(command, subscription, replay, topics[0])
            queries = [command.make_topic_query(topics[0], query)]
        command.begin(
            queries,
            on_sent=make_sent_record_callback(session, subscription),
            on_done=lambda: replay.begin(subscription, span),
        )

    log.resolve_bookmark(
        session.number, read_bookmark(header), read_not_found(options), on_resolved
    )


def _check_page(options: Mapping[str, str], previous: Subscription | None) -> None:
    """Check the options of a page of the past.

    Raises:
        CommandRefusedError: an option cannot be combined with it.
    """
    if previous is not None:
        raise option_refusal(
            "replace", "a page of the past does not take the place of another subscription"
        )
    for name in ("live", "conflation_key"):
        if name in options:
            raise option_refusal(name, "it does not go with a page of the past")


def _page_query(
    command: QueryCommand, subscription: Subscription, replay: Replay, topic: TopicSelection
) -> PageQuery:
    """Return a query for the first records of a page, from which the replay continues."""
    sow = topic.source
    assert isinstance(sow, SowTopicRecords)  # noqa: S101 - no other kind of topic has a history
    replay.historical_page = HistoricalPage(subscription, sow, replay.session.engine, topic.permit)
    scan = replay.historical_page.make_fill_scan(command.open_matching(topic, subscription.filter))
    return PageQuery(replay.historical_page.page, scan, None, None, count_tested_records(topic))


def _replay_start(topics: Sequence[TopicSelection], point: HistoryPoint, span: LogSpan) -> int:
    """Return the txid from behind which everything must be replayed."""
    after_txid = span.after_txid
    for selected in topics:
        table = selected.source.table
        row = None if table.history is None else table.history.find_oldest_inexact(point)
        if row is not None:
            after_txid = min(after_txid, table.store.read_record(row).sequence)
    return after_txid
