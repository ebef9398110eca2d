"""Every resource and every field, read over HTTP from a server of which it is known what it did."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from amperage.wire.bookmarks import client_hash
from server.statistics.resources import RESOURCES
from server.statistics.schema import ColumnType, Resource
from server.statistics.timestamps import from_text
from tests.statistics.walking import BODY, FRAME, LEASED, PUBLISHED, QUEUED, Walk, walked


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    with walked(tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")) as found:
        yield found


def _with_entries(walk: Walk) -> Iterator[tuple[Resource, str, dict[str, str]]]:
    for resource in RESOURCES:
        for entry, fields in walk.entries[resource.path].items():
            yield resource, entry, fields


def test_every_resource_has_an_entry(walk: Walk) -> None:
    assert [path for path, entries in walk.entries.items() if not entries] == []


def test_every_entry_has_every_field_in_its_type(walk: Walk) -> None:
    readers = {ColumnType.INTEGER: int, ColumnType.REAL: float, ColumnType.TEXT: str}
    for resource, entry, fields in _with_entries(walk):
        where = f"{resource.path} {entry}"
        names = [field.name for field in resource.fields]
        assert [name for name in names if name not in fields] == [], where
        for field in resource.fields:
            if field.name in fields:
                assert readers[field.type](fields[field.name]) is not None, f"{where} {field.name}"


MOMENT: Final = r"20\d{6}T\d{6}\.\d+Z"
SHARE: Final = r"100(\.0+)?|\d\d?(\.\d+)?"
SOME: Final = r"[1-9]\d*"
ANY: Final = r"\d+"
REAL: Final = r"\d+(\.\d+)?"


EXPECTED: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("instance", ""): {
        "config_path": ".*/config.xml",
        "cwd": "/.*",
        "description": "what it is for",
        "environment": "tests",
        "name": "first",
        "name_hash": str(client_hash("first")),
        "pid": SOME,
        "uptime": r"00:\d\d:\d\d\.\d{6}",
        "user_id": r".+",
        "version": r"5\..*",
    },
    ("instance/api", ""): {"command_queue_depth": ANY},
    ("instance/certificates", "1"): {
        "expiry_timestamp": SOME,
        "path": r"/.*/servers-localhost\.crt",
        "used_by": "transport secure",
    },
    ("instance/clients", "subscriber"): {
        "authenticated_id": "",
        "bytes_in": SOME,
        "bytes_in_per_sec": ANY,
        "bytes_out": SOME,
        "bytes_out_per_sec": ANY,
        "client_name": "subscriber",
        "client_name_hash": str(client_hash("subscriber")),
        "client_version": "9.8.7",
        "connect_time": MOMENT,
        "connection_name": "first-any-tcp-1",
        "correlation_id": "corr",
        "denied_reads": "0",
        "denied_writes": "0",
        "messages_in": "2",  # logon, subscribe
        "messages_in_per_sec": ANY,
        "messages_out": str(PUBLISHED + 2),
        "messages_out_per_sec": ANY,
        "query_time": "0",
        "queue_depth_out": "0",
        "queue_max_latency": r"0(\.0+)?",
        "queued_bytes_out": "0",
        "remote_address": r"127\.0\.0\.1:\d+",
        "subscription_count": "1",
        "tcp_zero_window_advert": "0",
        "transport": "any-tcp",
        "transport_rx_queue": "0",
        "transport_tx_queue": "0",
    },
    ("instance/clients", "publisher"): {
        # logon, flushes, a deletion and two queries beside what was published
        "messages_in": str(1 + PUBLISHED + 6 + 3 + QUEUED + 3 + 1 + 2),
        "query_time": SOME,
        "subscription_count": "0",
    },
    ("instance/clients", "denied"): {"denied_reads": "2", "denied_writes": "1"},
    ("instance/conflated_topics", "slowly!json"): {
        "conflation_ratio": REAL,
        "filter": "/n > 0",
        "interval": r"0\.1s",
        "message_type": "json",
        "pattern": "",
        "topic": "slowly",
        "topic_format": "",
        "total_executions": SOME,
        "total_time": ANY,
        "underlying_topic": "records",
    },
    ("instance/lifetimes", "1"): {"event": "started", "timestamp": MOMENT, "version": r"5\..*"},
    ("instance/logging/console", "1"): {
        "bytes_written": SOME,
        "exclude_errors": "",
        "include_errors": "",
        "log_levels": "info",
        "target": "stdout",
    },
    ("instance/logging/file", "2"): {
        "bytes_written": SOME,
        "exclude_errors": "00-0042",
        "include_errors": "",
        "log_levels": "info",
        "file_name": r"log-00000\.txt\.log",
        "file_name_mask": r"log-%n\.txt",
        "file_system_free_percent": SHARE,
        "rotation": "1",
        "rotation_threshold": "1000000|1048576",
    },
    ("instance/logging/syslog", "3"): {
        "bytes_written": "0",
        "facility": str(19 << 3),
        "ident": "walk",
        "logopt": "1",
        "log_levels": "emergency",
    },
    ("instance/memory", ""): {"rss": SOME, "vmsize": SOME},
    ("instance/memory/caches", "client cache"): {
        "allocations": SOME,
        "bytes": SOME,
        "description": ".+",
        "efficiency": REAL,
        "entries": "7",
        "evictions": "0",
        "fetches": "0",
        "overflow_bytes": "0",
    },
    ("instance/memory/paginations", "1"): {
        "memory_bytes": SOME,
        "message_type": "json",
        "subscription_count": "1",
        "topic": "records",
    },
    ("instance/message_types", "json"): {
        "module": "json",
        "name": "json",
        "options": "",
        "type": "",
    },
    ("instance/processors", "all"): {"denied_reads": "2", "denied_writes": "1"},
    ("instance/processors", "external"): {
        "denied_reads": "2",
        "denied_writes": "1",
        "description": ".+",
        "last_active": ANY,
        # to those who subscribe to what is published, and nothing besides
        "matches_found": str(PUBLISHED),
        "matches_found_bytes": SOME,  # see below
        "messages_received": SOME,
        "messages_received_bytes": SOME,
        "throttle_count": ANY,
    },
    ("instance/processors", "queue"): {
        "messages_received": str(QUEUED),
        "matches_found": str(LEASED + 1),
        "matches_found_bytes": SOME,
    },
    ("instance/processors", "bookmark"): {"matches_found": "3", "matches_found_bytes": SOME},
    ("instance/processors", "sow"): {"matches_found": str(2 * 3 + 2), "matches_found_bytes": SOME},
    ("instance/processors", "replication"): {"matches_found": "3", "matches_found_bytes": SOME},
    ("instance/queries", ""): {"queued_queries": "0"},
    ("instance/queues", "work!json"): {
        "age_of_oldest_lease": REAL,
        "backlog": str(LEASED),
        "deferred_ack_count": "0",
        "expired_leases": "0",
        "inactive_message_count": "0",
        "max_backlog": "100",
        "message_type": "json",
        "owned": str(QUEUED - 1),
        "proxied_transfer": "0",
        "queue_depth": str(QUEUED - 1),
        "seconds_behind": REAL,
        "target_queue_depth": "1000",
        "topic": "work",
        "transferred_in": "0",
        "transferred_out": "0",
    },
    ("instance/replication", "to-second"): {
        "authenticated_id": ".+",  # as whom the process runs
        "bytes_out": SOME,
        "client_name": "first!to-second@second!sync!amps-replication",
        "client_type": "destination",
        "connect_time": MOMENT,
        "destination_admin_addr": r"127\.0\.0\.1:\d+",
        "destination_group_name": "second",
        "destination_name": "second",
        "disconnect_count": "0",
        "disconnect_time": "",
        "is_connected": "1",
        "messages_out": "3",
        "name": "to-second",
        "pass_through": "0",
        "replication_type": "sync",
        "seconds_behind": "0",
    },
    ("instance/sow", "records!json"): {
        "delete_count": "1",
        "device": ".*",
        "historical_granularity": "1s",
        "historical_window": "3600s",
        "insert_count": "4",
        "memory_bytes": SOME,
        "message_type": "json",
        "mmaps": SOME,
        "path": r".*records\.sow",
        "query_count": "3",
        "record_size": "512",
        "resident_percent": SHARE,
        "slab_count": SOME,
        "slab_size": SOME,
        "stored_bytes": SOME,
        "topic": "records",
        "update_count": "2",
        "valid_keys": "3",
    },
    ("instance/sql", ""): {
        "bytes_out": SOME,
        "cancelled": "0",
        "execution_time": SOME,
        "failed": "1",
        "memory_limit_hits": "0",
        "rows_out": "0",
        "running": "0",
        "slow": "0",
        "statements": "2",
    },
    ("instance/sql/errors", "42"): {
        "about": "syntax error or access rule violation",
        "count": "1",
    },
    ("instance/sow", "totals!json"): {"valid_keys": "2", "insert_count": "2"},
    ("instance/sow", "slowly!json"): {"valid_keys": "3"},
    ("instance/sow", "work!json"): {
        "insert_count": str(QUEUED),
        "delete_count": "1",
        "valid_keys": str(QUEUED - 1),
    },
    ("instance/statistics", ""): {"file_name": ":memory:", "interval": "1000"},
    ("instance/subscriptions", "replay"): {
        "backlog": "0",
        "bookmark": "0",
        "cursor_id": r"\d+|tail",
        "entitlement_filter": "",
        "filter": "",
        "message_type": "json",
        "seconds_behind": r"0(\.0+)?",
        "topic": "safe",
    },
    ("instance/subscriptions", "plain"): {"filter": "/id > 0", "pagination_id": "", "bookmark": ""},
    ("instance/subscriptions", "work"): {"backlog": str(LEASED), "options": "max_backlog=4"},
    ("instance/subscriptions", "page"): {"pagination_id": "1", "options": "skip_n=0,top_n=2"},
    ("instance/transaction_log", ""): {"max_timestamp": MOMENT, "min_timestamp": MOMENT},
    ("instance/transaction_log/write_latency", ""): {
        "histogram": r"\d+ - \d+: \d+ \*+(.|\n)*",
        "maximum": SOME,
        "minimum": SOME,
    },
    ("instance/transaction_log/write_size", ""): {
        "histogram": r"\d+ - \d+: \d+ \*+(.|\n)*",
        "maximum": SOME,
        "minimum": SOME,
    },
    ("instance/transports", "any-tcp"): {
        "is_enabled": "1",
        "message_type": "",
        "name": "any-tcp",
        "options": r"InetAddr=127\.0\.0\.1:\d+,Protocol=amps,ReuseAddr=true",
        "type": "tcp",
    },
    ("instance/tuning", ""): {"NUMA": "enabled|disabled"},
    ("instance/views", "totals!json"): {
        "conflation": "none",
        "conflation_ratio": REAL,
        "grouping": "/kind",
        "message_type": "json",
        "projection": "/kind,SUM\\(/n\\) AS /n",
        "queue_depth": "0",
        "topic": "totals",
        "underlying_topic": "records",
    },
}
"""By resource and entry, what is said after all that: expressions that the whole text matches.

Clients and subscriptions, whose ids are numbers, go by their names here.
"""


@pytest.mark.parametrize(("path", "name"), EXPECTED)
def test_what_was_done_is_what_is_said(walk: Walk, path: str, name: str) -> None:
    fields = _named(walk, path, name)
    found = {field: fields[field] for field in EXPECTED[path, name]}
    wrong = {
        field: found[field]
        for field, expression in EXPECTED[path, name].items()
        if not re.fullmatch(expression, found[field])
    }
    assert wrong == {}


def _named(walk: Walk, path: str, name: str) -> dict[str, str]:
    """An entry by its id, or what else it goes by."""
    by_name = {"instance/clients": "client_name", "instance/subscriptions": "sub_id"}
    entries = walk.entries[path]
    if path not in by_name:
        return entries[name]
    return next(one for one in entries.values() if one[by_name[path]] == name)


def test_all_is_the_sum_of_all_processors(walk: Walk) -> None:
    entries = dict(walk.entries["instance/processors"])
    whole = entries.pop("all")
    for field in ("messages_received", "matches_found", "matches_found_bytes", "throttle_count"):
        assert int(whole[field]) == sum(int(one[field]) for one in entries.values()), field


def test_what_clients_send_is_what_is_received_from_outside(walk: Walk) -> None:
    sent = sum(int(one["messages_in"]) for one in walk.entries["instance/clients"].values())
    received = walk.entries["instance/processors"]["external"]["messages_received"]
    assert int(received) == sent


def test_bytes_to_outside_are_those_of_messages_and_of_sql(walk: Walk) -> None:
    clients = walk.entries["instance/clients"].values()
    (answered,) = (int(one["bytes_out"]) for one in clients if one["transport"] == "sql")
    sent = walk.entries["instance/processors"]["external"]["matches_found_bytes"]
    assert int(sent) == PUBLISHED * (len(BODY) + len(FRAME)) + answered


def test_a_subscription_names_its_client(walk: Walk) -> None:
    subscription = _named(walk, "instance/subscriptions", "plain")
    clients = walk.entries["instance/clients"]
    assert clients[subscription["client_id"]]["client_name"] == "subscriber"


def test_journals_are_listed(walk: Walk) -> None:
    journals = walk.entries["instance/transaction_log/journals"]
    assert journals
    for name, one in journals.items():
        assert one["file_name"] == name
        assert (one["is_archived"], one["is_compressed"]) == ("0", "0")
        assert one["held_by"] == "being written"
        assert int(one["size"]) > 0
        assert from_text(one["min_timestamp"]) <= from_text(one["max_timestamp"])
