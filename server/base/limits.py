"""The limits of what one client may make the server do: docs/limits.md has all of them in a table.

Those that are constants here protect the other clients, and are far from what clients do that mean
well. Those of what waits for clients are set by the configuration, and have their defaults here.

Source: AMPS User Guide, Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

import os
import resource
from typing import Final

from config_schema.spec import SlowClientLimits
from server.subscriptions.slow_clients import Limits

LOGON_SECONDS: Final = 10.0
"""How long a connection may be there before its logon, or its first command instead of one."""

MOST_HEADER_BEFORE_LOGON: Final = 64 * 1024
"""Bytes of a header. That of a logon holds names and a password, which may be a token."""

MOST_FRAME_BEFORE_LOGON: Final = 1024 * 1024
"""Bytes that are kept of an unfinished frame."""

MOST_UNFINISHED_BEFORE_LOGON: Final = 64 * 1024 * 1024
"""Bytes that are kept of the unfinished frames of all connections that have not logged on."""

MOST_HEADER: Final = 1024 * 1024
"""Bytes of a header: its longest parts have limits of their own."""

MOST_QUERIES: Final = 100
"""Queries of one connection that are under way; the commands behind them wait."""

MOST_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions of one connection."""

MOST_PATTERNS: Final = 500
"""Those of them that are to topics by regular expressions."""

MOST_TOPIC_NAME: Final = 1_024
"""Characters of the name of a topic, which regular expressions are matched against."""

MOST_KEYS: Final = 10_000
"""SOW keys that a command names."""

MOST_IDS: Final = 10_000
"""Ids of subscriptions or queries that a command names."""

MOST_ACKS: Final = 100
"""Types of ack that a command asks for; there are less than ten."""

MOST_ORDER_TERMS: Final = 1_000
"""Fields that results are ordered by."""

MOST_OPTIONS: Final = 128 * 1024
"""Characters of a command's options, where select lists and projections are."""

MOST_BOOKMARKS: Final = 10_000
"""Bookmarks in a list, of which a client has one for each publisher."""

MOST_FILTER: Final = 64 * 1024
"""Characters of a filter. A list of values for IN may be some thousand texts long."""

MOST_FILTER_PARTS: Final = 1_000
"""Operators, fields and functions of a filter, as in some hundred comparisons joined by OR."""

MOST_FILTER_VALUES: Final = 5_000
"""Numbers and texts of a filter."""

_DEFAULT_SHARE_OF_MEMORY: Final = 10  # percent
_DEFAULT_CLIENT_CAPACITY: Final = 50  # percent
_LEAST_DEFAULT_DISK: Final = 1024**3
_DEFAULT_DIRECTORY: Final = "/var/tmp"  # noqa: S108 - where AMPS puts these files; ours have no name
_NANOSECONDS: Final = 1e9


def has_own_pool(transport: SlowClientLimits) -> bool:
    """Whether the clients of a transport share nothing with those of others."""
    return transport != SlowClientLimits(None, None, None, None, None)


def limits_of(spec: SlowClientLimits, enclosing: SlowClientLimits | None = None) -> Limits:
    """Fill in what a configuration leaves open.

    Args:
        spec: the limits of the instance or of a transport.
        enclosing: for a transport, those of the instance.
    """

    outer = spec if enclosing is None else enclosing
    memory = spec.message_memory_limit or outer.message_memory_limit or _default_memory()
    disk = spec.message_disk_limit or outer.message_disk_limit or max(memory, _LEAST_DEFAULT_DISK)
    age = spec.client_message_age_limit or outer.client_message_age_limit
    capacity = spec.client_max_capacity or outer.client_max_capacity or _DEFAULT_CLIENT_CAPACITY
    return Limits(
        memory=memory,
        disk=disk,
        directory=spec.message_disk_path or outer.message_disk_path or _DEFAULT_DIRECTORY,
        share=capacity / 100,
        age=None if age is None else age / _NANOSECONDS,
    )


def _default_memory() -> int:
    """A tenth of what the host has, or of what this process may use."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    allowed, _ = resource.getrlimit(resource.RLIMIT_RSS)
    if allowed != resource.RLIM_INFINITY:
        memory = min(memory, allowed)
    return memory * _DEFAULT_SHARE_OF_MEMORY // 100
