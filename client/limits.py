"""How long and how much the shells wait, queue and try."""

from __future__ import annotations

from typing import Final

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds that a call waits for its answer."""

LOGON_ROUNDS: Final = 8
"""How often a server may answer a logon with `retry`."""

HEARTBEATS_MISSED: Final = 2
"""After this many intervals without a sign of life the server is taken for gone."""

QUEUED_AT_MOST: Final = 50_000
"""Messages in all streams together, beyond which the asyncio client stops reading."""

MESSAGES_BETWEEN_READS: Final = 256
"""A blocking client that only publishes reads acknowledgements after so many messages."""
