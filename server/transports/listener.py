"""Opens and closes the sockets that a transport listens on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence

from config_schema.spec import TransportSpec
from server.transports.connection import (
    TransportConnection,
    TransportContext,
    printable_address,
)
from server.transports.sockets import BACKLOG, UnixSocketFile, listen_on_inet
from server.transports.tls import TlsError, make_server_context, remake_server_context
from server.transports.tls_acceptor import TlsAcceptor


class TransportError(Exception):
    """A transport that cannot be opened, or does not exist. The text has name, place and reason."""


class Listener:
    """The listening sockets of one transport. It can be opened again after it was closed.

    Args:
        spec: the transport's description.
        transport_context: the context of its connections.
        protocol_factory: makes the protocol of a new connection.
        set_tls_context: takes the TLS context of new connections, where the protocol itself begins
            TLS on a connection; None where all connections begin with TLS.
        alpn_protocols: the application protocols that TLS offers; none for any.

    Attributes:
        spec: the transport's description.
        transport_context: the context of its connections.
    """

    def __init__(
        self,
        spec: TransportSpec,
        transport_context: TransportContext,
        protocol_factory: Callable[[], asyncio.Protocol],
        set_tls_context: Callable[[ssl.SSLContext], None] | None = None,
        alpn_protocols: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.transport_context = transport_context
        self._protocol_factory = protocol_factory
        self._set_tls_context = set_tls_context
        self._alpn_protocols = alpn_protocols
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        self._socket_file = (
            UnixSocketFile(spec.file_name, spec.file_mask) if spec.file_name else None
        )

    @property
    def is_open(self) -> bool:
        """True while it listens."""
        return self.transport_context.is_open

    @property
    def address(self) -> str:
        """The address that it listens on, as configured."""
        return str(self.spec.inet_addr or self.spec.file_name)

    async def open(self) -> None:
        """Open the sockets and listen.

        Raises:
            TransportError: the address is in use, does not exist or is not allowed, or the
                certificate cannot be used.
        """
        try:
            context = None if self.spec.tls is None else make_server_context(self.spec.tls)
        except TlsError as error:
            raise TransportError(
                f"{self.spec.location}: transport {self.spec.name} cannot be secured: {error}"
            ) from None
        self._set_alpn_protocols(context)
        try:
            sockets = self._listen()
        except OSError as error:
            raise TransportError(
                f"{self.spec.location}: transport {self.spec.name} cannot listen on"
                f" {self.address}: {error.strerror or error}"
            ) from None
        self.transport_context.is_open = True
        if context is not None and self._set_tls_context is not None:
            self._set_tls_context(context)
            context = None
        for listening_socket in sockets:
            self._servers.append(await self._serve(listening_socket, context))
            self.transport_context.engine.log.emit(
                "11-0001",
                transport=self.spec.name,
                address=printable_address(listening_socket.getsockname()),
                type=self.spec.type,
                protocol=self.spec.protocol,
            )

    async def close(self) -> None:
        """Stop listening; accepted connections stay open."""
        if not self.is_open:
            return
        self.transport_context.is_open = False
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._socket_file is not None:
            self._socket_file.remove()
        self.transport_context.engine.log.emit(
            "11-0003", transport=self.spec.name, address=self.address
        )

    def reload_certificate(self, _change: str) -> None:
        """Read certificate, key and authorities again, for connections accepted from now on."""
        acceptors = [server for server in self._servers if isinstance(server, TlsAcceptor)]
        set_tls_context = self._set_tls_context
        if self.spec.tls is None or not (acceptors or (set_tls_context and self.is_open)):
            return
        log = self.transport_context.engine.log
        try:
            context, unusable = remake_server_context(self.spec.tls)
        except TlsError as error:
            log.emit("11-0007", transport=self.spec.name, reason=error)
            return
        self._set_alpn_protocols(context)
        for reason in unusable:
            log.emit("11-0015", transport=self.spec.name, reason=reason)
        for acceptor in acceptors:
            acceptor.context = context
        if set_tls_context is not None:
            set_tls_context(context)
        log.emit("11-0006", transport=self.spec.name)

    def disconnect_all(self, reason: str) -> None:
        """Close all connections that were accepted here.

        Args:
            reason: the reason; logged with each session's end.
        """
        for connection in list(self.transport_context.connections):
            connection.disconnect(reason)

    def set_reading_stopped(self, is_stopped: bool) -> None:
        """Stop to read from all clients that were accepted here, or read from them again."""
        for connection in self.transport_context.connections:
            if isinstance(connection, TransportConnection):
                if is_stopped:
                    connection.stop_reading()
                else:
                    connection.restart_reading()

    def on_handshake_failed(self, address: str, reason: str) -> None:
        """See `HandshakeFailureHandler`."""
        self.transport_context.on_handshake_failed(address, reason)

    def on_closed_without_data(self, address: str) -> None:
        """See `HandshakeFailureHandler`."""
        log = self.transport_context.engine.log
        log.emit("11-0009", transport=self.spec.name, address=address)

    def _set_alpn_protocols(self, context: ssl.SSLContext | None) -> None:
        if context is not None and self._alpn_protocols:
            context.set_alpn_protocols(list(self._alpn_protocols))

    def _listen(self) -> list[socket.socket]:
        if self._socket_file is not None:
            return [self._socket_file.listen()]
        address = self.spec.inet_addr
        assert address is not None  # noqa: S101 - the compiler ensures an address or a file
        return listen_on_inet(address, reuse_address=self.spec.reuse_addr)

    async def _serve(
        self, listening_socket: socket.socket, context: ssl.SSLContext | None
    ) -> asyncio.Server | TlsAcceptor:
        loop = asyncio.get_running_loop()
        if self._socket_file is not None:
            return await loop.create_unix_server(
                self._protocol_factory, sock=listening_socket, backlog=BACKLOG
            )
        if context is not None:
            listening_socket.listen(BACKLOG)
            return TlsAcceptor(
                listening_socket,
                context,
                self._protocol_factory,
                self.transport_context.descriptor_reserve,
                self,
            )
        return await loop.create_server(
            self._protocol_factory, sock=listening_socket, backlog=BACKLOG
        )
