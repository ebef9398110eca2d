"""Listening sockets, bound as configured.

A Unix socket is a file that outlives the process that made it. If its server is gone, a connection
attempt is answered with "connection refused", and the file is replaced; if the attempt succeeds,
the file belongs to a running server and is left alone.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from config_schema.spec import InetAddr

BACKLOG: Final = 4096
"""Connections that may wait to be accepted."""

_FAMILIES: Final = {
    "any": socket.AF_UNSPEC,
    "ipv4": socket.AF_INET,
    "ipv6": socket.AF_INET6,
}
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
_MAXIMUM_PROBE_SECONDS: Final = 1.0


def listen_on_inet(address: InetAddr, *, reuse_address: bool) -> list[socket.socket]:
    """Listen on an internet address.

    A port alone is listened on with one socket for IPv6 and IPv4, if the host has IPv6; `[::]`
    is IPv6 only, 0.0.0.0 is IPv4 only (AMPS User Guide, Using IPv6 For Connections).

    Args:
        address: the address.
        reuse_address: bind to an address even if closed connections linger on it (ReuseAddr).

    Returns:
        The sockets: one for each address of a host name. If a host without IPv6 resolves the name
        to an IPv6 address as well, such as localhost, the other addresses are enough.

    Raises:
        OSError: the address is in use, does not exist or is not allowed.
    """
    if address.host is None:
        return [_listen_on_every_address(address.port, reuse_address=reuse_address)]
    resolved = socket.getaddrinfo(
        address.host, address.port, _FAMILIES[address.family], socket.SOCK_STREAM
    )
    with ExitStack() as undo:
        sockets = []
        for family, _, _, _, socket_address in resolved:
            try:
                sockets.append(_listen(family, socket_address, reuse_address=reuse_address))
            except OSError as error:
                is_needed = family != socket.AF_INET6 or all(
                    entry[0] == family for entry in resolved
                )
                if is_needed or error.errno not in _NO_IPV6:
                    raise
            else:
                undo.callback(sockets[-1].close)
        undo.pop_all()
    return sockets


def _listen_on_every_address(port: int, *, reuse_address: bool) -> socket.socket:
    try:
        return _listen(socket.AF_INET6, ("::", port), reuse_address=reuse_address, dual_stack=True)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _listen(socket.AF_INET, ("", port), reuse_address=reuse_address)


def _listen(
    family: int, socket_address: object, *, reuse_address: bool, dual_stack: bool = False
) -> socket.socket:
    def prepare(opened: socket.socket) -> None:
        if reuse_address:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual_stack)
        opened.bind(socket_address)  # type: ignore[arg-type]  # from getaddrinfo for this family

    return _open_socket(family, prepare)


def _open_socket(family: int, prepare: Callable[[socket.socket], None]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        prepare(opened)
        opened.listen(BACKLOG)
    except BaseException:
        opened.close()
        raise
    return opened


class UnixSocketFile:
    """The file of a listening Unix socket (AMPS User Guide, Unix Domain Socket Transports).

    Args:
        path: its path.
        mode: its permissions; None for those that the umask leaves.
    """

    def __init__(self, path: str, mode: int | None) -> None:
        self._path = Path(path)
        self._mode = mode
        self._identity: tuple[int, int] | None = None

    def listen(self) -> socket.socket:
        """Create the file and listen.

        Raises:
            OSError: it cannot be created, or belongs to a running server or is no socket.
        """
        self._remove_stale()
        opened = _open_socket(socket.AF_UNIX, self._bind)
        self._identity = self._read_identity()
        return opened

    def remove(self) -> None:
        """Remove the file, unless it has been replaced by another."""
        if self._identity is not None and self._read_identity() == self._identity:
            self._path.unlink(missing_ok=True)
        self._identity = None

    def _bind(self, opened: socket.socket) -> None:
        # No client can connect before listen(), so the permissions apply from the beginning.
        opened.bind(str(self._path))
        if self._mode is not None:
            self._path.chmod(self._mode)

    def _remove_stale(self) -> None:
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise OSError(errno.EEXIST, "there is a file of this name that is no socket")
        if self._is_in_use():
            raise OSError(errno.EADDRINUSE, "another server listens there")
        self._path.unlink(missing_ok=True)

    def _is_in_use(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_MAXIMUM_PROBE_SECONDS)
            try:
                probe.connect(str(self._path))
            except ConnectionRefusedError:
                return False
            except FileNotFoundError:
                return False
            except (TimeoutError, BlockingIOError):  # running, and its backlog is full
                return True
            return True

    def _read_identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino
