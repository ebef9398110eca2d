"""sow_and_subscribe and sow_and_delta_subscribe: sends a topic's records, then their changes.

Query and subscription begin at the same moment: the subscription is placed, and the query reads the
state of that moment. Changes that occur while results are being sent wait behind them in the
client's stream. On a topic that keeps no records the query sends an empty group (AMPS User Guide,
Query and Subscribe).

A replacement queries again, and sends the records that the client does not have from the previous
subscription. For those that it has, it is notified of the ones that match no more.

With top_n and skip_n the subscription is paginated: it is for the records between two positions
(server/topics/subscriptions/paging/page.py). With projection and grouping it is aggregated
(server/engine/commands/aggregation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from amperage.wire.header import Header
from server.engine.commands import aggregation, sow_and_subscribe_as_of, subscribe
from server.engine.commands.acks import acknowledge
from server.engine.commands.parsing.options import read_options
from server.engine.commands.parsing.pagination import page_of, read_page
from server.engine.commands.parsing.query_parameters import read_query_terms
from server.engine.commands.parsing.topic_selection import read_topic, records_of, require_topic
from server.engine.commands.query import QueryCommand, count_tested_records
from server.engine.queries.execution import QueryPart
from server.engine.queries.page_query import PageQuery
from server.expressions.regex.budget import SearchAllowance
from server.security.permissions import Permission
from server.storage.sow.query.record_filter import RecordFilter
from server.topics.subscriptions.delivery.record_delivery import (
    MATCH,
    OutboxRecordFramer,
    RecordMessage,
)
from server.topics.subscriptions.entitlement_limits import permitted_filter

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps
    from server.engine.commands.parsing.query_parameters import QueryTerms
    from server.engine.queries.execution import QueryExecution, TopicQuery
    from server.engine.session import Session
    from server.storage.sow.records import Record
    from server.topics.record_source import RecordSource
    from server.topics.sow_registry import TopicSelection
    from server.topics.subscriptions.delivery.delta import DeltaEncoder
    from server.topics.subscriptions.delivery.presentation import Presentation
    from server.topics.subscriptions.paging.page import Page
    from server.topics.subscriptions.subscription import Subscription


def handle(session: Session, header: Header, _body: bytes) -> CommandSteps:
    """Query and subscribe in one step (AMPS Command Reference, sow_and_subscribe command).

    Raises:
        CommandRefusedError: see subscribe, and sow.
    """
    yield from subscribe.execute_in_order(session, partial(_query_and_subscribe, session, header))


def _query_and_subscribe(
    session: Session, header: Header, deferred_frames: list[bytes]
) -> CommandSteps:
    options = read_options(header)
    if aggregation.is_requested(options):
        aggregation.query_and_subscribe(session, header, options)
        return
    if sow_and_subscribe_as_of.is_requested(session, header, options):
        sow_and_subscribe_as_of.handle(session, header, options)
        return
    previous = session.subscriptions.get(header.sub_id or header.command_id or "")
    if previous is None:  # check entitlement before reporting other errors; see `subscribe.prepare`
        require_topic(session, Permission.READ_TOPIC, read_topic(session, header, options))
    terms = read_query_terms(session, header, options)
    page = read_page(terms)
    replaced = page_of(session, previous)
    subscription = yield from subscribe.add_subscription_in_steps(
        session,
        header,
        options,
        deferred_frames,
        keys=terms.keys,
        page=page,
        began_with_query=terms.top_n is None,
    )
    command = QueryCommand(session, header, terms, subscription.presentation, subscription.sub_id)
    acknowledge(
        session,
        header,
        "processed",
        sub_id=subscription.sub_id,
        query_id=command.query_id,
        long_options=subscribe.effective_backlog(subscription),
    )
    topics = records_of(session, Permission.READ_TOPIC, subscription.selector)
    on_sent = subscribe.make_sent_record_callback(session, subscription)
    on_inherited = subscribe.make_sent_record_callback(session, subscription, from_previous=True)
    queries: list[TopicQuery]
    matches = _matches(session, subscription)
    current = page_of(session, subscription)
    if current is None:
        queries = command.open_queries(topics)
    else:
        query = _page_query(command, terms, topics[0], current, replaced, on_inherited)
        queries, matches = (
            [command.make_topic_query(topics[0], query)],
            lambda record: record.key in query.page_keys,
        )
    if previous is None or not previous.began_with_query:
        command.begin(queries, on_sent=on_sent)
        return
    matched = _matches(session, previous)
    make_oof_queries = None
    if subscription.tracks_focus:
        make_oof_queries = _make_oof_queries(session, command, previous, subscription, matches)

    def should_send(record: Record) -> bool:
        if not matched(record):
            return True
        if on_inherited is not None:
            on_inherited(record)
        return False

    command.begin(queries, should_send, on_sent, make_oof_queries)


def _page_query(
    command: QueryCommand,
    terms: QueryTerms,
    topic: TopicSelection,
    page: Page,
    replaced: Page | None,
    on_inherited: Callable[[Record], None] | None,
) -> PageQuery:
    """Return a query for the records of a page; it scans only if their set is not known yet."""
    scan = None
    if not page.result_set.is_complete:
        scan = command.open_matching(topic, terms.filter, terms.keys)
    return PageQuery(page, scan, replaced, on_inherited, count_tested_records(topic))


def _with_presentation(subscription: Subscription, presentation: Presentation) -> Subscription:
    """Return a subscription in another presentation."""
    terms = structs.replace(subscription.terms, presentation=presentation)
    return structs.replace(subscription, terms=terms)


def _matches(session: Session, subscription: Subscription) -> Callable[[Record], bool]:
    """Return a test of records: they match a subscription, and its user may read them."""
    tests: dict[RecordSource, RecordFilter | None] = {}
    search_counter = SearchAllowance()

    def test_of(source: RecordSource) -> RecordFilter | None:
        permit = session.get_permit(Permission.READ_TOPIC, source.name)
        if not permit.is_allowed:
            return None
        filter_ = permitted_filter(permit, subscription.filter)
        return RecordFilter(source.table, filter_, search_counter=search_counter)

    def matches(record: Record) -> bool:
        source = session.engine.sow_registry.find(session.message_type, record.topic)
        if source is None or not subscription.selector.matches(record.topic):
            return False
        if source not in tests:
            tests[source] = test_of(source)
        test = tests[source]
        search_counter.reset()
        return test is not None and test(record)

    return matches


def _make_oof_queries(
    session: Session,
    command: QueryCommand,
    previous: Subscription,
    subscription: Subscription,
    matches: Callable[[Record], bool],
) -> Callable[[QueryExecution], Sequence[QueryPart]]:
    """Return a function that makes queries of records that only the replaced subscription has."""
    topics = records_of(session, Permission.READ_TOPIC, previous.selector)
    delta_encoder = session.engine.sow_registry.delta_encoder

    def queries(execution: QueryExecution) -> Sequence[QueryPart]:
        topic_queries = [
            command.make_topic_query(topic, command.open_matching(topic, previous.filter))
            for topic in topics
        ]
        return [
            QueryPart(
                query,
                partial(
                    _send_oof,
                    execution,
                    _with_presentation(subscription, presentation),
                    matches,
                    delta_encoder(selected.source),
                ),
            )
            for selected, (query, presentation) in zip(topics, topic_queries, strict=True)
        ]

    return queries


def _send_oof(
    execution: QueryExecution,
    subscription: Subscription,
    matches: Callable[[Record], bool],
    delta_encoder: DeltaEncoder,
    record: Record,
) -> bool:
    """Send an out-of-focus message for a record, unless the new subscription matches it too.

    Args:
        execution: the query in execution.
        subscription: the new subscription, with the form in which records of the topic are sent.
        matches: returns whether the new subscription matches a record.
        delta_encoder: makes deltas.
        record: a record that matched the previous subscription.
    """
    if matches(record):
        return False
    message = RecordMessage.for_unchanged_record(record, MATCH, delta_encoder)
    sub_ids, presentation = [subscription.sub_id], subscription.presentation
    framer = OutboxRecordFramer(execution.reservation, "oof", record.topic, sub_ids, presentation)
    framer.write(message, presentation.select_fields(record.body))
    return False
