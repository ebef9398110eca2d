"""Figures of a connection that only the owner of its socket can read."""

from __future__ import annotations

from typing import Final, NamedTuple


class SocketStats(NamedTuple):
    """A snapshot of the data in transit on a connection.

    Attributes:
        unsent_bytes: bytes for the peer that its socket has not taken.
        unsent_age_s: seconds for which the oldest of them has been kept.
        unread_bytes: bytes in the socket that have not been read.
        unacked_bytes: bytes in the socket that the peer has not acknowledged.
        is_window_closed: whether the peer has announced that it has no space for more.
    """

    unsent_bytes: int = 0
    unsent_age_s: float = 0.0
    unread_bytes: int = 0
    unacked_bytes: int = 0
    is_window_closed: bool = False


NO_SOCKET_STATS: Final = SocketStats()
