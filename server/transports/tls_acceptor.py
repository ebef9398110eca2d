"""Accepts the connections of an encrypted transport.

The event loop would report a connection only after its handshake, which the peer can delay. Until
then the connection holds a descriptor that is not counted. So connections are accepted here, those
over the limit are closed at once, and the others are handed to the event loop for the handshake
when their first bytes have arrived: these show whether the peer speaks TLS at all, or closes the
connection without sending anything.

A failed handshake is reported nowhere else, so the owner of the acceptor is notified of the reason.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from server.transports.connection import HANDSHAKE_TIMEOUT_S, printable_address
from server.transports.tls import describe_tls_error

if TYPE_CHECKING:
    from server.transports.descriptor_reserve import DescriptorReserve

_BATCH_SIZE: Final = 100
"""Connections accepted before the event loop runs other callbacks."""

_PAUSE_SECONDS: Final = 1.0
"""Pause before accepting again after the system ran out of resources, as in asyncio."""

_PEEK_SIZE: Final = 16
"""Bytes that are peeked at to recognize the peer's protocol."""

_MIN_SECONDS: Final = 0.1
"""Minimum time left for the handshake, even if its first bytes have arrived late."""

_TOO_LATE: Final = f"it did not end within {HANDSHAKE_TIMEOUT_S:.0f} seconds"

_WITHOUT_TLS: Final = {
    0x00: "the client speaks AMPS without TLS: its address has to begin with tcps",
    0x78: "the client speaks without TLS: its address has to begin with tcps",
    **dict.fromkeys(
        b"CDGHOPT", "an HTTP request without TLS: its address has to begin with https or wss"
    ),
}
"""Peers that do not speak TLS, recognized by their first byte."""

_HTTP: Final = b"CDGHOPT"
_HTTPS_HINT: Final = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"This port speaks TLS: the address has to begin with https or wss.\n"
)


class HandshakeFailureHandler(Protocol):
    """Receives reports of connections that fail before they are established."""

    def on_handshake_failed(self, address: str, reason: str) -> None:
        """Report a failed handshake.

        Args:
            address: the peer's address.
            reason: the reason, as text for operators.
        """

    def on_closed_without_data(self, address: str) -> None:
        """Report that a peer has closed its connection before it has sent anything."""


class TlsAcceptor:
    """Accepts from one listening socket, which it owns.

    Args:
        listening_socket: the socket.
        context: the TLS context of new connections.
        protocol_factory: makes the protocol of a new connection.
        descriptor_reserve: decides whether there is room for another connection.
        failure_handler: receives reports of failures.

    Attributes:
        context: the TLS context of new connections; may be replaced, for those accepted after that.
    """

    def __init__(
        self,
        listening_socket: socket.socket,
        context: ssl.SSLContext,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        descriptor_reserve: DescriptorReserve,
        failure_handler: HandshakeFailureHandler,
    ) -> None:
        self.context = context
        self._listening_socket: Final = listening_socket
        self._protocol_factory: Final = protocol_factory
        self._descriptor_reserve: Final = descriptor_reserve
        self._failure_handler: Final = failure_handler
        self._loop: Final = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._resume_timer: asyncio.TimerHandle | None = None
        listening_socket.setblocking(False)
        self._start_accepting()

    def close(self) -> None:
        """Stop accepting; handshakes in progress continue."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        self._loop.remove_reader(self._listening_socket)
        self._listening_socket.close()

    def _start_accepting(self) -> None:
        self._resume_timer = None
        self._loop.add_reader(self._listening_socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_BATCH_SIZE):
            try:
                accepted, address = self._listening_socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor, no memory
                self._loop.remove_reader(self._listening_socket)
                self._resume_timer = self._loop.call_later(_PAUSE_SECONDS, self._start_accepting)
                return
            if not self._descriptor_reserve.has_room(accepted.fileno()):
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._establish(accepted, printable_address(address)))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _establish(self, accepted: socket.socket, address: str) -> None:
        """Execute the TLS handshake of a connection, or report the reason of its failure."""
        deadline_s = self._loop.time() + HANDSHAKE_TIMEOUT_S
        try:
            async with asyncio.timeout_at(deadline_s):
                first_bytes = await self._peek(accepted)
        except (OSError, TimeoutError) as error:
            accepted.close()
            if isinstance(error, TimeoutError):
                self._failure_handler.on_handshake_failed(address, _TOO_LATE)
            return
        if not first_bytes:
            accepted.close()
            self._failure_handler.on_closed_without_data(address)
        elif (mismatch := _WITHOUT_TLS.get(first_bytes[0])) is not None:
            _refuse(accepted, first_bytes)
            self._failure_handler.on_handshake_failed(address, mismatch)
        else:
            await self._start_tls(accepted, address, deadline_s)

    async def _peek(self, accepted: socket.socket) -> bytes:
        """Return the first bytes of a connection without consuming them; empty at its end."""
        while True:
            try:
                return accepted.recv(_PEEK_SIZE, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                has_data = asyncio.Event()
                self._loop.add_reader(accepted, has_data.set)
                try:
                    await has_data.wait()
                finally:
                    self._loop.remove_reader(accepted)

    async def _start_tls(self, accepted: socket.socket, address: str, deadline_s: float) -> None:
        remaining_s = max(deadline_s - self._loop.time(), _MIN_SECONDS)
        try:
            await self._loop.connect_accepted_socket(
                self._protocol_factory,
                accepted,
                ssl=self.context,
                ssl_handshake_timeout=remaining_s,
            )
        except ssl.SSLError as error:
            self._failure_handler.on_handshake_failed(address, describe_tls_error(error))
        except ConnectionResetError:
            self._failure_handler.on_handshake_failed(
                address, "the client closed the connection during the handshake"
            )
        except (ConnectionAbortedError, TimeoutError):
            self._failure_handler.on_handshake_failed(address, _TOO_LATE)
        except OSError as error:
            self._failure_handler.on_handshake_failed(address, error.strerror or str(error))


def _refuse(accepted: socket.socket, first_bytes: bytes) -> None:
    """Close a connection without TLS; answer in HTTP if the peer speaks that."""
    with suppress(OSError):
        if first_bytes[0] in _HTTP:
            accepted.send(_HTTPS_HINT)
        accepted.shutdown(socket.SHUT_WR)
        accepted.recv(1 << 16)  # closing with unread bytes would reset the connection
    accepted.close()
