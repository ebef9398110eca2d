"""Limits on the resources that one client may use; docs/limits.md has all of them in a table.

They protect the other clients, and are far beyond the use by well-behaved clients. The limits of
output buffers are set by the configuration (server/topics/subscriptions/limits/client_limits.py).

Source: AMPS User Guide, Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

import resource
from typing import Final

LOGON_TIMEOUT_S: Final = 10.0
"""Time that a connection has for its logon, or for a first command in place of a logon."""

MAX_CONNECTIONS_BEFORE_LOGON: Final = 5_000
"""Connections that have not logged on; they use at most half of the process's descriptors."""

MAX_HEADER_SIZE_BEFORE_LOGON: Final = 64 * 1024
"""Bytes of a header. That of a logon holds names and a password, which may be a token."""

MAX_FRAME_SIZE_BEFORE_LOGON: Final = 1024 * 1024
"""Bytes retained of an unfinished frame."""

MAX_UNFINISHED_BYTES_BEFORE_LOGON: Final = 64 * 1024 * 1024
"""Bytes retained of the unfinished frames of all connections that have not logged on."""

MAX_HEADER_SIZE: Final = 1024 * 1024
"""Bytes of a header: its longest parts have limits of their own."""

MAX_QUERIES: Final = 100
"""Queries in progress of one connection; the commands behind them wait."""

MAX_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions of one connection."""

MAX_PATTERNS: Final = 500
"""Subscriptions of one connection to topics by regular expressions."""

MAX_CONFLATED_SUBSCRIPTIONS: Final = 1_000
"""Conflated subscriptions of one connection: each has a timer, and retains pending messages."""

MAX_SELECT_LISTS: Final = 500
"""Different select lists of one connection's subscriptions: each needs messages of its own."""

MAX_TOPIC_NAME_LENGTH: Final = 1_024
"""Characters of the name of a topic: regular expressions are matched against it."""

MAX_CLIENT_MEMORY: Final = 96 * 1024 * 1024
"""Bytes charged for one connection's subscriptions and queries.

See server/engine/commands/memory_account.py.
"""

MAX_SOW_KEYS: Final = 10_000
"""SOW keys that a command names."""

MAX_SUBSCRIPTION_SOW_KEYS: Final = 1_000
"""SOW keys that a subscribing command names: they become a part of its filter."""

MAX_SUBSCRIPTION_IDS: Final = 10_000
"""Ids of subscriptions or queries that a command names."""

MAX_ACK_TYPES: Final = 100
"""Types of ack that a command requests; fewer than ten exist."""

MAX_ORDER_TERMS: Final = 300
"""Fields that results are ordered by."""

MAX_COMPUTED_FIELDS: Final = 5_000
"""Fields of a projection, and of a grouping; 64 KB hold some thousand."""

MAX_SELECTED_FIELDS: Final = 5_000
"""Entries of a select list."""

MAX_CONFLATION_KEYS: Final = 100
"""Fields that messages are conflated by."""

MAX_OPTIONS_LENGTH: Final = 128 * 1024
"""Characters of a command's options, which include select lists and projections."""

MAX_BOOKMARKS: Final = 10_000
"""Bookmarks in a list; a client has one for each publisher."""

MAX_FILTER_LENGTH: Final = 64 * 1024
"""Characters of a filter. A list of values for IN may be some thousand texts long."""

MAX_FILTER_TERMS: Final = 1_000
"""Operators, fields and functions of a filter, as in some hundred comparisons joined by OR."""

MAX_FILTER_VALUES: Final = 16_384
"""Numbers and texts of a filter; `MAX_FILTER_LENGTH` characters hold fewer different ones."""


def max_connections_before_logon() -> int:
    """Return the maximum number of connections that have not logged on."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS_BEFORE_LOGON
    return max(1, min(MAX_CONNECTIONS_BEFORE_LOGON, allowed // 2))
