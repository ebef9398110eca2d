"""Selects the messages or records that a command applies to, by topics and content filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine.commands.errors import CommandRefusedError
from server.expressions import ContextKind, ExpressionError, conjuncts, parse
from server.expressions.context_rules import check_tree
from server.expressions.topic_names import TopicError, TopicSelector, select_topics
from server.expressions.tree import And, Call, In, Literal
from server.security.permissions import Permission
from server.util.limits import MAX_FILTER_LENGTH, MAX_TOPIC_NAME_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amperage.wire.header import Header
    from server.engine.session import Session
    from server.expressions.filter_form import ContentFilter
    from server.expressions.tree import Expr
    from server.topics.sow_registry import TopicSelection


def read_topic(
    session: Session, header: Header, options: Mapping[str, str], *, literal: bool = False
) -> TopicSelector:
    """Read the topics of a command.

    Args:
        session: the connection that sent it.
        header: the command's header.
        options: its options.
        literal: whether the topic is a name, even with characters of regular expressions.

    Raises:
        CommandRefusedError: the topic is missing, or is not a valid regular expression.
    """
    if "non_regex_topic" in options or not session.engine.settings.regex_topics:
        literal = True
    try:
        selector = select_topics(header.topic or "", literal=literal)
    except TopicError as error:
        reason = "bad regex topic" if header.topic else "invalid topic"
        raise CommandRefusedError(reason, str(error)) from None
    if not selector.is_regex:
        check_name(selector.text)
    return selector


def check_name(topic: str) -> None:
    """Refuse the current command if its topic's name is too long.

    Raises:
        CommandRefusedError: it is.
    """
    if len(topic) > MAX_TOPIC_NAME_LENGTH:
        raise CommandRefusedError(
            "invalid topic",
            f"the name of the topic has {len(topic)} characters: expected no more than"
            f" {MAX_TOPIC_NAME_LENGTH}",
        )


def read_filter(session: Session, header: Header, *, stable: bool = False) -> Expr | None:
    """Read a command's content filter; None if it has none.

    Args:
        session: the connection that sent it.
        header: the command's header.
        stable: whether its result must not change while the message does not.

    Raises:
        CommandRefusedError: the filter is invalid.
    """
    text, filter_parser = _filter_text(header), session.engine.filter_parser
    if text is None:
        return None
    try:
        if stable:
            functions = session.engine.settings.functions
            return parse(text, ContextKind.STABLE_FILTER, functions, filter_parser.limits)
        return filter_parser.parse(text)
    except ExpressionError as error:
        raise CommandRefusedError("bad filter", str(error)) from None


def read_content_filter(session: Session, header: Header) -> ContentFilter | None:
    """Do as `read_filter`, and return the filter without its tree."""
    text = _filter_text(header)
    if text is None:
        return None
    try:
        return session.engine.filter_parser.parse_content_filter(text)
    except ExpressionError as error:
        raise CommandRefusedError("bad filter", str(error)) from None


def _filter_text(header: Header) -> str | None:
    """Return the text of a command's content filter; None if it has none.

    Raises:
        CommandRefusedError: it is too long.
    """
    text = header.filter
    if text is None or not text.strip():
        return None
    if len(text) > MAX_FILTER_LENGTH:
        raise CommandRefusedError(
            "bad filter", f"{len(text)} characters: expected no more than {MAX_FILTER_LENGTH}"
        )
    return text


def restricted_to(filter_: Expr | None, keys: Iterable[str] | None) -> Expr | None:
    """Return a filter restricted to records with some SOW keys; None for all keys."""
    if keys is None:
        return filter_
    test = In(Call("SOW_KEY", ()), tuple(map(Literal, keys)))
    return test if filter_ is None else And((test, *conjuncts(filter_)))


def require_topic(session: Session, permission: Permission, selector: TopicSelector) -> None:
    """Refuse the current command unless the user has a permission for the topic that it names.

    Topics that match a regular expression, but that the user may not access, are passed over.

    Raises:
        CommandRefusedError: the user does not have it.
    """
    if not selector.is_regex:
        session.require_permission(permission, selector.text)


def may_read(session: Session, selector: TopicSelector) -> bool:
    """Return whether a user may read a named topic; True for a regular expression."""
    return selector.is_regex or session.get_permit(Permission.READ_TOPIC, selector.text).is_allowed


def entitlement_filter(session: Session, selector: TopicSelector) -> str | None:
    """Return the entitlement filter that applies to a command's topic; None without one.

    It may differ among the topics that a regular expression matches, and is not reported then.
    """
    if selector.is_regex:
        return None
    return session.get_permit(Permission.READ_TOPIC, selector.text).filter_text or None


def check_lasting(session: Session, selector: TopicSelector) -> None:
    """Refuse the current command if the user's entitlement can change while records do not.

    Aggregated subscriptions would keep values that the user may not see any more.

    Raises:
        CommandRefusedError: the entitlement filter is not stable.
    """
    permit = session.get_permit(Permission.READ_TOPIC, selector.text)
    if permit.filter is None:
        return
    functions = session.engine.settings.functions
    try:
        check_tree(permit.filter, ContextKind.STABLE_FILTER, functions, permit.filter_text)
    except ExpressionError:
        raise CommandRefusedError(
            "not entitled",
            f"what user {session.user!r} may see of topic {selector.text!r} does not depend on"
            " the records alone, so that groups of them cannot be followed",
        ) from None


def records_of(
    session: Session, permission: Permission, selector: TopicSelector
) -> list[TopicSelection]:
    """Return the topics with records that a command selects and that the user may access.

    Each has the user's permit, which may be limited to some of its records.
    """
    selections = session.engine.sow_registry.select(session.message_type, selector)
    permits = [session.get_permit(permission, selected.source.name) for selected in selections]
    return [
        selected._replace(permit=permit)
        for selected, permit in zip(selections, permits, strict=True)
        if permit.is_allowed
    ]
