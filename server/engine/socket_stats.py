"""Figures of a connection that only the owner of its socket can read."""

from __future__ import annotations

from typing import Final, NamedTuple


class SocketStats(NamedTuple):
    """A snapshot of the data in transit on a connection.

    Attributes:
        kept: bytes for the peer that its socket has not taken.
        waits: seconds for which the oldest of them has been kept.
        receiving: bytes in the socket that have not been read.
        sending: bytes in the socket that the peer has not acknowledged.
        window_is_closed: whether the peer has announced that it has no space for more.
    """

    kept: int = 0
    waits: float = 0.0
    receiving: int = 0
    sending: int = 0
    window_is_closed: bool = False


NO_SOCKET_STATS: Final = SocketStats()
