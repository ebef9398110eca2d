"""What can be seen of a connection only by whoever has its socket."""

from __future__ import annotations

from typing import Final, NamedTuple


class Readings(NamedTuple):
    """How much is on its way, at one moment.

    Attributes:
        kept: bytes for the peer that its socket has not taken.
        waits: seconds for which the oldest of them has been kept.
        receiving: bytes in the socket that have not been read.
        sending: bytes in the socket that the peer has not acknowledged.
        window_is_closed: whether the peer says that it has no room for more.
    """

    kept: int = 0
    waits: float = 0.0
    receiving: int = 0
    sending: int = 0
    window_is_closed: bool = False


NOTHING: Final = Readings()
