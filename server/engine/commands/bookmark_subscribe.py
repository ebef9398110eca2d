"""subscribe with a bookmark: a replay from the transaction log; its options pause and resume.

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from amperage.wire.bookmarks import is_now
from amperage.wire.header import Header
from config_schema.units import UnitError, parse_interval
from server.engine.commands.acks import acknowledge, failure, success, wants
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse
from server.engine.commands.memory_account import memory_of
from server.engine.commands.parsing.options import (
    QUERY_COMMANDS,
    check_replay_options,
    option_refusal,
    read_conflation,
    read_presentation,
)
from server.engine.commands.parsing.topic_selection import (
    entitlement_filter,
    read_filter,
    require_topic,
    restricted_to,
)
from server.engine.replays.rate_limiter import ReplayRate, parse_rate
from server.engine.replays.replay import Replay, ReplayGroupKey, ReplayTerms, start_log_reader
from server.engine.replays.replay_clock import ReplayClock
from server.expressions.filter_form import content_filter_of
from server.security.permissions import Permission
from server.storage.journal import BookmarkError, MissingBookmarkPolicy, parse_bookmark
from server.topics.subscriptions.delivery.conflation import Conflater
from server.topics.subscriptions.subscription import Subscription, SubscriptionTerms
from server.util.limits import MAX_BOOKMARKS

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.expressions.topic_names import TopicSelector
    from server.storage.journal import BookmarkRequest
    from server.topics.subscriptions.subscription import PageTerms
    from server.topics.transaction_log import BookmarkResolution

_NOT_FOUND: Final = ("epoch", "now", "fail")
_NOT_LIVE: Final = ("rate", "rate_max_gap", "pause", "resume")
_NOT_WITH_DELETIONS: Final = ("live", "conflation", "select")
_NANOSECONDS: Final = 1e9


def is_replayed(session: Session, selector: TopicSelector) -> bool:
    """Return whether a subscription with a bookmark has anything to replay.

    A regular expression selects the topics that are in the transaction log.
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
    keys: tuple[str, ...] | None = None,
    page: PageTerms | None = None,
) -> Subscription:
    """Return the subscription that a command with a bookmark requests, without adding it.

    With a command that also queries, top_n and the `completed` ack belong to the query, and
    `persisted` acks are not sent (AMPS Command Reference, sow_and_subscribe command).

    Args:
        session: the connection that sent the command.
        header: the command's header.
        options: its options, split.
        selector: its topics.
        sub_id: the subscription's id.
        keys: the SOW keys of the records subscribed to, None for all.
        page: the page of these records, None for all messages.

    Raises:
        CommandRefusedError: the bookmark or an option cannot be used, or the user may not read.
    """
    engine = session.engine
    log = engine.transaction_log
    assert log is not None  # noqa: S101 - see is_replayed
    require_topic(session, Permission.READ_TOPIC, selector)
    check_replay_options(header, options)
    is_live, is_durable = "live" in options, "fully_durable" in options
    if is_live and is_durable:
        raise option_refusal("fully_durable", "it is the opposite of option live")
    if is_live and (conflicting := [name for name in _NOT_LIVE if name in options]):
        raise option_refusal(conflicting[0], "it does not go with option live")
    read_bookmark(header)
    read_not_found(options)
    has_keys = selector.is_regex or bool(engine.sow_registry.select(session.message_type, selector))
    conflation = read_conflation(options, keys_needed=not has_keys)
    replay_clock = None if conflation is None else ReplayClock(engine.clock)
    is_query = header.command in QUERY_COMMANDS
    terms = ReplayTerms(
        None if is_query else _max_messages(header),
        _rate(options),
        starts_paused="pause" in options,
        is_live=is_live,
    )
    if wants(header, "completed") and not is_query:
        terms = replace(
            terms,
            make_completed_ack=lambda bookmark: success(
                header, "completed", sub_id=sub_id, bookmark=bookmark
            ),
            make_failed_ack=lambda detail: failure(header, "completed", "replay failed", detail),
        )
    if wants(header, "persisted") and not is_query:
        terms = replace(
            terms,
            make_persisted_ack=lambda bookmark, resume_positions: success(
                header,
                "persisted",
                sub_id=sub_id,
                bookmark=bookmark,
                long_options=_resume_option(resume_positions, options),
            ),
            persisted_interval_s=session.options.ack_conflation_s,
        )
    conflater = None
    if conflation is not None and replay_clock is not None:
        message_type = engine.settings.message_types[session.message_type]
        conflater = Conflater(
            conflation,
            message_type,
            replay_clock,
            session.is_behind,
            engine.flush,
            session.charge_memory,
        )
    content_filter = content_filter_of(
        restricted_to(read_filter(session, header, stable=page is not None), keys)
    )
    subscription_terms = SubscriptionTerms(
        replayed_topics(session, selector),
        replace(read_presentation(header, options, session), has_bookmark=True),
        conflater,
        tracks_focus=page is not None and "oof" in options,
        options=header.options,
        page=page,
        replay=Replay(
            session,
            log,
            terms,
            engine.fully_durable_tail if is_durable else engine.tail,
            replay_clock,
        ),
        sends_deletions=wants_deletions(session, header, options, selector),
        bookmark=header.bookmark,
    )
    return Subscription(
        session,
        sub_id,
        subscription_terms,
        content_filter,
        memory_of(header),
    )


def wants_deletions(
    session: Session, header: Header, options: Mapping[str, str], selector: TopicSelector
) -> bool:
    """Return whether a command requests notices of deleted records.

    The log has only the keys of deleted records, so no filter can be applied to them.

    Raises:
        CommandRefusedError: a filter would apply to them, or another option requests other messages
            than those in the log.
    """
    if "deletions" not in options:
        return False
    conflicting = [name for name in _NOT_WITH_DELETIONS if name in options]
    if conflicting:
        raise option_refusal("deletions", f"it does not go with option {conflicting[0]}")
    if header.command in QUERY_COMMANDS:
        raise option_refusal("deletions", "it is for replays that begin without a query")
    if header.filter is not None:
        raise option_refusal(
            "deletions", "it does not go with a filter: the log has only the keys of such records"
        )
    if entitlement_filter(session, selector) is not None:
        raise option_refusal("deletions", "it is for users who may read all messages of the topic")
    return True


def replayed_topics(session: Session, selector: TopicSelector) -> TopicSelector:
    """Return the topics to replay; for a queue, the topics that feed it.

    Source: AMPS User Guide, Bookmark Subscriptions to Queues.
    """
    queues = session.engine.topics.queues
    if queues is None or selector.is_regex:
        return selector
    queue = queues.find(session.message_type, selector.text)
    return selector if queue is None else queue.source


def begin(
    session: Session,
    header: Header,
    options: Mapping[str, str],
    subscription: Subscription,
) -> None:
    """Begin the replay of a placed subscription, once its bookmark is found.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        options: its options, split.
        subscription: a subscription from `make_subscription`.
    """
    log, replay = session.engine.transaction_log, subscription.replay
    assert log is not None  # noqa: S101 - see is_replayed
    assert isinstance(replay, Replay)  # noqa: S101 - see make_subscription

    def on_resolved(position: BookmarkResolution) -> None:
        if session.subscriptions.get(subscription.sub_id) is not subscription:
            return  # it has ended, or has been replaced
        if isinstance(position, BookmarkError):
            session.end_subscription(subscription.sub_id)
            refuse(session, header, "bookmark not found", str(position))
            return
        resume_option = _resume_option(replay.resume_positions(position.after_txid), options)
        if position.start_warning:
            session.log.emit(
                "1D-0029",
                client=session.client_name,
                sub_id=subscription.sub_id,
                doubt=position.start_warning,
            )
        acknowledge(
            session,
            header,
            "processed",
            sub_id=subscription.sub_id,
            long_options=resume_option,
            reason="bookmark not found" if position.start_warning else None,
            detail=position.start_warning or None,
        )
        replay.begin(subscription, position)

    log.resolve_bookmark(
        session.number, read_bookmark(header), read_not_found(options), on_resolved
    )


def _resume_option(resume_positions: Sequence[str], options: Mapping[str, str]) -> str | None:
    """Return an ack's option with the bookmarks from which to resume, if the client requests it.

    Other clients get none: clients for browsers expect that options of an ack are a backlog.
    """
    return (
        f"places=[{','.join(resume_positions)}]"
        if resume_positions and "places" in options
        else None
    )


def pause_or_resume(session: Session, header: Header, options: Mapping[str, str]) -> bool:
    """Pause or resume the bookmark subscriptions that a command names, if it requests that.

    Returns:
        Whether it did: a command with the option pause may also begin a subscription.

    Raises:
        CommandRefusedError: a subscription to be resumed does not exist, or is not a replay.
    """
    sub_ids = [name.strip() for name in (header.sub_id or "").split(",") if name.strip()]
    resumes = "resume" in options
    pauses = "pause" in options and any(id_ in session.subscriptions for id_ in sub_ids)
    if session.engine.transaction_log is None or not (resumes or pauses):
        return False
    replays: list[Replay] = []
    for sub_id in sub_ids:
        subscription = session.subscriptions.get(sub_id)
        if subscription is None or not isinstance(subscription.replay, Replay):
            raise CommandRefusedError(
                "invalid subscription id",
                f"this connection has no bookmark subscription {sub_id!r} to pause or resume",
            )
        if subscription.replay.has_live_option:
            raise option_refusal(
                "resume" if resumes else "pause",
                f"subscription {sub_id!r} has option live, which it does not go with",
            )
        replays.append(subscription.replay)
    if not replays:
        raise CommandRefusedError(
            "invalid subscription id", "the command does not name the subscriptions (header sub_id)"
        )
    acknowledge(session, header, "processed", sub_id=header.sub_id)
    if resumes:
        _resume(replays)
    else:
        for replay in replays:
            replay.pause()
    return True


def _resume(replays: Iterable[Replay]) -> None:
    """Resume replays where they were paused; those that can share reads are read for together."""
    groups: dict[ReplayGroupKey, list[Replay]] = {}
    for replay in replays:
        group_key = replay.unpause()
        if group_key is not None:
            groups.setdefault(group_key, []).append(replay)
    for group_key, group in groups.items():
        start_log_reader(group, group_key.span)


def read_bookmark(header: Header) -> BookmarkRequest:
    """Read a command's bookmark.

    Raises:
        CommandRefusedError: it is invalid.
    """
    text = header.bookmark or ""
    if text.count(",") >= MAX_BOOKMARKS:
        raise CommandRefusedError(
            "invalid bookmark",
            f"{text.count(',') + 1} bookmarks: expected no more than {MAX_BOOKMARKS}",
        )
    try:
        return parse_bookmark(text)
    except BookmarkError as error:
        raise CommandRefusedError("invalid bookmark", str(error)) from None


def read_not_found(options: Mapping[str, str]) -> MissingBookmarkPolicy:
    """Read the action to take when a bookmark is not found.

    Raises:
        CommandRefusedError: the option has an unknown value.
    """
    not_found = options.get("bookmark_not_found", "now").lower()
    if not_found not in _NOT_FOUND:
        raise option_refusal("bookmark_not_found", "expected epoch, now or fail")
    return cast(MissingBookmarkPolicy, not_found)


def _max_messages(header: Header) -> int | None:
    if header.top_n is None:
        return None
    if header.top_n < 1 or is_now(header.bookmark or ""):
        raise CommandRefusedError(
            "invalid option", "top_n is a number of messages to replay, and 0|1| replays none"
        )
    return header.top_n


def _rate(options: Mapping[str, str]) -> ReplayRate | None:
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
