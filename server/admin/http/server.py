"""Accepts connections, and limits their number."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from server.admin.http.connection import HttpConnection, RequestHandler
from server.admin.http.limits import SEND_CHUNK_SIZE, HttpLimits
from server.admin.http.send_budget import SendBudget
from server.transports.descriptor_reserve import DescriptorReserve
from server.transports.tls_acceptor import TlsAcceptor
from server.util.log_protocol import ServerLog
from server.util.rate_limited_log import RateLimitedLog, RunningLoopTimer, host_of

_LOG_INTERVAL_S: Final = 10.0
_UNAVAILABLE_RESPONSE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


class HttpServer:
    """Serves HTTP on listening sockets.

    Args:
        handler: answers requests.
        headers: headers that all answers have, unless they set the same header themselves.
        descriptors: decides whether another connection may use a descriptor.
        log: the log.
        limits: the maximum number of connections, and their timeouts.

    Attributes:
        handler: answers requests.
        headers: headers that all answers have, unless they set the same header themselves.
        log: the log.
        rate_limited_log: the rate-limited log of failures that peers cause.
        limits: the maximum number of connections, and their timeouts.
        send_budget: the bodies that are being sent.
    """

    def __init__(
        self,
        handler: RequestHandler,
        headers: Sequence[tuple[str, str]],
        descriptors: DescriptorReserve,
        log: ServerLog,
        limits: HttpLimits | None = None,
    ) -> None:
        self.handler = handler
        self.headers = headers
        self.log = log
        self.rate_limited_log = RateLimitedLog(log, RunningLoopTimer())
        self._descriptors = descriptors
        self.limits = limits or HttpLimits()
        self.send_budget = SendBudget()
        self._acceptors: list[asyncio.Server | TlsAcceptor] = []
        self._connections: OrderedDict[HttpConnection, asyncio.Task[None]] = OrderedDict()
        self._limit_log = RateLimitedLog(
            log, RunningLoopTimer(), burst=1, window_s=_LOG_INTERVAL_S, summary=None
        )

    async def serve(self, sockets: Sequence[socket.socket], context: ssl.SSLContext | None) -> None:
        """Accept connections from now on.

        Args:
            sockets: the listening sockets; the server owns them from now on.
            context: the TLS context; None without TLS.
        """
        loop = asyncio.get_running_loop()
        for listening_socket in sockets:
            if context is None:
                self._acceptors.append(
                    await loop.create_server(self._make_protocol, sock=listening_socket)
                )
            else:
                self._acceptors.append(
                    TlsAcceptor(
                        listening_socket, context, self._make_protocol, self._descriptors, self
                    )
                )

    def set_tls_context(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections."""
        for acceptor in self._acceptors:
            if isinstance(acceptor, TlsAcceptor):
                acceptor.context = context

    async def close(self) -> None:
        """Stop accepting, and end all connections, also those with requests under way."""
        for acceptor in self._acceptors:
            acceptor.close()
        tasks = list(self._connections.values())
        for connection in list(self._connections):
            self._abort_connection(connection)
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_handshake_failed(self, address: str, reason: str) -> None:
        """See `HandshakeFailureHandler`."""
        self.rate_limited_log.emit("19-0005", host_of(address), address=address, reason=reason)

    def on_closed_without_data(self, address: str) -> None:
        """See `HandshakeFailureHandler`; browsers open connections in advance, and send nothing."""

    def record_progress(self, connection: HttpConnection) -> None:
        """Note that the peer of a connection has made progress."""
        if connection in self._connections:
            self._connections.move_to_end(connection)

    def _make_protocol(self) -> asyncio.Protocol:
        reader = asyncio.StreamReader(limit=SEND_CHUNK_SIZE)
        return asyncio.StreamReaderProtocol(reader, self._on_connection)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        has_room = accepted is not None and self._descriptors.has_room(accepted.fileno())
        if not has_room or not self._evict_idle_connection():
            writer.write(_UNAVAILABLE_RESPONSE)
            writer.close()
            return
        connection = HttpConnection(reader, writer, self)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections[connection] = task
        task.add_done_callback(lambda _: self._connections.pop(connection))

    def _evict_idle_connection(self) -> bool:
        """Close the connection that has waited longest for its peer, if there are too many.

        Return whether there is room for another one.
        """
        if len(self._connections) < self.limits.max_connections:
            return True
        self._limit_log.emit("19-0010", most=self.limits.max_connections)
        oldest = next(
            (connection for connection in self._connections if connection.is_waiting_for_peer), None
        )
        if oldest is None:
            return False
        self._abort_connection(oldest)
        return True

    def _abort_connection(self, connection: HttpConnection) -> None:
        connection.abort()
        self._connections[connection].cancel()
