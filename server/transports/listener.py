"""Opens and closes the sockets that a transport listens on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from config_schema.spec import TlsSpec, TransportSpec
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


@dataclass(frozen=True, slots=True)
class _PreparedSockets:
    """The sockets of a listener that is not open yet.

    Attributes:
        sockets: the sockets; they listen.
        tls_context: the TLS context of new connections; None for none.
        shared_with: the listener that has these sockets as well; None if they are new.
    """

    sockets: list[socket.socket]
    tls_context: ssl.SSLContext | None
    shared_with: Listener | None


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
        set_tls_context: Callable[[ssl.SSLContext, TlsSpec], None] | None = None,
        alpn_protocols: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.transport_context = transport_context
        self._protocol_factory = protocol_factory
        self._set_tls_context = set_tls_context
        self._alpn_protocols = alpn_protocols
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        self._sockets: list[socket.socket] = []
        self._prepared: _PreparedSockets | None = None
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

    def prepare(self, replaced: Listener | None = None) -> None:
        """Read the certificates and bind the sockets, for the next `open`, which cannot fail then.

        Args:
            replaced: an open listener that is closed then. If it listens on the same address, its
                sockets are shared until then, so that no connection is refused meanwhile.

        Raises:
            TransportError: see `open`.
        """
        context = None if self.spec.tls is None else self.make_tls_context(self.spec)
        shared = replaced if replaced and replaced.listens_like(self.spec) else None
        try:
            sockets = self._listen() if shared is None else shared.share_sockets()
        except OSError as error:
            raise TransportError(
                f"{self.spec.location}: transport {self.spec.name} cannot listen on"
                f" {self.address}: {error.strerror or error}"
            ) from None
        self._prepared = _PreparedSockets(sockets, context, shared)

    def discard_prepared(self) -> None:
        """Release what `prepare` has prepared, if it is not opened."""
        if self._prepared is not None:
            for opened in self._prepared.sockets:
                opened.close()
            if self._socket_file is not None and self._prepared.shared_with is None:
                self._socket_file.remove()
            self._prepared = None

    async def open(self) -> None:
        """Open the sockets and listen.

        Raises:
            TransportError: the address is in use, does not exist or is not allowed, or the
                certificate cannot be used.
        """
        if self._prepared is None:
            self.prepare()
        prepared, self._prepared = self._prepared, None
        assert prepared is not None  # noqa: S101 - prepare() has set it
        context, shared = prepared.tls_context, prepared.shared_with
        if shared is not None:
            self._socket_file = shared.release_socket_file()
        self.transport_context.is_open = True
        if context is not None and self._set_tls_context is not None and self.spec.tls is not None:
            self._set_tls_context(context, self.spec.tls)
            context = None
        self._sockets = prepared.sockets
        for listening_socket in self._sockets:
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
        self._sockets = []
        if self._socket_file is not None:
            self._socket_file.remove()
        self.transport_context.engine.log.emit(
            "11-0003", transport=self.spec.name, address=self.address
        )

    def make_tls_context(self, spec: TransportSpec) -> ssl.SSLContext:
        """Return the TLS context of a description of this transport.

        Raises:
            TransportError: a file cannot be read or used, or OpenSSL does not know a setting.
        """
        assert spec.tls is not None  # noqa: S101 - the caller knows
        try:
            context = make_server_context(spec.tls)
        except TlsError as error:
            raise TransportError(
                f"{spec.location}: transport {spec.name} cannot be secured: {error}"
            ) from None
        self._set_alpn_protocols(context)
        return context

    def reload_certificate(self, _change: str) -> None:
        """Read certificate, key and authorities again, for connections accepted from now on."""
        if self.spec.tls is None or not self.is_open:
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
        self.use_tls_context(context)

    def use_tls_context(self, context: ssl.SSLContext) -> None:
        """Secure connections accepted from now on with another context, if it is open."""
        if self.spec.tls is None or not self.is_open:
            return
        for server in self._servers:
            if isinstance(server, TlsAcceptor):
                server.context = context
        if self._set_tls_context is not None:
            self._set_tls_context(context, self.spec.tls)
        self.transport_context.engine.log.emit("11-0006", transport=self.spec.name)

    def listens_like(self, spec: TransportSpec) -> bool:
        """Return whether it is open, on the address of a description, and in the same way."""
        own = self.spec
        return (
            self.is_open
            and str(own.inet_addr) == str(spec.inet_addr)
            and (own.file_name, own.file_mask) == (spec.file_name, spec.file_mask)
            and own.reuse_addr == spec.reuse_addr
        )

    def share_sockets(self) -> list[socket.socket]:
        """Return duplicates of its sockets, which listen on when it is closed."""
        return [listening_socket.dup() for listening_socket in self._sockets]

    def release_socket_file(self) -> UnixSocketFile | None:
        """Return the file of its Unix socket, which stays when it is closed; None for none."""
        socket_file, self._socket_file = self._socket_file, None
        return socket_file

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

    def _set_alpn_protocols(self, context: ssl.SSLContext) -> None:
        if self._alpn_protocols:
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
