"""Sums over all entries of a resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from server.admin.metrics.exposition import MetricFamily, MetricSample, gauge, labels
from server.admin.metrics.families import MAX_LISTED_ENTRIES
from server.statistics.resources import CLIENTS, INSTANCE, JOURNALS, TRANSPORTS
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import Resource, StatisticValue
from server.statistics.timestamps import to_unix


class _ClientMetric(NamedTuple):
    """A figure of clients that is reported by transport.

    Attributes:
        field: the value of each client.
        name: the metric.
        description: its description.
        combine: combines the values of many clients.
        unit: see `MetricFamily`.
    """

    field: str
    name: str
    description: str
    combine: Callable[[Iterable[float]], float]
    unit: str = ""


_CLIENT_METRICS: Final = (
    _ClientMetric(
        "subscription_count", "amperage_subscriptions", "Subscriptions of all clients.", sum
    ),
    _ClientMetric(
        "queue_depth_out",
        "amperage_unread_messages",
        "Messages that the sockets of clients do not take yet.",
        sum,
    ),
    _ClientMetric(
        "queued_bytes_out",
        "amperage_unread_bytes",
        "Bytes that the sockets of clients do not take yet.",
        sum,
        "bytes",
    ),
    _ClientMetric(
        "queue_max_latency",
        "amperage_unread_oldest_seconds",
        "How long the oldest of these has waited.",
        max,
        "seconds",
    ),
    _ClientMetric(
        "tcp_zero_window_advert",
        "amperage_stalled_clients",
        "Clients whose TCP window is full.",
        sum,
    ),
)


def summaries(snapshot: StatisticsSnapshot) -> list[MetricFamily]:
    """Return the families."""
    return [
        _instance(snapshot),
        gauge(
            "amperage_sample_timestamp_seconds",
            "When the sample was taken that this document shows, in seconds since 1970.",
            [("", to_unix(snapshot.timestamp))],
            "seconds",
        ),
        gauge(
            "amperage_transaction_log_files",
            "Files of the transaction log.",
            [("", len(snapshot.entries.get(JOURNALS.path, {})))],
        ),
        *_clients(snapshot),
    ]


def _instance(snapshot: StatisticsSnapshot) -> MetricFamily:
    pairs = {
        name: str(_of_instance(snapshot, name))
        for name in ("name", "version", "description", "environment")
    }
    description = "Which instance this is."
    return MetricFamily(
        "amperage_instance", "info", description, [MetricSample("_info", labels(pairs), 1)]
    )


def _of_instance(snapshot: StatisticsSnapshot, name: str) -> StatisticValue:
    row = next(iter(snapshot.entries.get(INSTANCE.path, {}).values()), None)
    return "" if row is None else row[_column(INSTANCE, name)]


def _clients(snapshot: StatisticsSnapshot) -> list[MetricFamily]:
    """Return gauges of clients by transport: they may decrease when clients leave."""
    name_column = _column(TRANSPORTS, "name")
    rows = list(snapshot.entries.get(TRANSPORTS.path, {}).values())
    transports = [str(row[name_column]) for row in rows[:MAX_LISTED_ENTRIES]]
    transport_column = _column(CLIENTS, "transport")
    rows_by_transport: Mapping[str, list[tuple[StatisticValue, ...]]] = defaultdict(list)
    for row in snapshot.entries.get(CLIENTS.path, {}).values():
        rows_by_transport[str(row[transport_column])].append(row)
    return [
        gauge(
            metric.name,
            metric.description,
            [
                (
                    labels({"transport": transport}),
                    metric.combine(
                        [0, *_numbers(rows_by_transport[transport], _column(CLIENTS, metric.field))]
                    ),
                )
                for transport in transports
            ],
            metric.unit,
        )
        for metric in _CLIENT_METRICS
    ]


def _numbers(rows: Iterable[tuple[StatisticValue, ...]], column: int) -> list[float]:
    return [value for row in rows if not isinstance(value := row[column], str)]


def _column(resource: Resource, name: str) -> int:
    return [field.name for field in resource.fields].index(name)
