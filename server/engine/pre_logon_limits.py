"""Limits of connections before their logon, which no authentication has accepted yet.

They may use little memory, each of them and all together, and have a short time to log on. Their
input is read by a session like that of any client; a session whose client has not logged on has a
`PreLogonConnection`, which ends with the logon or the connection.

Well-behaved clients log on at once. So when there are too many such connections, the oldest one is
disconnected, and no client can prevent others from logging on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.util.clock import no_timer
from server.util.limits import (
    LOGON_TIMEOUT_S,
    MAX_FRAME_SIZE_BEFORE_LOGON,
    MAX_UNFINISHED_BYTES_BEFORE_LOGON,
    max_connections_before_logon,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.util.clock import Clock


class PreLogonLimits:
    """Counts the connections that have not logged on, and the memory that they use.

    Args:
        clock: has the timers of their logon timeouts.
        flush: flushes outboxes; called after a connection has been sent the reason of its end.

    Attributes:
        clock: has the timers of their logon timeouts.
        flush: flushes outboxes.
        unfinished_bytes: bytes retained of their incomplete frames.
    """

    def __init__(self, clock: Clock, flush: Callable[[], None]) -> None:
        self.clock = clock
        self.flush = flush
        self.unfinished_bytes = 0
        self._connections: dict[PreLogonConnection, None] = {}  # in the order of their arrival

    def add_connection(self, connection: PreLogonConnection) -> None:
        """Add a connection before its logon; if there are too many, disconnect the oldest."""
        self._connections[connection] = None
        limit = max_connections_before_logon()
        if len(self._connections) > limit:
            next(iter(self._connections)).disconnect_for_limit(
                f"connections that have not logged on are over the limit of {limit}"
            )

    def remove_connection(self, connection: PreLogonConnection) -> None:
        """Remove a connection that has logged on or ended."""
        self._connections.pop(connection, None)


class PreLogonConnection:
    """One connection before its logon, with its timeout and its memory.

    Args:
        limits: counts all such connections.
        disconnect: disconnects the peer; takes the limit that it has exceeded.
    """

    __slots__ = ("_cancel_timeout", "_disconnect", "_limits", "_unfinished_bytes")

    def __init__(self, limits: PreLogonLimits, disconnect: Callable[[str], None]) -> None:
        self._limits = limits
        self._disconnect = disconnect
        self._unfinished_bytes = 0
        self._cancel_timeout: Callable[[], None] = no_timer
        self.start_timeout()
        limits.add_connection(self)

    def start_timeout(self) -> None:
        """Start the logon timeout."""
        self._cancel_timeout()
        self._cancel_timeout = self._limits.clock.call_later(LOGON_TIMEOUT_S, self._on_timeout)

    def stop_timeout(self) -> None:
        """Stop the logon timeout: the peer has sent its credentials, and waits for a decision."""
        self._cancel_timeout()
        self._cancel_timeout = no_timer

    def update_unfinished_bytes(self, size: int) -> None:
        """Record the size of the incomplete frame; disconnect the peer above a limit.

        Args:
            size: in bytes.
        """
        self._limits.unfinished_bytes += size - self._unfinished_bytes
        self._unfinished_bytes = size
        if size > MAX_FRAME_SIZE_BEFORE_LOGON:
            self._disconnect(
                f"a frame before the logon is over the limit of {MAX_FRAME_SIZE_BEFORE_LOGON} bytes"
            )
        elif self._limits.unfinished_bytes > MAX_UNFINISHED_BYTES_BEFORE_LOGON and size:
            self._disconnect(
                "frames that are not complete, of all connections that have not logged on, are over"
                f" the limit of {MAX_UNFINISHED_BYTES_BEFORE_LOGON} bytes"
            )

    def end(self) -> None:
        """End: the client has logged on or disconnected."""
        self._cancel_timeout()
        self._cancel_timeout = no_timer
        self._limits.remove_connection(self)
        self._limits.unfinished_bytes -= self._unfinished_bytes
        self._unfinished_bytes = 0

    def disconnect_for_limit(self, problem: str) -> None:
        """Disconnect the peer to protect the others.

        Args:
            problem: the limit that has been reached.
        """
        self._disconnect(problem)
        self._limits.flush()

    def _on_timeout(self) -> None:
        self.disconnect_for_limit(f"no logon within {LOGON_TIMEOUT_S:.0f} seconds")
