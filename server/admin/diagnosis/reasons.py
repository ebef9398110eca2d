"""The reasons why a client is slow, and the remedies: rules, each of which detects one cause.

A rule takes the known facts, and yields a reason if there is one. The first rules are about the
client's behaviour, the next about its requests, the last about the server. So the first reason
found is the most likely one; the others may add to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from server.admin.diagnosis.humanize import number, percent, size, span
from server.admin.diagnosis.limits import limits

if TYPE_CHECKING:
    from server.admin.diagnosis.facts import (
        ClientFacts,
        ConsumerFacts,
        LimitFacts,
        SubscriptionFacts,
    )
    from server.admin.diagnosis.throughput import ClientRates

_STOPPED_SECONDS: Final = 1.0
"""A client that has read nothing for that long has stopped reading."""

_STOPPED_BYTES: Final = 1.0
"""Bytes a second; a client that reads less has stopped."""

_CATCHING_UP: Final = 1.0
"""Seconds by which a replay is behind before that is reported."""

_COSTLY: Final = 0.05
"""The share of the engine's time from which on a filter is costly."""

_UNREAD_COMMANDS: Final = 64 * 1024
"""Received bytes that wait in a client's socket before that is a reason."""

_BUSY_SECONDS: Final = 0.05
"""Seconds that a request waits for the engine before that is a reason."""

_MAX_OF_A_KIND: Final = 5
"""Subscriptions that are named for the same reason."""


class DiagnosisFacts(NamedTuple):
    """The facts that the rules judge by.

    Attributes:
        client: the engine's facts.
        rates: the client's rates.
    """

    client: ClientFacts
    rates: ClientRates


class Reason(NamedTuple):
    """A cause of a client's state.

    Attributes:
        name: the kind of reason, for programs.
        explanation: the reason, in a sentence.
        remedy: the remedy for the operator; empty if none is needed.
        is_trouble: whether it delays the client's messages, or may get the client disconnected.
    """

    name: str
    explanation: str
    remedy: str = ""
    is_trouble: bool = True


DiagnosisRule: TypeAlias = Callable[[DiagnosisFacts], Iterator[Reason]]


def reasons(facts: DiagnosisFacts) -> list[Reason]:
    """Return all reasons for a client's state, the most likely first."""
    return [reason for rule in _RULES for reason in rule(facts)]


def state(facts: DiagnosisFacts, reason_list: list[Reason]) -> str:
    """Return a client's state, in a word or two.

    Args:
        facts: the facts about it.
        reason_list: the reasons.
    """
    names = {reason.name for reason in reason_list}
    if not facts.client.has_logged_on:
        return "has not logged on"
    if "stopped reading" in names:
        return "stopped reading"
    if facts.client.is_behind:
        return "slow"
    if "replay" in names:
        return "catching up"
    return "waits" if any(reason.is_trouble for reason in reason_list) else "keeps up"


def _not_logged_on(facts: DiagnosisFacts) -> Iterator[Reason]:
    client = facts.client
    if not client.has_logged_on:
        seconds = span(client.collected_at - client.connected_at)
        yield Reason(
            "no logon",
            f"It has been connected for {seconds}, and has not logged on.",
            "Connections that do not log on in time are closed.",
        )


def _stopped_reading(facts: DiagnosisFacts) -> Iterator[Reason]:
    client = facts.client
    if not _has_stopped(facts):
        return
    wait = span(client.socket_stats.unsent_age_s)
    window_note = (
        ", and its own system reports a full receive window" * client.socket_stats.is_window_closed
    )
    yield Reason(
        "stopped reading",
        f"It reads nothing: {size(client.socket_stats.unacked_bytes)} fill its socket{window_note}."
        f" {size(client.socket_stats.unsent_bytes)} wait here, the oldest of them for {wait}.",
        "See what the client does: it may be stopped, or be busy with a message. "
        f"{_disconnect(client)} drops the messages that wait for it.",
    )


def _has_stopped(facts: DiagnosisFacts) -> bool:
    client, rates = facts.client, facts.rates
    if rates.is_known:  # a slow reader's receive window closes from time to time, too
        is_stalled = rates.recent_read_rate < _STOPPED_BYTES
    else:
        is_stalled = client.socket_stats.is_window_closed
    return client.is_behind and client.socket_stats.unsent_age_s >= _STOPPED_SECONDS and is_stalled


def _reads_slowly(facts: DiagnosisFacts) -> Iterator[Reason]:
    client, rates = facts.client, facts.rates
    if not client.is_behind or _has_stopped(facts):
        return
    unsent, wait = size(client.socket_stats.unsent_bytes), span(client.socket_stats.unsent_age_s)
    explanation = (
        f"Its socket does not accept the pending output: {unsent} wait here, the oldest of them "
    )
    explanation += f"for {wait}."
    if rates.is_known:
        explanation += (
            f" It reads {size(rates.read_rate)} a second, and there are"
            f" {size(rates.write_rate)} for it."
        )
        explanation += _outlook(facts)
    yield Reason(
        "reads slowly",
        explanation,
        "Have it ask for less: narrower filters, a select list, delta_subscribe or conflation. Or "
        "divide its subscriptions among several connections, or make it read faster.",
    )


def _outlook(facts: DiagnosisFacts) -> str:
    """Return when a slow client will have caught up, or reach its limit."""
    client, unread_growth_rate = facts.client, facts.rates.unread_growth_rate
    if unread_growth_rate <= -_STOPPED_BYTES:
        return f" It will have caught up in {span(client.unread_bytes / -unread_growth_rate)}."
    backlog = client.backlog
    if unread_growth_rate < _STOPPED_BYTES or backlog is None:
        return ""
    configured = backlog.limits
    if backlog.is_offline:
        remaining_bytes, consequence = (
            configured.disk_bytes * configured.client_share - backlog.disk_bytes,
            "it is disconnected",
        )
    else:
        remaining_bytes = (
            configured.memory_bytes * configured.client_share
            - backlog.memory_bytes
            - backlog.held_bytes
        )
        consequence = "pending output is written to disk"
    seconds = max(remaining_bytes, 0.0) / unread_growth_rate
    return f" If that goes on, {consequence} in {span(seconds)}."


def _offline(facts: DiagnosisFacts) -> Iterator[Reason]:
    backlog = facts.client.backlog
    if backlog is not None and backlog.is_offline:
        yield Reason(
            "offline",
            f"Its pending output is on disk, {size(backlog.disk_bytes)}: more of it than memory"
            " may hold.",
            "It comes back by itself when it has read all of that.",
        )


def _near_limits(facts: DiagnosisFacts) -> Iterator[Reason]:
    for limit in limits(facts.client):
        if limit.is_nearly_reached:
            yield Reason(
                "limit",
                f"It is near the limit of {limit.name}: {limit.used_amount:,.0f} of"
                f" {limit.limit:,.0f} "
                f"{limit.subject}. Beyond that {limit.consequence}.",
            )


def _queries_first(facts: DiagnosisFacts) -> Iterator[Reason]:
    client = facts.client
    if client.queries and client.bytes_behind_queries:
        first_query = client.queries[0]
        yield Reason(
            "query",
            f"{size(client.bytes_behind_queries)} wait for the results of its query "
            f"{first_query.query_id!r} to leave first, which began"
            f" {span(first_query.seconds)} ago.",
            "A filter that an index answers, a limit (top_n) or a connection of its own for "
            "queries makes that shorter.",
        )


def _replays(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(
        facts,
        lambda subscription: subscription.replay is not None and subscription.replay.is_behind,
    ):
        replay = subscription.replay
        if replay is None or replay.seconds_behind < _CATCHING_UP:
            continue
        yield Reason(
            "replay",
            f"Subscription {subscription.sub_id!r} is {span(replay.seconds_behind)} behind the end"
            f" of the log, with {number(replay.entries_behind, 'entry', 'entries')} left to be"
            " read.",
            "A replay goes at the pace of its client: it ends by itself if the client reads faster "
            "than is published.",
            is_trouble=facts.client.is_behind,
        )


def _paused(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(facts, _is_paused):
        yield Reason(
            "paused",
            f"Subscription {subscription.sub_id!r} gets nothing, since its client has asked for"
            " that.",
            "The client resumes it.",
            is_trouble=False,
        )


def _is_paused(subscription: SubscriptionFacts) -> bool:
    has_paused_replay = subscription.replay is not None and subscription.replay.is_paused
    return has_paused_replay or (
        subscription.consumer is not None and not subscription.consumer.requested_backlog
    )


def _full_backlogs(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(
        facts,
        lambda subscription: subscription.consumer is not None and _is_full(subscription.consumer),
    ):
        consumer = subscription.consumer
        if consumer is None:
            continue
        age = ""
        if consumer.oldest_lease_age_s is not None:
            age = f", one of them for {span(max(consumer.oldest_lease_age_s, 0.0))}"
        yield Reason(
            "leases",
            f"Subscription {subscription.sub_id!r} has {number(consumer.leased, 'message')} of"
            f" queues{age}, "
            f"and may have {consumer.lease_limit:,}: it gets none before it acknowledges some.",
            "Have it acknowledge sooner, or ask for a larger max_backlog (now "
            f"{consumer.requested_backlog:,}); MaxPerSubscriptionBacklog of the queue limits that.",
        )


def _is_full(consumer: ConsumerFacts) -> bool:
    return consumer.leased >= consumer.lease_limit > 0


def _held_back(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(
        facts,
        lambda subscription: (
            subscription.consumer is not None and subscription.consumer.is_throttled
        ),
    ):
        yield Reason(
            "held back",
            f"Subscription {subscription.sub_id!r} gets no messages of queues while its client does"
            " not read what it has been sent.",
        )


def _commands(facts: DiagnosisFacts) -> Iterator[Reason]:
    client = facts.client
    if client.has_blocked_commands:
        yield Reason(
            "commands wait",
            f"Its commands are delayed: {number(len(client.queries), 'query', 'queries')} of it "
            "are under way, or the transaction log does not keep up with what is published.",
        )
    elif client.socket_stats.unread_bytes >= _UNREAD_COMMANDS:
        yield Reason(
            "commands wait",
            f"It sends faster than is processed: {size(client.socket_stats.unread_bytes)} wait in"
            " its socket.",
            "Messages that differ only in their numbers are processed fastest; check whether "
            "filters, views or the disk take the time.",
        )


def _costly_filters(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(
        facts, lambda subscription: subscription.engine_share >= _COSTLY
    ):
        yield Reason(
            "costly filter",
            f"The filter of subscription {subscription.sub_id!r} takes"
            f" {percent(subscription.engine_share)} of the engine's "
            f"time, {span(subscription.seconds_per_message or 0.0)} for each message of its topic."
            " All clients "
            "wait for that.",
            "Add a comparison of a field with a value by =, which an index decides, and "
            "keep regular expressions short; /amps/instance/filters compares all.",
        )


def _conflated(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(
        facts, lambda subscription: bool(subscription.pending_conflated)
    ):
        yield Reason(
            "conflation",
            f"{number(subscription.pending_conflated or 0, 'message')} for subscription"
            f" {subscription.sub_id!r} wait for "
            "its conflation interval to pass, as it has asked for.",
            is_trouble=False,
        )


def _entitled(facts: DiagnosisFacts) -> Iterator[Reason]:
    for subscription in _matching_subscriptions(
        facts, lambda subscription: bool(subscription.limits)
    ):
        limit = subscription.limits[0]
        other_count = len(subscription.limits) - 1
        others_note = (
            f", and of {number(other_count, 'other topic')} likewise" if other_count else ""
        )
        rule_note = f" ({limit.rule})" if limit.rule else ""
        yield Reason(
            "entitlement",
            f"Of topic {limit.topic!r} its user may see {_visible_part(limit)}{rule_note}"
            f"{others_note}; so subscription {subscription.sub_id!r} gets nothing else.",
            "Ask the administrator of permissions to change them, if that is not intended.",
            is_trouble=False,
        )


def _visible_part(limit: LimitFacts) -> str:
    """Return a phrase for the part of a topic that may be seen."""
    if limit.is_read_denied:
        return "nothing"
    parts = []
    if limit.filter:
        parts.append(f"only messages that match {limit.filter}")
    if limit.select:
        parts.append(f"only what {limit.select} leaves of them")
    return ", and ".join(parts)


def _busy_engine(facts: DiagnosisFacts) -> Iterator[Reason]:
    client = facts.client
    if client.engine_lag_s >= _BUSY_SECONDS:
        yield Reason(
            "busy engine",
            f"The engine itself is busy: this question waited {span(client.engine_lag_s)} for it, "
            f"and {number(client.waiting_task_count, 'other', 'others')} have something to be"
            " done.",
            "See which clients send most, and which slow operations the log has with id 01-0010.",
        )


def _matching_subscriptions(
    facts: DiagnosisFacts, predicate: Callable[[SubscriptionFacts], bool]
) -> Iterator[SubscriptionFacts]:
    matching = [
        subscription for subscription in facts.client.subscriptions if predicate(subscription)
    ]
    yield from matching[:_MAX_OF_A_KIND]


def _disconnect(client: ClientFacts) -> str:
    return f"/amps/administrator/clients/{client.number}/disconnect"


_RULES: Final[tuple[DiagnosisRule, ...]] = (
    _not_logged_on,
    _stopped_reading,
    _reads_slowly,
    _offline,
    _near_limits,
    _queries_first,
    _full_backlogs,
    _held_back,
    _replays,
    _paused,
    _commands,
    _costly_filters,
    _conflated,
    _entitled,
    _busy_engine,
)
