"""Timeouts, buffer sizes and retry limits of the client."""

from __future__ import annotations

from typing import Final

from amperage.wire.framing import MAX_AMPS_FRAME_SIZE

DEFAULT_TIMEOUT: Final = 10.0
"""Default timeout of a call, in seconds."""

MAX_LOGON_ROUNDS: Final = 8
"""The maximum number of logon attempts when the server answers with `retry`."""

DEFAULT_HEARTBEAT: Final = 15
"""Default interval of the heartbeats of a client that reconnects automatically, in seconds."""

MAX_MISSED_HEARTBEATS: Final = 2
"""The number of silent heartbeat intervals after which the server is considered gone."""

MAX_QUEUED_MESSAGES: Final = 50_000
"""Messages in all streams together, above which a client stops reading."""

MAX_QUEUED_BYTES: Final = 64 * 1024 * 1024
"""Bytes in all streams together, above which a client stops reading."""

MAX_COMMAND_HEADER_SIZE: Final = 1024 * 1024 - 32
"""Maximum bytes of a command's header: the servers' limit less the size of a sequence number."""

MAX_BODY_SIZE: Final = MAX_AMPS_FRAME_SIZE - 1024 * 1024
"""Maximum bytes of a message's body. With any header, it fits into the largest frame."""
