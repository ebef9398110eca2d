"""How long and how much the shells wait, queue and try."""

from __future__ import annotations

from typing import Final

from amperage.wire.framing import MAXIMUM_FRAME

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds that a call waits for its answer."""

LOGON_ROUNDS: Final = 8
"""How often a server may answer a logon with `retry`."""

DEFAULT_HEARTBEAT: Final = 15
"""Seconds between the heartbeats of a client that stays connected, unless it says otherwise."""

HEARTBEATS_MISSED: Final = 2
"""After this many intervals without a sign of life the server is taken for gone."""

QUEUED_AT_MOST: Final = 50_000
"""Messages in all streams together, beyond which a client stops reading."""

QUEUED_BYTES_AT_MOST: Final = 64 * 1024 * 1024
"""Bytes in all streams together, beyond which a client stops reading."""

LARGEST_HEADER: Final = 1024 * 1024 - 32
"""Bytes of a command's header: what servers take, but for the room that a sequence number needs."""

LARGEST_BODY: Final = MAXIMUM_FRAME - 1024 * 1024
"""Bytes of a message's data. With any header, it fits into the largest frame."""
