"""The base of all client connections, of any protocol.

These shells make no decisions of the protocol. They handle backpressure (bytes that the socket does
not accept wait in the transport, or in the writer of an I/O thread, up to a limit), the loss of the
peer, and the timeout of a closing connection if the peer does not read any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Final, cast

from amperage.wire.frame_slices import SharedFrames
from server.engine.connection_context import ConnectionHandle
from server.engine.scheduler import LONG_READ_SIZE
from server.engine.socket_stats import NO_SOCKET_STATS, SocketStats
from server.security.certificates import user_of
from server.topics.subscriptions.limits.slow_clients import ClientBacklog, ClientPool
from server.transports.io_threads import SocketWriter
from server.transports.socket_buffers import read_socket_stats
from server.util.rate_limited_log import host_of

if TYPE_CHECKING:
    from amperage.wire.framing import FrameSource
    from server.engine.connection_context import ConnectionContext
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.replication.transport.connection import AcceptedReplicationConnection
    from server.transports.descriptor_reserve import DescriptorReserve
    from server.transports.io_threads import IoThreads
    from server.util.rate_limited_log import RateLimitedLog

_LINGER_SECONDS: Final = 5.0
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Timeout for the handshake of TLS or HTTP."""

_MAPPED_IPV4: Final = "::ffff:"


@dataclass(slots=True, eq=False)
class TransportContext:
    """The context of one transport's connections: its engine, its settings and the connections.

    Attributes:
        engine: the engine that serves them.
        connection_context: the properties that the transport gives to its connections.
        client_pool: the clients that share limits for their output buffers.
        descriptor_reserve: decides whether there is room for another connection.
        rate_limited_log: the rate-limited log of refusals that peers cause.
        find_io_threads: returns the threads that write to sockets; None for the event loop.
        is_open: whether connections are accepted.
        connections: the open connections.
    """

    engine: Engine
    connection_context: ConnectionContext
    client_pool: ClientPool
    descriptor_reserve: DescriptorReserve
    rate_limited_log: RateLimitedLog
    find_io_threads: Callable[[], IoThreads | None]
    is_open: bool = False
    connections: set[TransportConnection | AcceptedReplicationConnection] = field(
        default_factory=set
    )

    def on_handshake_failed(self, address: str, reason: str) -> None:
        """See `HandshakeFailureHandler`."""
        transport = self.connection_context.transport
        self.rate_limited_log.emit(
            "11-0008",
            f"{host_of(address)} at transport {transport}",
            transport=transport,
            address=address,
            reason=reason,
        )


class TransportConnection(asyncio.Protocol):
    """One accepted connection; subclasses interpret its bytes.

    Args:
        transport_context: the context of its transport.

    Attributes:
        may_use_io_threads: whether I/O threads may write to its socket.
    """

    may_use_io_threads: ClassVar[bool] = True

    def __init__(self, transport_context: TransportContext) -> None:
        self._transport_context = transport_context
        self._engine = transport_context.engine
        self._connection_context = transport_context.connection_context
        self._transport: asyncio.Transport | None = None
        self._writer: SocketWriter | None = None  # None while the event loop writes
        self._session: Session | None = None
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._is_reading_stopped = False
        self._backlog = ClientBacklog(
            transport_context.client_pool,
            transport_context.engine.clock,
            transport_context.engine.log,
            self._client_name,
            self._write,
            self._disconnect_slow_client,
            self._notify_watchers,
            self._on_caught_up,
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless its transport is disabled or descriptors run out."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are by duck typing only
        accepted_socket = self._transport.get_extra_info("socket")
        if (
            not self._transport_context.is_open
            or not self._transport_context.descriptor_reserve.has_room(accepted_socket.fileno())
        ):
            self._transport.abort()
            return
        self._transport_context.connections.add(self)
        self._connection_context = with_certificate_user(
            self._transport_context.connection_context, self._transport
        )
        self._writer = self._make_writer(self._transport)
        self._start_serving()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the cause does not matter
        """End the session; the peer is gone."""
        self._transport_context.connections.discard(self)
        self._backlog.close()
        self._close_writer()
        self._stop_handshake_timeout()
        if self._session is not None:
            self._session.input.on_connection_lost()
            self._session = None
            self._engine.flush()

    def eof_received(self) -> bool:
        """Close the connection; return whether it stays open until output that waits is sent."""
        if self._writer is None or not self._has_unsent_bytes:
            return False
        self._close()
        return True

    def pause_writing(self) -> None:
        """Stop writing: the transport's buffer is full."""
        self._backlog.pause_writing()

    def resume_writing(self) -> None:
        """Resume writing: the transport's buffer has drained."""
        self._backlog.resume_writing()

    def disconnect(self, reason: str) -> None:
        """Close the connection, after all its output has been sent to the peer.

        Args:
            reason: the reason; logged if there is a session.
        """
        if self._session is not None:
            self._session.close(reason)
        else:
            self._close()

    def stop_reading(self) -> None:
        """Read nothing from the peer until `restart_reading`; commands that were read go on."""
        self._is_reading_stopped = True
        self._pause_reading()

    def restart_reading(self) -> None:
        """Read from the peer again after `stop_reading`."""
        self._is_reading_stopped = False
        if self._session is None or not self._session.input.is_waiting:
            self._resume_reading()

    def _make_writer(self, transport: asyncio.Transport) -> SocketWriter | None:
        """Return the writer of a connection that I/O threads write to; None if the loop does."""
        io_threads = self._transport_context.find_io_threads()
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        if io_threads is None or is_encrypted or not self.may_use_io_threads:
            return None
        backlog = self._backlog
        return SocketWriter(
            io_threads,
            transport,
            backlog.pause_writing,
            backlog.resume_writing,
            backlog.take_back,
            self._on_sent,
        )

    def _close_writer(self) -> None:
        """Let the writer send what it has, if the peer reads it in time."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            if writer.unsent_bytes:
                asyncio.get_running_loop().call_later(_LINGER_SECONDS, writer.abort)

    def _start_serving(self) -> None:
        """Begin to serve the connection, before the peer has sent anything."""
        raise NotImplementedError

    def _start_handshake_timeout(self) -> None:
        """Start the timeout of the handshake that has begun, unless it is running."""
        if self._handshake_timer is None:
            self._handshake_timer = asyncio.get_running_loop().call_later(
                HANDSHAKE_TIMEOUT_S, self._on_handshake_timeout
            )

    def _on_handshake_timeout(self) -> None:
        """Close the connection: the handshake has timed out."""
        self.disconnect("connection closed")

    def _stop_handshake_timeout(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def _begin_session(
        self,
        connection_context: ConnectionContext,
        sink: Callable[[bytes], None],
        reader: FrameSource | None = None,
        *,
        takes_parts: bool = False,
        shared_sink: Callable[[SharedFrames], None] | None = None,
    ) -> None:
        backlog = self._backlog
        connection = ConnectionHandle(
            self._peer_address(),
            sink,
            self._close_after_flush,
            lambda: backlog.is_behind,
            backlog.charge_memory,
            self._pause_reading,
            self._resume_reading,
            self._read_socket_stats,
            lambda: backlog.stats,
            takes_parts,
            shared_sink,
        )
        self._session = self._engine.begin_session(connection_context, connection, reader)

    def _feed(self, session: Session, data: bytes) -> None:
        """Execute the bytes received, and flush the output of all clients that they affect."""
        scheduler = self._engine.scheduler
        pending_count = len(self._engine.outboxes.pending_outboxes)
        session.input.feed(data)
        if len(data) >= LONG_READ_SIZE or session.input.is_waiting:
            scheduler.flush_while_busy()
        else:
            scheduler.flush(pending_count)

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_reading_stopped:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _read_socket_stats(self) -> SocketStats:
        """Return the buffered amounts of the connection, for statistics."""
        transport, backlog = self._transport, self._backlog
        if transport is None or transport.is_closing():
            return NO_SOCKET_STATS
        unsent_bytes = backlog.memory_used + backlog.disk_used + transport.get_write_buffer_size()
        oldest_wait_s = backlog.oldest_wait_s
        if self._writer is not None and (full_since_s := self._writer.full_since_s) is not None:
            unsent_bytes += self._writer.unsent_bytes
            oldest_wait_s = max(oldest_wait_s, time.monotonic() - full_since_s)
        return read_socket_stats(transport.get_extra_info("socket"), unsent_bytes, oldest_wait_s)

    def _peer_address(self) -> str:
        """Return the peer's address, for the log."""
        assert self._transport is not None  # noqa: S101 - called while connected
        return printable_address(self._transport.get_extra_info("peername"))

    def _send(self, data: bytes | SharedFrames) -> None:
        """Send bytes to the peer, now or when its socket accepts them."""
        self._backlog.send(data)

    def _write(self, data: bytes | SharedFrames | memoryview) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._writer is None:
            transport.write(bytes(data) if isinstance(data, SharedFrames) else data)
        else:
            self._writer.write(data)

    def _client_name(self) -> str:
        return "" if self._session is None else self._session.client_name

    def _notify_watchers(self, event: str) -> None:
        if self._session is not None:
            self._engine.hooks.notify_client_watchers(event, self._session, {})

    def _disconnect_slow_client(self) -> None:
        if self._session is not None:
            self._session.close("slow client")
        self._abort()

    def _close_after_flush(self) -> None:
        """Close the connection; the session has ended."""
        self._flush()
        self._close()

    def _flush(self) -> None:
        """Send all frames in the session's output buffer."""
        if self._session is not None:
            self._session.outbox.flush()

    def _on_sent(self) -> None:
        """Continue what waits: the writer has no more bytes."""
        if not self._backlog.is_behind:
            self._on_caught_up()

    def _on_caught_up(self) -> None:
        """Continue what waits until the socket has taken all output."""
        if self._is_closing and self._transport is not None and not self._has_unsent_bytes:
            self._transport.close()

    @property
    def _has_unsent_bytes(self) -> bool:
        """True if bytes are kept for the client that neither the loop nor the socket has taken."""
        return self._backlog.has_pending_bytes or bool(self._writer and self._writer.unsent_bytes)

    def _close(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._is_closing:
            return
        self._is_closing = True
        if not self._has_unsent_bytes:
            self._transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """Abort the connection if it is not closed within the linger time."""
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._abort)

    def _abort(self) -> None:
        """Close the connection at once, without the bytes that wait."""
        if self._writer is not None:
            self._writer.abort()
        if self._transport is not None:
            self._transport.abort()


def with_certificate_user(
    connection_context: ConnectionContext, transport: asyncio.BaseTransport
) -> ConnectionContext:
    """Return a context with the user of the connection's certificate, if it has presented one."""
    certificate = transport.get_extra_info("peercert")  # already verified, or empty
    return (
        replace(connection_context, certificate_user=user_of(certificate))
        if certificate
        else connection_context
    )


def printable_address(address: object) -> str:
    """Return a socket address as text, as in `10.0.0.1:9007` or `[::1]:9007`."""
    if isinstance(address, tuple):
        host, port = str(address[0]).removeprefix(_MAPPED_IPV4), address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address or "local socket")
