"""Carries bytes between a stream socket and a session.

The shell decides nothing. It owns the three things that only it can see: that the peer reads too
slowly (what the socket does not take waits in the transport, and is limited), that it is gone, and
that a connection being closed must not linger for a peer that reads no more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from server.engine import Engine
    from server.session import Entrance, Session

_LINGER_SECONDS: Final = 5.0


class StreamConnection(asyncio.Protocol):
    """One accepted connection.

    Args:
        engine: the engine that serves it.
        entrance: what the transport that accepted it grants.
        capacity: bytes that may wait for the peer before it is disconnected as a slow client.
    """

    def __init__(self, engine: Engine, entrance: Entrance, capacity: int) -> None:
        self._engine = engine
        self._entrance = entrance
        self._capacity = capacity
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a session."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are by duck typing only
        address = printable_address(transport.get_extra_info("peername"))
        self._session = self._engine.connect(self._entrance, address, self._write, self._hang_up)

    def data_received(self, data: bytes) -> None:
        """Let the session obey, and everybody concerned hear of it."""
        if self._session is not None:
            self._session.feed(data)
            self._engine.flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        """End the session; the peer is gone."""
        if self._session is not None:
            self._session.lost()
            self._session = None
            self._engine.flush()

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._capacity and self._session is not None:
            self._engine.log.emit("70-0004", client=self._session.client_name)
            self._session.close("slow client")
            transport.abort()

    def _hang_up(self) -> None:
        transport = self._transport
        if transport is None:
            return
        self._engine.flush()
        transport.close()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, transport.abort)


def printable_address(address: object) -> str:
    """A socket address as people write it."""
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "local socket")
