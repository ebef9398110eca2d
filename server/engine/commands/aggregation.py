"""Aggregated queries and subscriptions: reads their terms, and refuses unsuitable commands.

With the options projection and grouping, a query returns the records that a view with this
definition would hold. A subscription that begins with a query then sends the changes of that view.
The filter and the SOW keys of the command select the records of the topic that are aggregated.

Source: AMPS User Guide, Aggregated SOW Queries; Aggregated Subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from server.engine.commands import subscribe
from server.engine.commands.acks import acknowledge
from server.engine.commands.as_of import with_point
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import (
    AGGREGATION_OPTIONS,
    check_entries,
    check_query_options,
    option_refusal,
    read_presentation,
    unbracketed,
)
from server.engine.commands.parsing.pagination import is_name, page_of, read_page, records_topic
from server.engine.commands.parsing.query_parameters import read_query_terms
from server.engine.commands.parsing.topic_selection import (
    read_topic,
    records_of,
    require_topic,
    restricted_to,
)
from server.engine.commands.query import QueryCommand, count_tested_records
from server.engine.queries.aggregate_query import (
    AggregateQuery,
    AggregateSubscriptionQuery,
    GroupCollector,
    GroupIterator,
    GroupOrder,
)
from server.engine.queries.execution import TopicQuery
from server.engine.queries.page_query import PageQuery
from server.expressions import (
    ContextKind,
    ExpressionError,
    parse_fields,
    parse_identifiers,
    references,
)
from server.expressions.topic_names import select_topics
from server.message_types.base import BodyError
from server.security.permissions import Permission
from server.storage.views.aggregation import check_fields
from server.storage.views.projection import Projection
from server.storage.views.terms import AggregationTerms
from server.topics.subscriptions.entitlement_limits import permitted_fields
from server.util.limits import MAX_COMPUTED_FIELDS

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.commands.parsing.query_parameters import QueryTerms
    from server.engine.queries.page_query import RecordScan
    from server.engine.session import Session
    from server.expressions.tree import Field, Identifier, Reference
    from server.storage.sow.history import HistoryPoint
    from server.storage.sow.query.query import OpenQuery
    from server.topics.sow_registry import TopicSelection
    from server.topics.subscriptions.aggregate_subscription import AggregateSubscription
    from server.topics.subscriptions.subscription import Subscription

_MAX_PROJECTION_LENGTH: Final = 64 * 1024
"""Bytes (AMPS Command Reference, sow command: Options Field)."""


def is_requested(options: Mapping[str, str]) -> bool:
    """Return whether a command requests aggregation."""
    return any(name in options for name in AGGREGATION_OPTIONS)


def query(session: Session, header: Header, options: Mapping[str, str]) -> None:
    """Query groups of a topic's records.

    Raises:
        CommandRefusedError: the topic cannot be aggregated, or a part of the command cannot be
            used.
    """

    def begin(as_of: HistoryPoint | None) -> None:
        command, group_query = open_query(session, header, options, as_of)
        acknowledge(session, header, "processed", query_id=command.query_id)
        command.begin([TopicQuery(group_query, command.presentation)])

    with_point(session, header, [_topic(session, header, options)], begin)


def open_query(
    session: Session,
    header: Header,
    options: Mapping[str, str],
    as_of: HistoryPoint | None = None,
) -> tuple[QueryCommand, AggregateQuery]:
    """Return a query for groups of a topic's records; nothing is sent yet.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        options: its options, split.
        as_of: the point in the past that is queried; None for now.

    Raises:
        CommandRefusedError: the topic cannot be aggregated, or a part of the command cannot be
            used.
    """
    topic, aggregation, options = _read(session, header, options)
    check_query_options(header, options)
    terms = replace(read_query_terms(session, header, options), as_of=as_of)
    presentation = read_presentation(header, options, session)
    groups = aggregation.create_groups(None, session.charge_memory, topic.permit.select)
    command = QueryCommand(session, header, terms, presentation)
    scan = _scan(command, topic, terms)
    group_order = _group_order(terms, aggregation)
    group_query = AggregateQuery(GroupCollector(scan, groups), group_order, scan, groups.free)
    return command, group_query


def query_and_subscribe(session: Session, header: Header, options: Mapping[str, str]) -> None:
    """Query groups of a topic's records, and subscribe to their changes.

    Raises:
        CommandRefusedError: the topic cannot be aggregated, or a part of the command cannot be
            used.
    """
    if header.bookmark is not None:
        raise CommandRefusedError(
            "invalid command", "a replay from a bookmark cannot be aggregated, only current records"
        )
    if "select" in options:
        raise option_refusal("select", "the projection says which fields messages have")
    topic, aggregation, options = _read(session, header, options)
    terms = read_query_terms(session, header, options)
    page = read_page(terms)
    previous = session.subscriptions.get(header.sub_id or header.command_id or "")
    replaced = page_of(session, previous)
    subscription = subscribe.prepare(
        session,
        header,
        options,
        keys=terms.keys,
        page=page,
        aggregation=aggregation,
        began_with_query=terms.top_n is None,
    )
    subscribe.add_subscription(session, header, subscription)
    command = QueryCommand(session, header, terms, subscription.presentation, subscription.sub_id)
    acknowledge(session, header, "processed", sub_id=subscription.sub_id, query_id=command.query_id)
    aggregate_subscription = _aggregate_subscription(session, subscription)
    on_sent = subscribe.make_sent_record_callback(session, subscription)
    group_query: OpenQuery
    if aggregate_subscription.page is None:
        scan = _scan(command, topic, terms)
        group_order = _group_order(terms, aggregation)
        group_query = AggregateQuery(
            GroupCollector(scan, aggregate_subscription.groups), group_order, scan
        )
    else:
        groups = None
        if not aggregate_subscription.page.result_set.is_complete:
            groups = _all_groups(command, topic, terms, aggregate_subscription)
        on_inherited = subscribe.make_sent_record_callback(
            session, subscription, from_previous=True
        )
        group_query = PageQuery(
            aggregate_subscription.page, groups, replaced, on_inherited, count_tested_records(topic)
        )
    command.begin(
        [
            TopicQuery(
                AggregateSubscriptionQuery(group_query, aggregate_subscription),
                command.presentation,
            )
        ],
        on_sent=on_sent,
    )


def _all_groups(
    command: QueryCommand,
    topic: TopicSelection,
    terms: QueryTerms,
    aggregate_subscription: AggregateSubscription,
) -> RecordScan:
    """Return a scan of all groups for a page; groups of a replaced page are reused."""
    if aggregate_subscription.is_live:
        return GroupIterator(aggregate_subscription.groups)
    return GroupCollector(_scan(command, topic, terms), aggregate_subscription.groups)


def _read(
    session: Session, header: Header, options: Mapping[str, str]
) -> tuple[TopicSelection, AggregationTerms, Mapping[str, str]]:
    """Read the terms of an aggregation.

    Returns:
        The topic, the aggregation, and the other options.
    """
    topic = _topic(session, header, options)
    for name, other in zip(AGGREGATION_OPTIONS, reversed(AGGREGATION_OPTIONS), strict=True):
        if name not in options:
            raise option_refusal(other, f"it goes with the option {name}")
    message_type = session.engine.settings.message_types[session.message_type]
    if not (message_type.capabilities.build and message_type.capabilities.fields):
        raise option_refusal("projection", f"no message of type {message_type.name} can be made")
    functions = session.engine.settings.functions
    text = options["projection"]
    if len(text.encode(errors="surrogateescape")) > _MAX_PROJECTION_LENGTH:
        raise option_refusal("projection", f"it is longer than {_MAX_PROJECTION_LENGTH} bytes")
    for name in AGGREGATION_OPTIONS:
        check_entries(name, options[name], MAX_COMPUTED_FIELDS)
    try:
        fields = parse_fields(unbracketed("projection", text), ContextKind.PROJECTION, functions)
    except ExpressionError as error:
        raise option_refusal("projection", str(error)) from None
    try:
        grouping = parse_identifiers(unbracketed("grouping", options["grouping"]))
    except ExpressionError as error:
        raise option_refusal("grouping", str(error)) from None
    name = header.topic or ""
    _check_references(session, name, fields, grouping)
    aggregation = AggregationTerms(
        Projection(
            permitted_fields(topic.permit, fields),
            grouping,
            functions,
            is_untyped=lambda _: not message_type.capabilities.typed,
        ),
        message_type,
        name,
        functions,
        owner=(session.client_name, session.engine.scheduler),
    )
    try:
        check_fields(message_type, aggregation.projection)
    except BodyError as error:
        raise option_refusal("projection", str(error)) from None
    other_options = {
        name: value for name, value in options.items() if name not in AGGREGATION_OPTIONS
    }
    other_options["non_regex_topic"] = ""
    return topic, aggregation, other_options


def _topic(session: Session, header: Header, options: Mapping[str, str]) -> TopicSelection:
    """Return the topic to aggregate; a regular expression that is its name counts as the name."""
    selector = read_topic(session, header, options)
    if selector.is_regex and is_name(session, selector):
        selector = select_topics(selector.text, literal=True)
    if selector.is_regex:
        raise option_refusal(
            "projection", f"one topic is aggregated, and {selector.text!r} is a regular expression"
        )
    require_topic(session, Permission.READ_TOPIC, selector)
    topics = records_of(session, Permission.READ_TOPIC, selector)
    if not topics:
        raise option_refusal("projection", f"topic {selector.text!r} keeps no records")
    return topics[0]


def _check_references(
    session: Session, topic: str, fields: Sequence[Field], grouping: Sequence[Identifier]
) -> None:
    """Check that fields refer to the topic itself only, by any of its names."""

    def check(option: str, reference: Reference) -> None:
        if reference.topic not in (None, topic) or reference.message_type not in (
            None,
            session.message_type,
        ):
            raise option_refusal(
                option,
                f"it reads topic {reference.topic!r}; only a view aggregates more than one topic",
            )

    for field in fields:
        for reference in references(field.source):
            check("projection", reference)
    for identifier in grouping:
        check("grouping", identifier.reference)


def _scan(command: QueryCommand, topic: TopicSelection, terms: QueryTerms) -> OpenQuery:
    return command.open_matching(topic, restricted_to(terms.filter, terms.keys))


def _group_order(terms: QueryTerms, aggregation: AggregationTerms) -> GroupOrder:
    start = terms.skip_n or 0
    stop = None if terms.top_n is None else start + terms.top_n
    return GroupOrder(aggregation.message_type, terms.order_by, start, stop)


def _aggregate_subscription(session: Session, subscription: Subscription) -> AggregateSubscription:
    topic = records_topic(session, subscription.selector.text)
    assert topic is not None  # noqa: S101 - see _topic
    return topic.aggregate(subscription)
