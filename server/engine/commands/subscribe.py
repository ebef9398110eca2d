"""subscribe: sends the messages of a topic, or of all topics matching a pattern, from now on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from amperage.wire.header import MAX_NAME_LENGTH, Header
from server.engine.commands import replay_count
from server.engine.commands.acks import acknowledge
from server.engine.commands.bookmark_subscribe import begin as begin_replay
from server.engine.commands.bookmark_subscribe import (
    is_replayed,
    make_subscription,
    pause_or_resume,
)
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.incremental_subscribe import attach_in_steps
from server.engine.commands.memory_account import memory_of
from server.engine.commands.parsing.options import (
    SubscribeOptions,
    option_refusal,
    read_max_backlog,
    read_options,
    read_subscribe_options,
)
from server.engine.commands.parsing.pagination import (
    check_replacement,
    check_same_groups,
    single_topic,
)
from server.engine.commands.parsing.topic_selection import (
    check_lasting,
    entitlement_filter,
    may_read,
    read_filter,
    read_topic,
    require_topic,
    restricted_to,
)
from server.engine.commands.queue_acks import queue_of
from server.expressions.filter_form import content_filter_of
from server.expressions.regex.budget import TooCostlyError
from server.queues.core import Consumer
from server.security.permissions import Permission
from server.topics.subscriptions.delivery.conflation import Conflater
from server.topics.subscriptions.entitlement_limits import permitted_presentation
from server.topics.subscriptions.subscription import Subscription, SubscriptionTerms
from server.util.limits import MAX_CONFLATED_SUBSCRIPTIONS, MAX_PATTERNS, MAX_SELECT_LISTS

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session
    from server.expressions.topic_names import TopicSelector
    from server.message_types.paths import Path
    from server.storage.sow.records import Record
    from server.storage.views.terms import AggregationTerms
    from server.topics.subscriptions.delivery.presentation import Presentation, SelectList
    from server.topics.subscriptions.delivery.sink import MessageSink
    from server.topics.subscriptions.subscription import PageTerms

_DELTA: Final = frozenset({"delta_subscribe", "sow_and_delta_subscribe"})
_RELEASE_BATCH_SIZE: Final = 50
"""Pending conflated messages that are released per time slice when their subscription ends."""
_NOTHING_FOUND: Final = {"matches": 0, "topic_matches": 0, "records_returned": 0}
"""The statistics of a delta subscription. Clients may request them though it queries nothing."""


def handle(session: Session, header: Header, _body: bytes) -> CommandSteps:
    """Subscribe (AMPS Command Reference, subscribe command).

    A bookmark requests a replay (server/engine/commands/bookmark_subscribe.py). A topic that is not
    in the transaction log has nothing to replay, so the subscription is complete at once.

    Raises:
        CommandRefusedError: the topic, an option or the id cannot be used, or the user may not
            read.
    """
    yield from execute_in_order(session, partial(_subscribe, session, header))


def execute_in_order(
    session: Session, execute: Callable[[list[bytes]], CommandSteps]
) -> CommandSteps:
    """Execute a command that adds a subscription, then send the frames deferred meanwhile.

    Args:
        session: the connection that sent the command.
        execute: executes the command. It gets a list, to which it appends the frames to send after
            the command's answer; they are sent even if the command is refused.
    """
    deferred_frames: list[bytes] = []
    try:
        yield from execute(deferred_frames)
    finally:
        for frame in deferred_frames:
            session.outbox.write(frame)


def _subscribe(session: Session, header: Header, deferred_frames: list[bytes]) -> CommandSteps:
    if header.top_n is not None and header.bookmark is None:
        raise CommandRefusedError("invalid option", "top_n is for subscriptions with a bookmark")
    if header.skip_n:
        raise CommandRefusedError(
            "invalid option", "skip_n is for queries and what begins with one"
        )
    if header.bookmark is not None and header.command in _DELTA:
        raise CommandRefusedError(
            "invalid command", "a replay from a bookmark sends whole messages, not deltas"
        )
    options = read_options(header)
    if header.command == "subscribe" and replay_count.is_requested(options):
        yield from replay_count.count(session, header, options)
        return
    if header.command == "subscribe" and pause_or_resume(session, header, options):
        return
    subscription = yield from add_subscription_in_steps(session, header, options, deferred_frames)
    if subscription.replay is not None:
        begin_replay(session, header, options, subscription)
        return
    acknowledge(
        session,
        header,
        "processed",
        sub_id=subscription.sub_id,
        long_options=effective_backlog(subscription),
    )
    if header.command in _DELTA:
        acknowledge(session, header, "stats", sub_id=subscription.sub_id, **_NOTHING_FOUND)
    if header.bookmark is not None:
        acknowledge(session, header, "completed", sub_id=subscription.sub_id)


def effective_backlog(subscription: Subscription) -> str | None:
    """Return the backlog that a consumer of queues gets (AMPS User Guide, Subscription Backlog)."""
    consumer = subscription.consumer
    return None if consumer is None or not consumer.slots else f"max_backlog={consumer.max_backlog}"


def _consumer(
    session: Session,
    selector: TopicSelector,
    previous: Subscription | None,
    max_backlog: int | None,
) -> Consumer | None:
    """Return the consumer of a subscription to queues; a replacement keeps the existing one."""
    queues = session.engine.topics.queues
    if queues is None:
        return None
    if previous is not None and previous.consumer is not None:
        return previous.consumer
    if not selector.is_regex and queue_of(session, selector) is None:
        return None
    requested = 1 if max_backlog is None else max_backlog
    is_paused = queues.is_delivery_paused
    return Consumer(session.client_name, session.number, requested, is_paused=is_paused)


def add_subscription_in_steps(
    session: Session,
    header: Header,
    options: Mapping[str, str],
    deferred_frames: list[bytes],
    *,
    keys: tuple[str, ...] | None = None,
    page: PageTerms | None = None,
    began_with_query: bool = False,
) -> Generator[bool, None, Subscription]:
    """Add or replace the subscription of a command, in steps, and return it.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        options: its options, split.
        deferred_frames: receives the frames to send after the command's answer.
        keys: the SOW keys of the records subscribed to, None for all.
        page: the page of these records, None for all.
        began_with_query: whether the client gets all records that match now.

    Raises:
        CommandRefusedError: the topic, an option or the id cannot be used, or the user may not
            read.
    """
    subscription = prepare(
        session, header, options, keys=keys, page=page, began_with_query=began_with_query
    )
    yield from attach_in_steps(session, subscription, deferred_frames)
    previous = session.subscriptions.get(subscription.sub_id)
    if previous is not None and previous.conflater is not None:
        while previous.conflater.release_oldest(_RELEASE_BATCH_SIZE):
            yield True
    add_subscription(session, header, subscription)
    return subscription


def add_subscription(session: Session, header: Header, subscription: Subscription) -> None:
    """Add a subscription, or replace one by it, and announce it.

    Pending conflated messages of the replaced subscription are sent first: its client must not
    miss any.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        subscription: the subscription that the command requests.

    Raises:
        CommandRefusedError: matching its pattern to topics takes too many steps.
    """
    previous = session.subscriptions.get(subscription.sub_id)
    if previous is not None and previous.conflater is not None:
        while previous.conflater.release_oldest(_RELEASE_BATCH_SIZE):
            pass
    try:
        session.add_subscription(subscription)
    except TooCostlyError as error:
        raise CommandRefusedError("bad regex topic", str(error)) from None
    _inherit_sent_records(previous, subscription)
    _announce(session, header, subscription)
    if previous is None:
        session.subscribe_fast_path.cache_subscription(header, subscription)


def try_fast_path(session: Session, header: Header) -> bool:
    """Execute a subscribe command by the fast path, if it is like the one before it.

    Args:
        session: the connection that sent the command.
        header: the command's header.

    Returns:
        Whether it was executed; if not, the caller executes it the regular way.

    Raises:
        CommandRefusedError: the filter is invalid.
    """
    subscription = session.subscribe_fast_path.try_subscribe(header)
    if subscription is None:
        return False
    _announce(session, header, subscription)
    acknowledge(session, header, "processed", sub_id=subscription.sub_id)
    return True


def _announce(session: Session, header: Header, subscription: Subscription) -> None:
    """Write a new subscription to the log, and publish it as a client status message."""
    engine = session.engine
    if engine.log.enabled("14-0001"):
        engine.log.emit(
            "14-0001",
            client=session.client_name,
            command=header.command,
            sub_id=subscription.sub_id,
            topic=subscription.selector.text,
            filter=header.filter,
            options=header.options,
        )
    status = engine.client_status
    if not status.has_recipients(header.command):
        return
    status.publish(
        header.command,
        session,
        topic=subscription.selector.text,
        filter=header.filter,
        entitlement_filter=entitlement_filter(session, subscription.selector),
        options=header.options,
        sub_id=subscription.sub_id,
        query_id=header.query_id,
        correlation_id=header.correlation_id,
    )


def prepare(
    session: Session,
    header: Header,
    options: Mapping[str, str],
    *,
    keys: tuple[str, ...] | None = None,
    page: PageTerms | None = None,
    aggregation: AggregationTerms | None = None,
    began_with_query: bool = False,
    sink: MessageSink | None = None,
) -> Subscription:
    """Return the subscription that a command requests, without adding it.

    Args:
        session: the session that owns the subscription.
        header: the command's header.
        options: its options, split.
        keys: the SOW keys of the records subscribed to, None for all.
        page: the page of these records, None for all.
        aggregation: the aggregation of the records, None if they are sent unchanged.
        began_with_query: whether the client gets all records that match now.
        sink: takes the messages instead of the session's connection.

    Raises:
        CommandRefusedError: the topic, an option or the id cannot be used, or the user may not
            read. A replacement with a topic that the user may not read succeeds, and is silent.
    """
    selector = read_topic(session, header, options)
    sub_id = read_sub_id(session, header, options)
    previous = session.subscriptions.get(sub_id)
    if page is not None or previous is None:  # before any answer that depends on the topic
        require_topic(session, Permission.READ_TOPIC, selector)
    is_closed = not may_read(session, selector)
    if page is not None:
        selector = single_topic(session, selector)
    if selector.is_regex:
        _check_limit(
            session,
            sub_id,
            MAX_PATTERNS,
            lambda subscription: subscription.selector.is_regex,
            f"a connection may have {MAX_PATTERNS} subscriptions to regular expressions: join"
            " them as alternatives, or use more connections",
        )
    check_replacement(selector, page, aggregation, previous)
    asks_for_replay = header.bookmark is not None and header.command == "subscribe"
    if asks_for_replay and not is_closed and is_replayed(session, selector):
        return make_subscription(session, header, options, selector, sub_id)
    with_records = (
        selector.is_regex
        or is_closed
        or has_records(session, selector)
        or queue_of(session, selector) is not None  # options are harmless, as with records
    )
    max_backlog = read_max_backlog(options)
    subscribe_options = read_subscribe_options(header, options, session, with_records=with_records)
    if subscribe_options.conflation is not None:
        _check_limit(
            session,
            sub_id,
            MAX_CONFLATED_SUBSCRIPTIONS,
            lambda subscription: subscription.conflater is not None,
            f"a connection may have {MAX_CONFLATED_SUBSCRIPTIONS} conflated subscriptions:"
            " join them, or use more connections",
        )
    _check_select_lists(session, sub_id, subscribe_options.presentation.select)
    if aggregation is not None:
        check_lasting(session, selector)
    by_record = subscribe_options.tracks_focus or page is not None
    stable = by_record or aggregation is not None
    content_filter = content_filter_of(
        restricted_to(read_filter(session, header, stable=stable), keys)
    )
    terms = SubscriptionTerms(
        selector,
        subscribe_options.presentation,
        _conflater(
            session,
            selector,
            subscribe_options,
            aggregation,
            by_record=by_record,
            has_all_that_matches=began_with_query and aggregation is None,
        ),
        sends_deltas=header.command in _DELTA,
        omits_empty_deltas=subscribe_options.no_empties,
        tracks_focus=subscribe_options.tracks_focus,
        began_with_query=began_with_query,
        sink=sink,
        options=header.options,
        page=page,
        aggregation=aggregation,
        consumer=_consumer(session, selector, previous, max_backlog),
        max_backlog=max_backlog,
    )
    subscription = Subscription(
        session,
        sub_id,
        terms,
        content_filter,
        memory_of(header),
    )
    check_same_groups(subscription, previous)
    return subscription


def _inherit_sent_records(previous: Subscription | None, subscription: Subscription) -> None:
    """Pass the replaced subscription's sent records on; an old query may still add to them."""
    if previous is None or previous.conflater is None or subscription.conflater is None:
        return
    focus_state = previous.conflater.focus_state
    if subscription.conflater.focus_state is None:
        return
    if focus_state is not None:
        focus_state.reopen()
        subscription.conflater.focus_state = focus_state
    elif subscription.page is None:
        subscription.conflater.focus_state = None  # the client has matches that are not sent now


def read_sub_id(session: Session, header: Header, options: Mapping[str, str]) -> str:
    """Return the id of the subscription that a command requests.

    Raises:
        CommandRefusedError: it is too long, or it is in use and the command has no option replace.
    """
    sub_id = header.sub_id or header.command_id or session.make_sub_id()
    if len(sub_id) > MAX_NAME_LENGTH:
        raise CommandRefusedError(
            "invalid subscription id",
            f"it has {len(sub_id)} characters, expected {MAX_NAME_LENGTH} at most",
        )
    if sub_id in session.subscriptions and "replace" not in options:
        raise CommandRefusedError(
            "subscription already exists",
            f"this connection has a subscription {sub_id!r} already; option replace changes it",
        )
    return sub_id


def _check_limit(
    session: Session,
    sub_id: str,
    limit: int,
    is_counted: Callable[[Subscription], bool],
    problem: str,
) -> None:
    """Refuse another subscription of a kind, which `is_counted` defines, beyond its limit.

    Raises:
        CommandRefusedError: the connection has reached the limit.
    """
    subscriptions = session.subscriptions
    if len(subscriptions) < limit:
        return
    others = (
        subscription for subscription in subscriptions.values() if subscription.sub_id != sub_id
    )
    if sum(map(is_counted, others)) >= limit:
        raise CommandRefusedError("limit exceeded", problem)


def _check_select_lists(session: Session, sub_id: str, select: SelectList | None) -> None:
    """Refuse another select list beyond the limit.

    Raises:
        CommandRefusedError: the connection has reached the limit.
    """
    subscriptions = session.subscriptions
    if select is None or len(subscriptions) < MAX_SELECT_LISTS:
        return
    others = {
        subscription.presentation.select
        for subscription in subscriptions.values()
        if subscription.sub_id != sub_id
    }
    if select not in others and len(others - {None}) >= MAX_SELECT_LISTS:
        raise CommandRefusedError(
            "limit exceeded",
            f"the subscriptions of a connection may have {MAX_SELECT_LISTS} different select"
            " lists: use fewer, or more connections",
        )


def has_records(session: Session, selector: TopicSelector) -> bool:
    """Return whether any topic of a command keeps records."""
    return bool(session.engine.sow_registry.select(session.message_type, selector))


def make_sent_record_callback(
    session: Session, subscription: Subscription, *, from_previous: bool = False
) -> Callable[[Record], None] | None:
    """Return a callback that stores sent records, if out-of-focus messages will need them.

    Args:
        session: the session that owns the subscription.
        subscription: the subscription that the records are sent to.
        from_previous: whether the client has the records from the previous subscription, and is not
            sent them again. Bodies that it stored are kept: they are those really sent.
    """
    focus_state = None if subscription.conflater is None else subscription.conflater.focus_state
    if focus_state is None or not subscription.tracks_focus:
        return None

    def on_sent(record: Record) -> None:
        key = record.topic, record.key
        if from_previous and focus_state.get(key) is not None:
            return
        focus_state.put(
            key, _presentation(session, subscription, record.topic).select_fields(record.body)
        )

    return on_sent


def _presentation(session: Session, subscription: Subscription, topic: str) -> Presentation:
    """Return the form in which a subscriber gets records of a topic."""
    if subscription.aggregation is not None:
        return subscription.presentation
    message_type = session.engine.settings.message_types[session.message_type]
    permit = session.get_permit(Permission.READ_TOPIC, topic)
    return permitted_presentation(permit, subscription.presentation, message_type)


def _conflater(
    session: Session,
    selector: TopicSelector,
    options: SubscribeOptions,
    aggregation: AggregationTerms | None,
    *,
    by_record: bool,
    has_all_that_matches: bool,
) -> Conflater | None:
    """Return the conflater of a subscription, None if it did not request conflation.

    Args:
        session: the session that owns the subscription.
        selector: its topics.
        options: its options.
        aggregation: its aggregation; None if the topics' own records are sent.
        by_record: whether only messages about the same record may be merged. The SOW key identifies
            records; fields that are the topic's keys do the same.
        has_all_that_matches: see `Conflater`.

    Raises:
        CommandRefusedError: messages about different records would be merged.
    """
    terms = options.conflation
    if terms is None:
        return None
    engine = session.engine
    if by_record and terms.key_fields:
        keys: Iterable[tuple[str, Iterable[Path]]] = (
            (f"the key of topic {selected.source.name}", selected.source.key_fields)
            for selected in engine.sow_registry.select(session.message_type, selector)
        )
        if aggregation is not None:
            keys = [("the grouping", aggregation.key_fields)]
        for name, fields in keys:
            if set(fields) != set(terms.key_fields):
                raise option_refusal(
                    "conflation_key", f"with oof, and with pages, it has to be {name}"
                )
        terms = replace(terms, key_fields=())
    return Conflater(
        terms,
        engine.settings.message_types[session.message_type],
        engine.clock,
        session.is_behind,
        engine.flush,
        session.charge_memory,
        has_all_that_matches=has_all_that_matches,
        slices=(engine.scheduler.queue_task, session.client_name),
    )
