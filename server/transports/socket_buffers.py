"""The amounts of data buffered in a socket, read from the kernel for statistics."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import Final

from server.engine.socket_stats import NO_SOCKET_STATS, SocketStats

_INTEGER: Final = struct.Struct("i")
_NO_BYTES: Final = bytes(_INTEGER.size)

_TCP_INFO_SIZE: Final = 232
_PEERS_WINDOW: Final = struct.Struct("I")
_PEERS_WINDOW_AT: Final = 228
"""Offset of tcpi_snd_wnd in `struct tcp_info` (linux/tcp.h); present since Linux 5.4."""


def read_socket_stats(
    connection: socket.socket, unsent_bytes: int, unsent_age_s: float
) -> SocketStats:
    """Read the amounts of data that are buffered for a connection.

    Args:
        connection: a connected socket, TCP or Unix.
        unsent_bytes: bytes that the socket has not accepted yet.
        unsent_age_s: the age of the oldest of them, in seconds.
    """
    descriptor = connection.fileno()
    try:
        (unread_bytes,) = _INTEGER.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, _NO_BYTES))
        (unacked_bytes,) = _INTEGER.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, _NO_BYTES))
        is_closed = connection.family != socket.AF_UNIX and _window_is_closed(connection)
    except OSError:  # closed meanwhile
        return NO_SOCKET_STATS
    return SocketStats(unsent_bytes, unsent_age_s, unread_bytes, unacked_bytes, is_closed)


def _window_is_closed(connection: socket.socket) -> bool:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    return len(info) >= _TCP_INFO_SIZE and not _PEERS_WINDOW.unpack_from(info, _PEERS_WINDOW_AT)[0]
