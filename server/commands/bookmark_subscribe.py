"""subscribe with a bookmark: replay from the transaction log; and its options pause and resume.

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from config_schema.units import UnitError, parse_interval
from server.commands.acks import acknowledge, success, wants
from server.commands.options import check_replay_options, option_refusal, read_presentation
from server.commands.refusal import CommandRefused
from server.commands.selection import read_filter, require_topic
from server.journal import NOW, BookmarkError, NotFound, parse_bookmark
from server.security.entitlement import Permission
from server.subscriptions.rate import Rate, RateTerms, parse_rate
from server.subscriptions.replay import Replay, ReplayTerms
from server.subscriptions.subscription import Subscription
from server.wire.header import Header

if TYPE_CHECKING:
    from server.journal import Span
    from server.session import Session
    from server.topics.names import TopicSelector
    from server.topics.transaction_log import TransactionLog

_NOT_FOUND: Final = ("epoch", "now", "fail")
_NOT_LIVE: Final = ("rate", "pause", "resume")
_NANOSECONDS: Final = 1e9


def is_replayed(session: Session, selector: TopicSelector) -> bool:
    """Whether a subscription with a bookmark has anything to replay.

    A regular expression stands for the topics that are in the transaction log.
    """
    if session.engine.transaction_log is None:
        return False
    return selector.is_regex or session.find_topic(selector.text).is_journaled


def make_subscription(
    session: Session,
    header: Header,
    options: Mapping[str, str],
    selector: TopicSelector,
    sub_id: str,
) -> Subscription:
    """Make the subscription that a command with a bookmark asks for.

    Raises:
        CommandRefused: the bookmark or an option cannot be used, or the user may not read.
    """
    log = session.engine.transaction_log
    assert log is not None  # noqa: S101 - see is_replayed
    check_replay_options(header, options)
    require_topic(session, Permission.READ_TOPIC, selector)
    live = [name for name in _NOT_LIVE if "live" in options and name in options]
    if live:
        raise option_refusal(live[0], "it does not go with option live")
    presentation = replace(read_presentation(options, session), bookmark=True)
    rate = _rate(options)
    terms = ReplayTerms(
        _span(log, header, options),
        _most(header),
        None if rate is None else Rate(rate),
        is_paused="pause" in options,
    )
    if wants(header, "completed"):
        terms = replace(terms, on_completed=partial(success, header, "completed", sub_id=sub_id))
    if wants(header, "persisted"):
        terms = replace(
            terms,
            on_persisted=lambda bookmark: success(
                header, "persisted", sub_id=sub_id, bookmark=bookmark
            ),
        )
    return Subscription(
        session,
        sub_id,
        selector,
        read_filter(session, header),
        presentation,
        replay=Replay(log, terms),
    )


def pause_or_resume(session: Session, header: Header, options: Mapping[str, str]) -> bool:
    """Pause or resume the bookmark subscriptions that a command names, if that is what it is for.

    Returns:
        Whether it was: a command with the option pause may also begin a subscription.

    Raises:
        CommandRefused: a subscription to be resumed does not exist, or is no replay.
    """
    ids = [name.strip() for name in (header.sub_id or "").split(",") if name.strip()]
    resumes = "resume" in options
    pauses = "pause" in options and any(one in session.subscriptions for one in ids)
    if session.engine.transaction_log is None or not (resumes or pauses):
        return False
    replays = []
    for sub_id in ids:
        subscription = session.subscriptions.get(sub_id)
        if subscription is None or subscription.replay is None:
            raise CommandRefused(
                "invalid subscription id",
                f"this connection has no bookmark subscription {sub_id!r} to pause or resume",
            )
        replays.append(subscription.replay)
    if not replays:
        raise CommandRefused(
            "invalid subscription id", "the command does not name the subscriptions (header sub_id)"
        )
    acknowledge(session, header, "processed", sub_id=header.sub_id)
    for replay in replays:
        if resumes:
            replay.resume()
        else:
            replay.pause()
    return True


def _span(log: TransactionLog, header: Header, options: Mapping[str, str]) -> Span:
    """The part of the log that a bookmark asks for."""
    not_found = options.get("bookmark_not_found", "now").lower()
    if not_found not in _NOT_FOUND:
        raise option_refusal("bookmark_not_found", "expected epoch, now or fail")
    try:
        request = parse_bookmark(header.bookmark or "")
    except BookmarkError as error:
        raise CommandRefused("invalid bookmark", str(error)) from None
    try:
        return log.journal.resolve(request, cast(NotFound, not_found))
    except BookmarkError as error:
        raise CommandRefused("bookmark not found", str(error)) from None


def _most(header: Header) -> int | None:
    if header.top_n is None:
        return None
    if header.top_n < 1 or header.bookmark == NOW:
        raise CommandRefused(
            "invalid option", "top_n is a number of messages to replay, and 0|1| replays none"
        )
    return header.top_n


def _rate(options: Mapping[str, str]) -> RateTerms | None:
    text = options.get("rate")
    if text is None:
        if "rate_max_gap" in options:
            raise option_refusal("rate_max_gap", "it goes with the option rate only")
        return None
    try:
        gap = options.get("rate_max_gap")
        return parse_rate(text, None if gap is None else parse_interval(gap) / _NANOSECONDS)
    except UnitError as error:
        raise option_refusal("rate_max_gap", str(error)) from None
    except ValueError as error:
        raise option_refusal("rate", str(error)) from None
