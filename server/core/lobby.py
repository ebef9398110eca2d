"""The lobby: connections that have not logged on, whom nobody has said yes to.

They may take little memory, each of them and all together, and stay for a short time. What they
have sent is read by a session as what anybody sends; a session whose client has not logged on has a
`Visit`, which ends with the logon or the connection.

Clients that mean well log on at once. So when there are too many visitors, it is the one who has
been there for longest that has to go, and nobody can keep others from logging on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from server.base.limits import (
    LOGON_SECONDS,
    MOST_FRAME_BEFORE_LOGON,
    MOST_UNFINISHED_BEFORE_LOGON,
    most_before_logon,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.base.clock import Clock


class Lobby:
    """What the connections that have not logged on take.

    Args:
        clock: tells when one has been there for too long.
        flush: called after one has been told so.

    Attributes:
        clock: see above.
        flush: see above.
        unfinished: bytes of frames that are not complete.
    """

    def __init__(self, clock: Clock, flush: Callable[[], None]) -> None:
        self.clock = clock
        self.flush = flush
        self.unfinished = 0
        self._visits: dict[Visit, None] = {}  # in the order in which they came

    def admit(self, visit: Visit) -> None:
        """Let another connection wait for its logon; if there are too many, the first one goes."""
        self._visits[visit] = None
        most = most_before_logon()
        if len(self._visits) > most:
            next(iter(self._visits)).turn_away(
                f"connections that have not logged on are over the limit of {most}"
            )

    def dismiss(self, visit: Visit) -> None:
        """One of them has ended."""
        self._visits.pop(visit, None)


class Visitor(Protocol):
    """Whose connection is in the lobby."""

    def turn_away(self, problem: str) -> None:
        """Disconnect it.

        Args:
            problem: which limit it has gone beyond.
        """


class Visit:
    """One connection in the lobby.

    Args:
        lobby: the lobby.
        visitor: whose connection it is.
    """

    __slots__ = ("_cancel", "_lobby", "_unfinished", "_visitor")

    def __init__(self, lobby: Lobby, visitor: Visitor) -> None:
        self._lobby = lobby
        self._visitor = visitor
        self._unfinished = 0
        self._cancel: Callable[[], None] = _nothing
        self.start_clock()
        lobby.admit(self)

    def start_clock(self) -> None:
        """The peer has to log on in time."""
        self._cancel()
        self._cancel = self._lobby.clock.call_later(LOGON_SECONDS, self._took_too_long)

    def stop_clock(self) -> None:
        """It has shown its credentials: the time that a decision takes is not its own."""
        self._cancel()
        self._cancel = _nothing

    def keep(self, size: int) -> None:
        """Take note of how much is kept of a frame; a connection that goes too far is closed.

        Args:
            size: in bytes.
        """
        self._lobby.unfinished += size - self._unfinished
        self._unfinished = size
        if size > MOST_FRAME_BEFORE_LOGON:
            self._visitor.turn_away(
                f"a frame before the logon is over the limit of {MOST_FRAME_BEFORE_LOGON} bytes"
            )
        elif self._lobby.unfinished > MOST_UNFINISHED_BEFORE_LOGON and size:
            self._visitor.turn_away(
                "frames that are not complete, of all connections that have not logged on, are over"
                f" the limit of {MOST_UNFINISHED_BEFORE_LOGON} bytes"
            )

    def end(self) -> None:
        """The client has logged on, or has gone."""
        self._cancel()
        self._cancel = _nothing
        self._lobby.dismiss(self)
        self._lobby.unfinished -= self._unfinished
        self._unfinished = 0

    def turn_away(self, problem: str) -> None:
        """Disconnect the peer, on behalf of the others.

        Args:
            problem: which limit has been reached.
        """
        self._visitor.turn_away(problem)
        self._lobby.flush()

    def _took_too_long(self) -> None:
        self.turn_away(f"no logon within {LOGON_SECONDS:.0f} seconds")


def _nothing() -> None:
    """There is no timer."""
