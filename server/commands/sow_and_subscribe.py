"""sow_and_subscribe and sow_and_delta_subscribe: the records of a topic, and what changes after.

Query and subscription begin at the same moment: the subscription is placed, and the query sees the
state of that moment. What changes while results are on their way waits behind them in the client's
stream. On a topic that keeps no records the query gives an empty group (AMPS User Guide, Query and
Subscribe).

A replacement queries again, and sends the records that the client does not have from the
subscription before; of those that it has, it is told which ones match no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from server.commands import historical, subscribe
from server.commands.acks import acknowledge
from server.commands.options import split_options
from server.commands.query import QueryCommand
from server.commands.query_terms import read_query_terms
from server.commands.refusal import CommandRefused
from server.commands.selection import records_of
from server.queries.run import Part
from server.security.entitlement import Permission
from server.sow.record_test import RecordTest
from server.sow.records import to_seconds
from server.subscriptions.envelope import Envelope
from server.subscriptions.record_delivery import MATCH, Framer, RecordMessage
from server.wire.header import Header

if TYPE_CHECKING:
    from server.queries.run import QueryRun
    from server.session import Session
    from server.sow.records import Record
    from server.subscriptions.subscription import Subscription
    from server.topics.keeper import Keeper


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Query and subscribe in one step (AMPS Command Reference, sow_and_subscribe command).

    Raises:
        CommandRefused: see subscribe, and sow.
    """
    options = split_options(header.options or "")
    if historical.is_asked_for(session, header, options):
        historical.handle(session, header, options)
        return
    terms = read_query_terms(session, header, options)
    if terms.top_n is not None and ("skip_n" in options or header.skip_n is not None):
        raise CommandRefused(
            "invalid option", "option skip_n cannot be used here: subscriptions are not paginated"
        )
    before = session.subscriptions.get(header.sub_id or header.command_id or "")
    if before is not None and before.conflater is not None:
        before.conflater.release_all()
    subscription = subscribe.place(
        session, header, options, keys=terms.keys, began_with_query=terms.top_n is None
    )
    command = QueryCommand(session, header, terms, subscription.presentation, subscription.sub_id)
    acknowledge(session, header, "processed", sub_id=subscription.sub_id, query_id=command.query_id)
    if before is not None:
        _take_over(before, subscription)
    topics = records_of(session, Permission.READ_TOPIC, subscription.selector)
    remember = _remember(subscription)
    if before is None or not before.began_with_query:
        command.begin(topics, sent=remember)
        return
    had = _matches(before)
    leavers = None
    if subscription.tracks_focus:
        leavers = _leavers(command, before, subscription)
    command.begin(topics, lambda record: not had(record), remember, leavers)


def _take_over(before: Subscription, subscription: Subscription) -> None:
    """Let a replacement know what its client has; a query of old may still be adding to that."""
    if before.conflater is not None and subscription.conflater is not None:
        subscription.conflater.received = before.conflater.received


def _matches(subscription: Subscription) -> Callable[[Record], bool]:
    """Tells whether a record is one that a subscription is for."""
    session = subscription.session
    tests: dict[Keeper, RecordTest] = {}

    def matches(record: Record) -> bool:
        keeper = session.engine.stores.find(session.message_type, record.topic)
        if keeper is None or not subscription.selector.matches(record.topic):
            return False
        if keeper not in tests:
            tests[keeper] = RecordTest(keeper.table, subscription.filter)
        return tests[keeper](record)

    return matches


def _remember(subscription: Subscription) -> Callable[[Record], None] | None:
    """Keeps what the client has, where that is needed when a record goes out of focus."""
    conflater = subscription.conflater
    if conflater is None or not subscription.tracks_focus:
        return None

    def remember(record: Record) -> None:
        conflater.received[record.topic, record.key] = subscription.presentation.cut(record.body)

    return remember


def _leavers(
    command: QueryCommand, before: Subscription, subscription: Subscription
) -> Callable[[QueryRun], Sequence[Part]]:
    """Queries of the records that only the replaced subscription was for."""
    session = subscription.session
    matches = _matches(subscription)
    topics = records_of(session, Permission.READ_TOPIC, before.selector)

    def queries(run: QueryRun) -> Sequence[Part]:
        return [
            Part(
                command.matching(selected, before.filter),
                partial(_tell_leaver, run, subscription, matches, selected.keeper),
            )
            for selected in topics
        ]

    return queries


def _tell_leaver(
    run: QueryRun,
    subscription: Subscription,
    matches: Callable[[Record], bool],
    keeper: Keeper,
    record: Record,
) -> bool:
    """Say that a record is out of focus, unless the new subscription is for it too."""
    if matches(record):
        return False
    if subscription.conflater is not None:
        subscription.conflater.received.pop((record.topic, record.key), None)
    message = RecordMessage(
        record.key,
        record.body,
        None,
        Envelope(None, to_seconds(record.timestamp)),
        subscription.session.engine.stores.differ(keeper),
        MATCH,
        record.correlation_id,
    )
    sub_ids, presentation = [subscription.sub_id], subscription.presentation
    framer = Framer(run.place, "oof", record.topic, sub_ids, presentation, None)
    framer.write(message, presentation.cut(record.body))
    return False
