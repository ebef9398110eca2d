"""The facts as a document: sentences first, then the numbers that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from server.admin.diagnosis.humanize import number, size, span
from server.admin.diagnosis.limits import limits
from server.admin.diagnosis.reasons import DiagnosisFacts, Reason, reasons, state
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.admin.diagnosis.facts import ClientFacts, ConsumerFacts, SubscriptionFacts
    from server.admin.diagnosis.limits import LimitUsage
    from server.topics.subscriptions.limits.slow_clients import BacklogStats
    from server.topics.subscriptions.matching.filter_costs import FilterCost

DiagnosisContent: TypeAlias = (
    "str | int | float | list[DiagnosisContent] | dict[str, DiagnosisContent]"
)
"""The source of documents of any form."""

_STATE_PHRASES: Final = {
    "slow": "is slow",
    "stopped reading": "has stopped reading",
    "catching up": "is catching up with the log",
}
"""The wording of a state in a sentence, where it is not the state's name."""


def of_client(facts: DiagnosisFacts) -> dict[str, DiagnosisContent]:
    """Explain a client."""
    client, reason_list = facts.client, reasons(facts)
    state_name = state(facts, reason_list)
    return {
        "timestamp": moment(client.collected_at),
        "state": state_name,
        "sentences": [*_sentences(facts, state_name), *_explanations(reason_list)],
        "reasons": [_reason(item) for item in reason_list],
        "client": _identity(client),
        "pace": _rates(facts),
        "waiting": _waiting(client),
        "limits": [_limit(item) for item in limits(client)],
        "subscriptions": [_subscription(item) for item in client.subscriptions],
        "queries": [
            {"query_id": item.query_id, "sub_id": item.sub_id, "seconds": item.seconds}
            for item in client.queries
        ],
        "engine": {
            "seconds_until_it_answered": client.engine_lag_s,
            "waiting_for_a_slice": client.waiting_task_count,
            "longest_turn_seconds": client.longest_slice_s,
            "longest_turn_was": client.longest_slice_task,
            "turns_of_more_than_100_ms": client.long_slice_count,
        },
    }


def _sentences(facts: DiagnosisFacts, state_name: str) -> Iterator[str]:
    client, rates = facts.client, facts.rates
    user = f", user {client.user!r}," if client.user else ""
    message_type_note = f", as {client.message_type}" if client.message_type else ""
    yield (
        f"{client.name!r}{user} {_STATE_PHRASES.get(state_name, state_name)}."
        f" It came from {client.address} through "
        f"transport {client.transport!r}{message_type_note}, "
        f"{span(client.collected_at - client.connected_at)} ago."
    )
    yield f"It has {', '.join(_holdings(client))}."
    yield (
        f"It has sent {number(client.messages_in, 'message')} and commands, "
        f"{size(client.bytes_in)}, and has been sent {number(client.messages_out, 'message')}, "
        f"{size(client.bytes_out)}, of which it has not read {size(client.unread_bytes)}."
    )
    if rates.is_known:
        yield (
            f"In the last {span(rates.window_seconds)} there were {size(rates.write_rate)} a"
            " second for it, "
            f"and it read {size(rates.read_rate)} a second; it sent {size(rates.receive_rate)}"
            " a second."
        )


def _explanations(reason_list: list[Reason]) -> Iterator[str]:
    if not any(reason.is_trouble for reason in reason_list):
        yield "Nothing keeps it from getting its messages."
    for reason in reason_list:
        yield reason.explanation


def _holdings(client: ClientFacts) -> Iterator[str]:
    yield number(client.subscription_count, "subscription")
    subscriptions = client.subscriptions
    kinds = (
        ("replaying", sum(subscription.replay is not None for subscription in subscriptions)),
        (
            "consuming queues",
            sum(subscription.consumer is not None for subscription in subscriptions),
        ),
        (
            "conflated",
            sum(subscription.pending_conflated is not None for subscription in subscriptions),
        ),
    )
    for kind, count in kinds:
        if count:
            yield f"{count:,} of them {kind}"
    yield f"{number(len(client.queries), 'query', 'queries')} under way"


def _reason(reason: Reason) -> dict[str, DiagnosisContent]:
    return {
        "name": reason.name,
        "trouble": int(reason.is_trouble),
        "says": reason.explanation,
        "remedy": reason.remedy,
    }


def _identity(client: ClientFacts) -> dict[str, DiagnosisContent]:
    return {
        "client_name": client.name,
        "connection_name": client.connection_name,
        "authenticated_id": client.user,
        "remote_address": client.address,
        "transport": client.transport,
        "message_type": client.message_type,
        "client_version": client.version,
        "connect_time": moment(client.connected_at),
        "last_heard": moment(client.last_received_at),
        "last_command": client.last_command,
        "subscription_count": client.subscription_count,
        "query_seconds": client.query_seconds,
        "denied": client.denied_count,
    }


def _rates(facts: DiagnosisFacts) -> dict[str, DiagnosisContent]:
    client, rates = facts.client, facts.rates
    return {
        "bytes_in": client.bytes_in,
        "messages_in": client.messages_in,
        "bytes_out": client.bytes_out,
        "messages_out": client.messages_out,
        "over_seconds": rates.window_seconds,
        "received_bytes_per_sec": round(rates.receive_rate),
        "written_bytes_per_sec": round(rates.write_rate),
        "read_bytes_per_sec": round(rates.read_rate),
        "read_lately_bytes_per_sec": round(rates.recent_read_rate),
    }


def _waiting(client: ClientFacts) -> dict[str, DiagnosisContent]:
    socket_stats = client.socket_stats
    return {
        "queued_bytes_out": socket_stats.unsent_bytes,
        "oldest_seconds": socket_stats.unsent_age_s,
        "oldest_since": moment(
            client.collected_at - socket_stats.unsent_age_s if client.is_behind else None
        ),
        "transport_tx_queue": socket_stats.unacked_bytes,
        "tcp_zero_window_advert": int(socket_stats.is_window_closed),
        "transport_rx_queue": socket_stats.unread_bytes,
        "behind_queries_bytes": client.bytes_behind_queries,
        "commands_wait": int(client.has_waiting_commands),
        **({} if client.backlog is None else _backlog(client.backlog)),
    }


def _backlog(backlog: BacklogStats) -> dict[str, DiagnosisContent]:
    return {
        "memory_bytes": backlog.memory_bytes,
        "held_bytes": backlog.held_bytes,
        "disk_bytes": backlog.disk_bytes,
        "is_offline": int(backlog.is_offline),
        "stalled_seconds": 0.0 if backlog.stalled_s is None else backlog.stalled_s,
    }


def _limit(limit: LimitUsage) -> dict[str, DiagnosisContent]:
    return {
        "name": limit.name,
        "what": limit.subject,
        "used": round(limit.used_amount),
        "limit": round(limit.limit),
        "share": limit.used_share,
        "beyond": limit.consequence,
    }


def _subscription(subscription: SubscriptionFacts) -> dict[str, DiagnosisContent]:
    content: dict[str, DiagnosisContent] = {
        "id": subscription.number,
        "sub_id": subscription.sub_id,
        "topic": subscription.topic,
        "filter": subscription.filter,
        "options": subscription.options,
        "memory_bytes": subscription.memory_bytes,
    }
    if subscription.filter:
        content |= {
            "filter_share": subscription.engine_share,
            "filter_seconds": subscription.cost_seconds,
            "filter_seconds_each": ""
            if subscription.seconds_per_message is None
            else subscription.seconds_per_message,
        }
    if subscription.limits:
        content["entitlement"] = [
            {
                "topic": limit.topic,
                "is_closed": int(limit.is_read_denied),
                "filter": limit.filter,
                "select": limit.select,
                "rule": limit.rule,
            }
            for limit in subscription.limits
        ]
    if subscription.pending_conflated is not None:
        content["conflated_messages"] = subscription.pending_conflated
    if subscription.replay is not None:
        content |= {
            "cursor_id": subscription.replay.cursor,
            "is_paused": int(subscription.replay.is_paused),
            "seconds_behind": subscription.replay.seconds_behind,
            "entries_behind": subscription.replay.entries_behind,
        }
    return content if subscription.consumer is None else content | _consumer(subscription.consumer)


def _consumer(consumer: ConsumerFacts) -> dict[str, DiagnosisContent]:
    return {
        "backlog": consumer.leased,
        "max_backlog": consumer.lease_limit,
        "requested_backlog": consumer.requested_backlog,
        "is_held_back": int(consumer.is_throttled),
        "oldest_lease_seconds": consumer.oldest_lease_age_s or 0.0,
    }


def of_filters(costs: list[FilterCost], listed: list[FilterCost]) -> dict[str, DiagnosisContent]:
    """Return the cost of filters as a document.

    Args:
        costs: of all filters.
        listed: those to list one by one.
    """
    return {
        "filter_count": len(costs),
        "share": sum(cost.engine_share for cost in costs),
        "seconds": sum(cost.total_seconds for cost in costs),
        "filters": [
            {
                "topic": cost.topic,
                "filter": cost.filter,
                "subscriptions": cost.user_count,
                "share": cost.engine_share,
                "seconds": cost.total_seconds,
                "seconds_each": cost.seconds_per_message,
                "messages": cost.messages,
                "messages_per_sec": round(cost.messages_per_second),
                "looks": cost.sample_count,
                "reading_seconds_each": cost.reading_seconds,
                "reading_shared_by": cost.filter_count,
            }
            for cost in listed
        ],
    }
