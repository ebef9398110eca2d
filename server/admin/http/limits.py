"""The limits of what one peer of the HTTP server may make it do."""

from __future__ import annotations

from typing import Final

MOST_CONNECTIONS: Final = 1_000
"""Connections at a time; for one more, the one goes that has been waited for longest."""

ARRIVAL_SECONDS: Final = 10.0
"""How long a request may take to arrive, from its first byte; the first one, from the connection's
beginning."""

IDLE_SECONDS: Final = 75.0
"""How long a connection may stay without a request. Longer than the minute at which most scrape."""

WRITE_SECONDS: Final = 20.0
"""How long a peer may take to read what has been sent last: `PIECE` bytes at most."""

LINGER_SECONDS: Final = 1.0
"""How long a peer that was refused something may go on sending, before it is cut off."""

PIECE: Final = 64 * 1024
"""Bytes that are sent before the peer is waited for."""

MOST_UNREAD: Final = 128 * 1024
"""Bytes that have been sent and that the peer has not taken; beyond that it is waited for."""

MOST_TARGET: Final = 8 * 1024
"""Bytes of a path with its query."""

MOST_HEAD: Final = 32 * 1024
"""Bytes of a request line and its headers."""

MOST_HEADERS: Final = 100
"""Headers of a request."""

MOST_PARAMETERS: Final = 100
"""Parameters of a query."""

MOST_BODY: Final = 64 * 1024
"""Bytes of a request's body."""
