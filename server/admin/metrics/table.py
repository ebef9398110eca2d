"""The table of values that become metrics, and of their names.

Sums over clients are in `summaries`. Interval averages are left out: a monitoring system computes
them from counters, over any time. Names are in base units.

Source: Prometheus, Metric and Label Naming.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from server.statistics import host_resources, resources
from server.statistics.schema import Resource

ID: Final = ""
"""In place of a field: the id of the entry."""

SECONDS: Final = "seconds"
BYTES: Final = "bytes"
RATIO: Final = "ratio"


class Metric(NamedTuple):
    """A value that becomes a metric.

    Attributes:
        field: the value.
        name: of the metric, after the group's prefix, and without `_total`.
        unit: the end of its name; empty for a plain count.
        scale: the factor that converts the value to that unit.
    """

    field: str
    name: str
    unit: str = ""
    scale: float = 1


@dataclass(frozen=True)
class MetricGroup:
    """The metrics of a resource.

    Attributes:
        resource: the resource.
        prefix: the beginning of their names.
        labels: names of labels, with the fields that are their values, or `ID`.
        metrics: the values.
        excluded_entry: an entry that is left out: a total of the others, which sums would count
            twice.
    """

    resource: Resource
    prefix: str
    labels: Mapping[str, str]
    metrics: tuple[Metric, ...]
    excluded_entry: str | None = None


_FROM_MICROSECONDS: Final = 1e-6
_PERCENT: Final = 0.01
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_TOPIC: Final = MappingProxyType({"topic": "topic", "message_type": "message_type"})

GROUPS: Final = (
    MetricGroup(
        resources.TRANSPORTS,
        "amperage_transport",
        {"transport": "name"},
        (
            Metric("is_enabled", "enabled"),
            Metric("client_count", "clients"),
            Metric("connection_count", "connections"),
            Metric("messages_in", "received_messages"),
            Metric("bytes_in", "received_bytes", BYTES),
            Metric("messages_out", "sent_messages"),
            Metric("bytes_out", "sent_bytes", BYTES),
            Metric("denied_reads", "denied_reads"),
            Metric("denied_writes", "denied_writes"),
        ),
    ),
    MetricGroup(
        resources.PROCESSORS,
        "amperage_processor",
        {"processor": ID},
        (
            Metric("messages_received", "received_messages"),
            Metric("messages_received_bytes", "received_bytes", BYTES),
            Metric("matches_found", "sent_messages"),
            Metric("matches_found_bytes", "sent_bytes", BYTES),
            Metric("throttle_count", "throttled"),
        ),
        excluded_entry="all",
    ),
    MetricGroup(
        resources.API, "amperage", _NONE, (Metric("command_queue_depth", "waiting_for_engine"),)
    ),
    MetricGroup(
        resources.QUERIES, "amperage", _NONE, (Metric("queued_queries", "running_queries"),)
    ),
    MetricGroup(
        resources.SQL,
        "amperage_sql",
        _NONE,
        (
            Metric("statements", "statements"),
            Metric("running", "running_statements"),
            Metric("cancelled", "cancelled_statements"),
            Metric("slow", "slow_statements"),
            Metric("memory_limit_hits", "memory_limit_hits"),
            Metric("rows_out", "sent_rows"),
            Metric("bytes_out", "sent_bytes", BYTES),
        ),
    ),
    MetricGroup(resources.SQL_ERRORS, "amperage_sql", {"class": ID}, (Metric("count", "errors"),)),
    MetricGroup(
        resources.SOW,
        "amperage_sow",
        _TOPIC,
        (
            Metric("valid_keys", "records"),
            Metric("stored_bytes", "stored_bytes", BYTES),
            Metric("memory_bytes", "memory_bytes", BYTES),
            Metric("insert_count", "inserts"),
            Metric("update_count", "updates"),
            Metric("delete_count", "deletes"),
            Metric("query_count", "queries"),
        ),
    ),
    MetricGroup(
        resources.VIEWS, "amperage_view", _TOPIC, (Metric("queue_depth", "pending_updates"),)
    ),
    MetricGroup(
        resources.CONFLATED_TOPICS,
        "amperage_conflated_topic",
        _TOPIC,
        (
            Metric("total_executions", "executions"),
            Metric("total_time", "execution_seconds", SECONDS, _FROM_MICROSECONDS),
        ),
    ),
    MetricGroup(
        resources.QUEUES,
        "amperage_queue",
        {"queue": ID},
        (
            Metric("queue_depth", "messages"),
            Metric("backlog", "leased_messages"),
            Metric("owned", "owned_messages"),
            Metric("inactive_message_count", "inactive_messages"),
            Metric("seconds_behind", "oldest_message_age_seconds", SECONDS),
            Metric("age_of_oldest_lease", "oldest_lease_age_seconds", SECONDS),
            Metric("expired_leases", "expired_leases"),
            Metric("transferred_in", "transferred_in"),
            Metric("transferred_out", "transferred_out"),
        ),
    ),
    MetricGroup(
        resources.REPLICATION,
        "amperage_replication",
        {"destination": "name"},
        (
            Metric("is_connected", "connected"),
            Metric("seconds_behind", "behind_seconds", SECONDS),
            Metric("messages_out", "sent_messages"),
            Metric("bytes_out", "sent_bytes", BYTES),
            Metric("disconnect_count", "disconnects"),
        ),
    ),
    MetricGroup(
        resources.CACHES,
        "amperage_cache",
        {"cache": ID},
        (
            Metric("bytes", "bytes", BYTES),
            Metric("entries", "entries"),
            Metric("evictions", "evictions"),
        ),
    ),
    MetricGroup(
        resources.STATISTICS,
        "amperage_statistics",
        _NONE,
        (
            Metric("total_samples", "samples"),
            Metric("total_time", "sample_seconds", SECONDS, _FROM_MICROSECONDS),
            Metric("file_size", "database_bytes", BYTES),
            Metric("memory_used", "memory_bytes", BYTES),
        ),
    ),
    MetricGroup(
        resources.FILE_LOGGERS,
        "amperage_log_file",
        {"logger": ID},
        (
            Metric("bytes_written", "written_bytes", BYTES),
            Metric("file_system_free_percent", "file_system_free_ratio", RATIO, _PERCENT),
        ),
    ),
    MetricGroup(
        resources.CERTIFICATES,
        "amperage_certificate",
        {"certificate": ID, "path": "path", "used_by": "used_by"},
        (Metric("expiry_timestamp", "expiry_timestamp_seconds", SECONDS),),
    ),
    MetricGroup(
        host_resources.HOST_CPUS,
        "amperage_host_cpu",
        {"cpu": ID},
        (
            Metric("idle_percent", "idle_ratio", RATIO, _PERCENT),
            Metric("iowait_percent", "iowait_ratio", RATIO, _PERCENT),
            Metric("system_percent", "system_ratio", RATIO, _PERCENT),
            Metric("user_percent", "user_ratio", RATIO, _PERCENT),
        ),
        excluded_entry="all",
    ),
    MetricGroup(
        host_resources.HOST_MEMORY,
        "amperage_host_memory",
        _NONE,
        (
            Metric("total", "bytes", BYTES),
            Metric("available", "available_bytes", BYTES),
            Metric("swap_total", "swap_bytes", BYTES),
            Metric("swap_free", "swap_free_bytes", BYTES),
        ),
    ),
    MetricGroup(
        host_resources.HOST_DISKS,
        "amperage_host_disk",
        {"device": ID, "mount_point": "mount_point"},
        (
            Metric("file_system_free_percent", "free_ratio", RATIO, _PERCENT),
            Metric("predicted_free_percent", "predicted_free_ratio", RATIO, _PERCENT),
            Metric("in_progress", "requests_in_progress"),
        ),
    ),
    MetricGroup(
        host_resources.HOST_NETWORK,
        "amperage_host_network",
        {"interface": ID},
        (
            Metric("bytes_in", "received_bytes", BYTES),
            Metric("bytes_out", "sent_bytes", BYTES),
            Metric("errors", "errors"),
        ),
    ),
)
"""The metrics of /metrics."""

DETAILED: Final[Mapping[str, tuple[MetricGroup, ...]]] = MappingProxyType(
    {
        "clients": (
            MetricGroup(
                resources.CLIENTS,
                "amperage_detailed_client",
                {"client": ID, "client_name": "client_name", "transport": "transport"},
                (
                    Metric("messages_in", "received_messages"),
                    Metric("bytes_in", "received_bytes", BYTES),
                    Metric("messages_out", "sent_messages"),
                    Metric("bytes_out", "sent_bytes", BYTES),
                    Metric("subscription_count", "subscriptions"),
                    Metric("query_time", "query_seconds", SECONDS, _FROM_MICROSECONDS),
                    Metric("queue_depth_out", "unread_messages"),
                    Metric("queued_bytes_out", "unread_bytes", BYTES),
                    Metric("queue_max_latency", "unread_seconds", SECONDS),
                ),
            ),
        ),
        "subscriptions": (
            MetricGroup(
                resources.SUBSCRIPTIONS,
                "amperage_detailed_subscription",
                {
                    "subscription": ID,
                    "client": "client_id",
                    "sub_id": "sub_id",
                    "topic": "topic",
                    "message_type": "message_type",
                },
                (
                    Metric("backlog", "leased_messages"),
                    Metric("seconds_behind", "behind_seconds", SECONDS),
                ),
            ),
        ),
        "topics": tuple(
            replace(group, prefix=group.prefix.replace("amperage", "amperage_detailed", 1))
            for group in GROUPS
            if group.resource
            in (resources.SOW, resources.VIEWS, resources.CONFLATED_TOPICS, resources.QUEUES)
        ),
    }
)
"""The metrics of /metrics/detailed, by `family`; all names differ from those of /metrics."""
