"""Opens and closes the sockets that a transport listens on."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from config_schema.spec import InetAddr, TransportSpec
from server.transports.stream import StreamConnection, printable_address

if TYPE_CHECKING:
    from server.engine import Engine
    from server.session import Entrance

_BACKLOG: Final = 4096
_FAMILIES: Final = {
    "any": socket.AF_UNSPEC,
    "ipv4": socket.AF_INET,
    "ipv6": socket.AF_INET6,
}


class ListenError(Exception):
    """A transport cannot listen where it should. The text names the transport, where and why."""


class Listener:
    """The listening sockets of one transport. It can be opened again after it was closed.

    Args:
        spec: the transport's description.
        engine: the engine that serves its connections.
        entrance: what it grants to them.
        capacity: bytes that may wait for one client before it is disconnected.
    """

    def __init__(
        self, spec: TransportSpec, engine: Engine, entrance: Entrance, capacity: int
    ) -> None:
        self.spec = spec
        self._engine = engine
        self._entrance = entrance
        self._capacity = capacity
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen.

        Raises:
            ListenError: the address is in use, not there or not allowed.
        """
        address = self.spec.inet_addr
        assert address is not None  # noqa: S101 - every type but amps-unix has one, checked by compile
        try:
            self._server = await self._listen(address)
        except OSError as error:
            reason = _reason(error)
            self._engine.log.emit(
                "11-0002", transport=self.spec.name, address=address, reason=reason
            )
            raise ListenError(
                f"{self.spec.location}: transport {self.spec.name} cannot listen on {address}:"
                f" {reason}"
            ) from None
        for listening in self._server.sockets:
            self._engine.log.emit(
                "11-0001",
                transport=self.spec.name,
                address=printable_address(listening.getsockname()),
                type=self.spec.type,
                protocol=self.spec.protocol,
            )

    async def _listen(self, address: InetAddr) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            lambda: StreamConnection(self._engine, self._entrance, self._capacity),
            address.host,
            address.port,
            family=_FAMILIES[address.family],
            backlog=_BACKLOG,
            reuse_address=self.spec.reuse_addr,
        )

    async def close(self) -> None:
        """Listen no more; connections that were accepted are not touched."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._engine.log.emit(
                "11-0003", transport=self.spec.name, address=str(self.spec.inet_addr)
            )


def _reason(error: OSError) -> str:
    """The system's words for an error; event loops put words of their own around them."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return str(error.strerror or error)
    return os.strerror(error.errno)
