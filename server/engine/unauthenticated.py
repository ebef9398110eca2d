"""Limits of connections before their logon, which no authentication has accepted yet.

They may use little memory, each of them and all together, and have a short time to log on. Their
input is read by a session like that of any client; a session whose client has not logged on has a
`PreLogonConnection`, which ends with the logon or the connection.

Well-behaved clients log on at once. So when there are too many such connections, the oldest one is
disconnected, and no client can prevent others from logging on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
        clock: see above.
        flush: see above.
        unfinished: bytes retained of their incomplete frames.
    """

    def __init__(self, clock: Clock, flush: Callable[[], None]) -> None:
        self.clock = clock
        self.flush = flush
        self.unfinished = 0
        self._visits: dict[PreLogonConnection, None] = {}  # in the order of their arrival

    def admit(self, visit: PreLogonConnection) -> None:
        """Add a connection before its logon; if there are too many, disconnect the oldest."""
        self._visits[visit] = None
        most = max_connections_before_logon()
        if len(self._visits) > most:
            next(iter(self._visits)).reject(
                f"connections that have not logged on are over the limit of {most}"
            )

    def dismiss(self, visit: PreLogonConnection) -> None:
        """Remove a connection that has logged on or ended."""
        self._visits.pop(visit, None)


class PreLogonSession(Protocol):
    """A session whose client has not logged on."""

    def reject(self, problem: str) -> None:
        """Disconnect it.

        Args:
            problem: the limit that it has exceeded.
        """


class PreLogonConnection:
    """One connection before its logon, with its timeout and its memory.

    Args:
        pre_logon: counts all such connections.
        visitor: the connection's session.
    """

    __slots__ = ("_cancel", "_pre_logon", "_unfinished", "_visitor")

    def __init__(self, pre_logon: PreLogonLimits, visitor: PreLogonSession) -> None:
        self._pre_logon = pre_logon
        self._visitor = visitor
        self._unfinished = 0
        self._cancel: Callable[[], None] = _nothing
        self.start_clock()
        pre_logon.admit(self)

    def start_clock(self) -> None:
        """Start the logon timeout."""
        self._cancel()
        self._cancel = self._pre_logon.clock.call_later(LOGON_TIMEOUT_S, self._took_too_long)

    def stop_clock(self) -> None:
        """Stop the logon timeout: the peer has sent its credentials, and waits for a decision."""
        self._cancel()
        self._cancel = _nothing

    def keep(self, size: int) -> None:
        """Record the size of the incomplete frame; disconnect the peer above a limit.

        Args:
            size: in bytes.
        """
        self._pre_logon.unfinished += size - self._unfinished
        self._unfinished = size
        if size > MAX_FRAME_SIZE_BEFORE_LOGON:
            self._visitor.reject(
                f"a frame before the logon is over the limit of {MAX_FRAME_SIZE_BEFORE_LOGON} bytes"
            )
        elif self._pre_logon.unfinished > MAX_UNFINISHED_BYTES_BEFORE_LOGON and size:
            self._visitor.reject(
                "frames that are not complete, of all connections that have not logged on, are over"
                f" the limit of {MAX_UNFINISHED_BYTES_BEFORE_LOGON} bytes"
            )

    def end(self) -> None:
        """End: the client has logged on or disconnected."""
        self._cancel()
        self._cancel = _nothing
        self._pre_logon.dismiss(self)
        self._pre_logon.unfinished -= self._unfinished
        self._unfinished = 0

    def reject(self, problem: str) -> None:
        """Disconnect the peer to protect the others.

        Args:
            problem: the limit that has been reached.
        """
        self._visitor.reject(problem)
        self._pre_logon.flush()

    def _took_too_long(self) -> None:
        self.reject(f"no logon within {LOGON_TIMEOUT_S:.0f} seconds")


def _nothing() -> None:
    """Do nothing: there is no timer to cancel."""
