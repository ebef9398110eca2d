"""Accepts the connections of an encrypted transport.

The event loop would hand over a connection only after its handshake, which its peer can draw out.
Until then it holds a descriptor that nobody has counted. So connections are accepted here, those
that are one too many are closed at once, and the others are handed to the event loop for the
handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from server.transports.connection import HANDSHAKE_SECONDS
from server.transports.descriptors import DescriptorReserve

_AT_ONCE: Final = 100
"""Connections that are accepted before others have their turn."""

_PAUSE_SECONDS: Final = 1.0
"""Until accepting is tried again where the system had no room for it, as asyncio does."""


class TlsAcceptor:
    """Accepts from one listening socket, which it owns.

    Args:
        listening: the socket.
        context: how connections are secured.
        connect: makes the protocol of a new connection.
        descriptors: says whether there is room for another connection.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        connect: Callable[[], asyncio.Protocol],
        descriptors: DescriptorReserve,
    ) -> None:
        self._listening: Final = listening
        self._context: Final = context
        self._connect: Final = connect
        self._descriptors: Final = descriptors
        self._loop: Final = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more; handshakes that have begun go on."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor, no memory
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self._resume)
                return
            if not self._descriptors.has_room(accepted.fileno()):
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._shake_hands(accepted))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        """Have a connection secured; why that fails is told by the context."""
        with suppress(OSError, asyncio.TimeoutError):
            await self._loop.connect_accepted_socket(
                self._connect,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
