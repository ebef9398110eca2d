"""The limits on the resources that peers of the HTTP server use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_BYTES_BEING_SENT: Final = 256 * 1024 * 1024
"""Bytes of documents that are being sent; one that is sent to many peers counts once."""

LINGER_SECONDS: Final = 1.0
"""How long a peer may go on sending after a refusal, before it is cut off."""

SEND_CHUNK_SIZE: Final = 64 * 1024
"""Bytes that are sent before waiting for the peer."""

MAX_UNREAD_BYTES: Final = 128 * 1024
"""Sent bytes that the peer has not read; beyond that, sending waits."""

MAX_REQUEST_TARGET_SIZE: Final = 8 * 1024
"""Bytes of a path with its query."""

MAX_REQUEST_HEAD_SIZE: Final = 72 * 1024
"""Bytes of a request line and its headers.

A Kerberos ticket of a user who is in very many groups takes 64 KB of them.
"""

MAX_REQUEST_HEADERS: Final = 100
"""Headers of a request."""

MAX_QUERY_PARAMETERS: Final = 100
"""Parameters of a query."""

MAX_REQUEST_BODY_SIZE: Final = 64 * 1024
"""Bytes of a request's body."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The maximum number of connections, and their timeouts.

    Attributes:
        max_connections: at a time; one more replaces the connection with the longest wait for its
            peer.
        arrival_timeout_s: seconds that a request may take to arrive, from its first byte; the first
            one, from the connection's beginning.
        idle_timeout_s: seconds that a connection may stay without a request: longer than the minute
            at which most programs poll.
        write_timeout_s: seconds that a peer may take to read the last chunk, `SEND_CHUNK_SIZE`
            bytes at most.
    """

    max_connections: int = 1_000
    arrival_timeout_s: float = 10.0
    idle_timeout_s: float = 75.0
    write_timeout_s: float = 20.0
