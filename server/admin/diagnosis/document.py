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

_AS_SAID: Final = {
    "slow": "is slow",
    "stopped reading": "has stopped reading",
    "catching up": "is catching up with the log",
}
"""The wording of a state in a sentence, where it is not the state's name."""


def of_client(known: DiagnosisFacts) -> dict[str, DiagnosisContent]:
    """Explain a client."""
    client, found = known.client, reasons(known)
    said = state(known, found)
    return {
        "timestamp": moment(client.collected_at),
        "state": said,
        "sentences": [*_sentences(known, said), *_why(found)],
        "reasons": [_reason(one) for one in found],
        "client": _identity(client),
        "pace": _pace(known),
        "waiting": _waiting(client),
        "limits": [_limit(one) for one in limits(client)],
        "subscriptions": [_subscription(one) for one in client.subscriptions],
        "queries": [
            {"query_id": one.query_id, "sub_id": one.sub_id, "seconds": one.seconds}
            for one in client.queries
        ],
        "engine": {
            "seconds_until_it_answered": client.engine_lag_s,
            "waiting_for_a_slice": client.waiting_task_count,
            "longest_turn_seconds": client.longest_slice_s,
            "longest_turn_was": client.longest_slice_task,
            "turns_of_more_than_100_ms": client.long_slice_count,
        },
    }


def _sentences(known: DiagnosisFacts, said: str) -> Iterator[str]:
    client, rates = known.client, known.rates
    user = f", user {client.user!r}," if client.user else ""
    spoken = f", as {client.message_type}" if client.message_type else ""
    yield (
        f"{client.name!r}{user} {_AS_SAID.get(said, said)}. It came from {client.address} through "
        f"transport {client.transport!r}{spoken}, "
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


def _why(found: list[Reason]) -> Iterator[str]:
    if not any(reason.is_trouble for reason in found):
        yield "Nothing keeps it from getting its messages."
    for reason in found:
        yield reason.explanation


def _holdings(client: ClientFacts) -> Iterator[str]:
    yield number(client.subscription_count, "subscription")
    told = client.subscriptions
    kinds = (
        ("replaying", sum(one.replay is not None for one in told)),
        ("consuming queues", sum(one.consumer is not None for one in told)),
        ("conflated", sum(one.pending_conflated is not None for one in told)),
    )
    for what, count in kinds:
        if count:
            yield f"{count:,} of them {what}"
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


def _pace(known: DiagnosisFacts) -> dict[str, DiagnosisContent]:
    client, rates = known.client, known.rates
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
        **({} if client.backlog is None else _kept(client.backlog)),
    }


def _kept(kept: BacklogStats) -> dict[str, DiagnosisContent]:
    return {
        "memory_bytes": kept.memory_bytes,
        "held_bytes": kept.held_bytes,
        "disk_bytes": kept.disk_bytes,
        "is_offline": int(kept.is_offline),
        "stalled_seconds": 0.0 if kept.stalled_s is None else kept.stalled_s,
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


def _subscription(one: SubscriptionFacts) -> dict[str, DiagnosisContent]:
    found: dict[str, DiagnosisContent] = {
        "id": one.number,
        "sub_id": one.sub_id,
        "topic": one.topic,
        "filter": one.filter,
        "options": one.options,
        "memory_bytes": one.memory_bytes,
    }
    if one.filter:
        found |= {
            "filter_share": one.engine_share,
            "filter_seconds": one.cost_seconds,
            "filter_seconds_each": ""
            if one.seconds_per_message is None
            else one.seconds_per_message,
        }
    if one.limits:
        found["entitlement"] = [
            {
                "topic": limit.topic,
                "is_closed": int(limit.is_read_denied),
                "filter": limit.filter,
                "select": limit.select,
                "rule": limit.rule,
            }
            for limit in one.limits
        ]
    if one.pending_conflated is not None:
        found["conflated_messages"] = one.pending_conflated
    if one.replay is not None:
        found |= {
            "cursor_id": one.replay.cursor,
            "is_paused": int(one.replay.is_paused),
            "seconds_behind": one.replay.seconds_behind,
            "entries_behind": one.replay.entries_behind,
        }
    return found if one.consumer is None else found | _consumer(one.consumer)


def _consumer(consumer: ConsumerFacts) -> dict[str, DiagnosisContent]:
    return {
        "backlog": consumer.leased,
        "max_backlog": consumer.lease_limit,
        "requested_backlog": consumer.requested_backlog,
        "is_held_back": int(consumer.is_throttled),
        "oldest_lease_seconds": consumer.oldest_lease_age_s or 0.0,
    }


def of_filters(costs: list[FilterCost], shown: list[FilterCost]) -> dict[str, DiagnosisContent]:
    """Return the cost of filters as a document.

    Args:
        costs: of all filters.
        shown: those to list one by one.
    """
    return {
        "filter_count": len(costs),
        "share": sum(one.engine_share for one in costs),
        "seconds": sum(one.total_seconds for one in costs),
        "filters": [
            {
                "topic": one.topic,
                "filter": one.filter,
                "subscriptions": one.user_count,
                "share": one.engine_share,
                "seconds": one.total_seconds,
                "seconds_each": one.seconds_per_message,
                "messages": one.messages,
                "messages_per_sec": round(one.messages_per_second),
                "looks": one.sample_count,
                "reading_seconds_each": one.reading_seconds,
                "reading_shared_by": one.filter_count,
            }
            for one in shown
        ],
    }
