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
        "timestamp": moment(client.moment),
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
            "seconds_until_it_answered": client.engine_lag,
            "waiting_for_a_slice": client.engine_waiting,
            "longest_turn_seconds": client.longest_turn,
            "longest_turn_was": client.longest_work,
            "turns_of_more_than_100_ms": client.long_turns,
        },
    }


def _sentences(known: DiagnosisFacts, said: str) -> Iterator[str]:
    client, pace = known.client, known.pace
    user = f", user {client.user!r}," if client.user else ""
    spoken = f", as {client.message_type}" if client.message_type else ""
    yield (
        f"{client.name!r}{user} {_AS_SAID.get(said, said)}. It came from {client.address} through "
        f"transport {client.transport!r}{spoken}, "
        f"{span(client.moment - client.connected_at)} ago."
    )
    yield f"It has {', '.join(_holdings(client))}."
    yield (
        f"It has sent {number(client.messages_in, 'message')} and commands, "
        f"{size(client.bytes_in)}, and has been sent {number(client.messages_out, 'message')}, "
        f"{size(client.bytes_out)}, of which it has not read {size(client.unread)}."
    )
    if pace.is_known:
        yield (
            f"In the last {span(pace.seconds)} there were {size(pace.written)} a second for it, "
            f"and it read {size(pace.read)} a second; it sent {size(pace.received)} a second."
        )


def _why(found: list[Reason]) -> Iterator[str]:
    if not any(reason.is_trouble for reason in found):
        yield "Nothing keeps it from getting its messages."
    for reason in found:
        yield reason.says


def _holdings(client: ClientFacts) -> Iterator[str]:
    yield number(client.subscription_count, "subscription")
    told = client.subscriptions
    kinds = (
        ("replaying", sum(one.replay is not None for one in told)),
        ("consuming queues", sum(one.consumer is not None for one in told)),
        ("conflated", sum(one.conflated is not None for one in told)),
    )
    for what, count in kinds:
        if count:
            yield f"{count:,} of them {what}"
    yield f"{number(len(client.queries), 'query', 'queries')} under way"


def _reason(reason: Reason) -> dict[str, DiagnosisContent]:
    return {
        "name": reason.name,
        "trouble": int(reason.is_trouble),
        "says": reason.says,
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
        "last_heard": moment(client.last_heard),
        "last_command": client.last_command,
        "subscription_count": client.subscription_count,
        "query_seconds": client.query_seconds,
        "denied": client.denied,
    }


def _pace(known: DiagnosisFacts) -> dict[str, DiagnosisContent]:
    client, pace = known.client, known.pace
    return {
        "bytes_in": client.bytes_in,
        "messages_in": client.messages_in,
        "bytes_out": client.bytes_out,
        "messages_out": client.messages_out,
        "over_seconds": pace.seconds,
        "received_bytes_per_sec": round(pace.received),
        "written_bytes_per_sec": round(pace.written),
        "read_bytes_per_sec": round(pace.read),
        "read_lately_bytes_per_sec": round(pace.read_lately),
    }


def _waiting(client: ClientFacts) -> dict[str, DiagnosisContent]:
    readings = client.readings
    return {
        "queued_bytes_out": readings.kept,
        "oldest_seconds": readings.waits,
        "oldest_since": moment(client.moment - readings.waits if client.is_behind else None),
        "transport_tx_queue": readings.sending,
        "tcp_zero_window_advert": int(readings.window_is_closed),
        "transport_rx_queue": readings.receiving,
        "behind_queries_bytes": client.behind_queries,
        "commands_wait": int(client.commands_wait),
        **({} if client.kept is None else _kept(client.kept)),
    }


def _kept(kept: BacklogStats) -> dict[str, DiagnosisContent]:
    return {
        "memory_bytes": kept.memory,
        "held_bytes": kept.held,
        "disk_bytes": kept.disk,
        "is_offline": int(kept.is_offline),
        "stalled_seconds": 0.0 if kept.stalled is None else kept.stalled,
    }


def _limit(limit: LimitUsage) -> dict[str, DiagnosisContent]:
    return {
        "name": limit.name,
        "what": limit.what,
        "used": round(limit.used),
        "limit": round(limit.limit),
        "share": limit.share,
        "beyond": limit.beyond,
    }


def _subscription(one: SubscriptionFacts) -> dict[str, DiagnosisContent]:
    found: dict[str, DiagnosisContent] = {
        "id": one.number,
        "sub_id": one.sub_id,
        "topic": one.topic,
        "filter": one.filter,
        "options": one.options,
        "memory_bytes": one.memory,
    }
    if one.filter:
        found |= {
            "filter_share": one.share,
            "filter_seconds": one.cost_seconds,
            "filter_seconds_each": "" if one.seconds_each is None else one.seconds_each,
        }
    if one.limits:
        found["entitlement"] = [
            {
                "topic": limit.topic,
                "is_closed": int(limit.is_closed),
                "filter": limit.filter,
                "select": limit.select,
                "rule": limit.rule,
            }
            for limit in one.limits
        ]
    if one.conflated is not None:
        found["conflated_messages"] = one.conflated
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
        "max_backlog": consumer.most,
        "requested_backlog": consumer.asked_for,
        "is_held_back": int(consumer.is_held_back),
        "oldest_lease_seconds": consumer.oldest_lease or 0.0,
    }


def of_filters(costs: list[FilterCost], shown: list[FilterCost]) -> dict[str, DiagnosisContent]:
    """Return the cost of filters as a document.

    Args:
        costs: of all filters.
        shown: those to list one by one.
    """
    return {
        "filter_count": len(costs),
        "share": sum(one.share for one in costs),
        "seconds": sum(one.seconds for one in costs),
        "filters": [
            {
                "topic": one.topic,
                "filter": one.filter,
                "subscriptions": one.users,
                "share": one.share,
                "seconds": one.seconds,
                "seconds_each": one.seconds_each,
                "messages": one.messages,
                "messages_per_sec": round(one.per_second),
                "looks": one.looks,
                "reading_seconds_each": one.reading_seconds,
                "reading_shared_by": one.sharers,
            }
            for one in shown
        ],
    }
