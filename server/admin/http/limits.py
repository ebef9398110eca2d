"""The limits of what the peers of the HTTP server may make it do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_UNDER_WAY: Final = 256 * 1024 * 1024
"""Bytes of documents that are being sent; one that goes to many counts once."""

LINGER_SECONDS: Final = 1.0
"""How long a peer that was refused something may go on sending, before it is cut off."""

PIECE: Final = 64 * 1024
"""Bytes that are sent before the peer is waited for."""

MOST_UNREAD: Final = 128 * 1024
"""Bytes that have been sent and that the peer has not taken; beyond that it is waited for."""

MOST_TARGET: Final = 8 * 1024
"""Bytes of a path with its query."""

MOST_HEAD: Final = 72 * 1024
"""Bytes of a request line and its headers.

A Kerberos ticket of a user who is in very many groups takes 64 KB of them.
"""

MOST_HEADERS: Final = 100
"""Headers of a request."""

MOST_PARAMETERS: Final = 100
"""Parameters of a query."""

MOST_BODY: Final = 64 * 1024
"""Bytes of a request's body."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many may be there, and how long they are waited for.

    Attributes:
        connections: at a time; for one more, the one goes that has been waited for longest.
        arrival: seconds that a request may take to arrive, from its first byte; the first one, from
            the connection's beginning.
        idle: seconds that a connection may stay without a request: longer than the minute at which
            most programs ask.
        write: seconds that a peer may take to read what has been sent last, `PIECE` bytes at most.
    """

    connections: int = 1_000
    arrival: float = 10.0
    idle: float = 75.0
    write: float = 20.0
