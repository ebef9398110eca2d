"""subscribe: the messages of a topic, or of all topics that match a pattern, from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.acks import acknowledge
from server.commands.options import read_subscribe_options
from server.commands.refusal import CommandRefused
from server.expressions import ExpressionError, Kind, parse
from server.security.entitlement import Permission
from server.subscriptions.conflation import Conflater
from server.subscriptions.subscription import Subscription
from server.topics.names import TopicError, TopicSelector, select_topics
from server.wire.header import Header

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.session import Session
    from server.subscriptions.delivery import Sink


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Subscribe (AMPS Command Reference, subscribe command).

    A bookmark asks for a replay; a topic that is not in a transaction log has nothing to replay, so
    that the subscription is complete at once.

    Raises:
        CommandRefused: the topic, an option or the id cannot be used, or the user may not read.
    """
    subscription = place(session, header)
    acknowledge(session, header, "processed", sub_id=subscription.sub_id)
    if header.bookmark is not None:
        acknowledge(session, header, "completed", sub_id=subscription.sub_id)


def place(session: Session, header: Header) -> Subscription:
    """Place or replace the subscription that a command asks for.

    Raises:
        CommandRefused: the topic, an option or the id cannot be used, or the user may not read.
    """
    subscription = prepare(session, header)
    session.place(subscription)
    session.engine.log.emit(
        "14-0001",
        client=session.client_name,
        command=header.command,
        sub_id=subscription.sub_id,
        topic=subscription.selector.text,
        filter=header.filter,
        options=header.options,
    )
    session.engine.client_status.publish(
        header.command,
        session,
        topic=subscription.selector.text,
        filter=header.filter,
        options=header.options,
        sub_id=subscription.sub_id,
        query_id=header.query_id,
        correlation_id=header.correlation_id,
    )
    return subscription


def prepare(session: Session, header: Header, sink: Sink | None = None) -> Subscription:
    """Make the subscription that a command asks for, without placing it.

    Args:
        session: whose it is.
        header: the command.
        sink: takes the messages instead of the session's connection.

    Raises:
        CommandRefused: the topic, an option or the id cannot be used, or the user may not read.
    """
    engine = session.engine
    message_type = engine.settings.message_types[session.message_type]
    options = read_subscribe_options(header, message_type, pretty=session.options.pretty)
    if header.top_n is not None and header.bookmark is None:
        raise CommandRefused("invalid option", "top_n is for subscriptions with a bookmark")
    selector = _selector(session, header, literal=options.literal_topic)
    sub_id = header.sub_id or header.command_id or session.make_sub_id()
    if sub_id in session.subscriptions and not options.replace:
        raise CommandRefused(
            "subscription already exists",
            f"this connection has a subscription {sub_id!r} already; option replace changes it",
        )
    conflater = None
    if options.conflation is not None:
        conflater = Conflater(
            options.conflation, message_type, engine.clock, session.is_behind, engine.flush
        )
    return Subscription(
        session,
        sub_id,
        selector,
        _filter(session, header),
        options.presentation,
        conflater,
        sink,
        header.options,
    )


def _selector(session: Session, header: Header, *, literal: bool) -> TopicSelector:
    try:
        selector = select_topics(
            header.topic or "", literal=literal or not session.engine.settings.regex_topics
        )
    except TopicError as error:
        reason = "bad regex topic" if header.topic else "invalid topic"
        raise CommandRefused(reason, str(error)) from None
    if not selector.is_regex:
        session.require(Permission.READ_TOPIC, selector.text)
    return selector


def _filter(session: Session, header: Header) -> Expr | None:
    text = header.filter
    if text is None or not text.strip():
        return None
    try:
        return parse(text, Kind.FILTER, session.engine.settings.functions)
    except ExpressionError as error:
        raise CommandRefused("bad filter", str(error)) from None
