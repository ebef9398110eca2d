"""subscribe: the messages of a topic, or of all topics that match a pattern, from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.commands.acks import acknowledge
from server.commands.options import read_options
from server.commands.refusal import CommandRefused
from server.expressions import ExpressionError, Kind, parse
from server.security.entitlement import Permission
from server.subscriptions.subscription import Subscription
from server.topics.names import TopicError, select_topics
from server.wire.header import Header

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.session import Session


def handle(session: Session, header: Header, _body: bytes) -> None:
    """Place or replace a subscription (AMPS Command Reference, subscribe command).

    Raises:
        CommandRefused: the topic, an option or the id cannot be used, or the user may not read.
    """
    options = read_options(header)
    try:
        selector = select_topics(
            header.topic or "",
            literal=options.literal_topic or not session.engine.settings.regex_topics,
        )
    except TopicError as error:
        reason = "bad regex topic" if header.topic else "invalid topic"
        raise CommandRefused(reason, str(error)) from None
    if not selector.is_regex:
        session.require(Permission.READ_TOPIC, selector.text)
    sub_id = header.sub_id or header.command_id or session.make_sub_id()
    if sub_id in session.subscriptions and not options.replace:
        raise CommandRefused(
            "subscription already exists",
            f"this connection has a subscription {sub_id!r} already; option replace changes it",
        )
    session.place(Subscription(session, sub_id, selector, _filter(session, header)))
    session.engine.log.emit(
        "14-0001",
        client=session.client_name,
        command=header.command,
        sub_id=sub_id,
        topic=selector.text,
        filter=header.filter,
        options=header.options,
    )
    acknowledge(session, header, "processed", sub_id=sub_id)


def _filter(session: Session, header: Header) -> Expr | None:
    text = header.filter
    if text is None or not text.strip():
        return None
    try:
        return parse(text, Kind.FILTER, session.engine.settings.functions)
    except ExpressionError as error:
        raise CommandRefused("bad filter", str(error)) from None
