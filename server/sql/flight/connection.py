"""The connections of clients of Flight SQL: bytes between the client and the gRPC server.

    client <-TCP or TLS-> FlightConnection <-unix socket-> gRPC server (gateway.py)

The connection interprets no bytes. It gives gRPC what it lacks: the limits of connections that have
not logged on, the TLS of the transport, its addresses, and sessions of the engine for its clients,
which live as long as it does. Neither side is read while the other one does not take its bytes.

All of it belongs to the engine's thread, except for `find_client`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from amperage.wire.framing import FrameReader
from server.engine.connection_context import ConnectionHandle
from server.engine.pre_logon_limits import PreLogonConnection
from server.sql.engine_thread import Post, make_post
from server.sql.flight.client import FlightClient
from server.sql.flight.logon import CallCredentials, with_token_user
from server.sql.logon import LogonAttempt, exchange_refused
from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_AUTHORIZATION, QUERY_CANCELED, TOO_MANY_CONNECTIONS
from server.sql.tables.statistics_table import NO_STATISTICS, StatisticsAccess
from server.transports.connection import TransportConnection, TransportContext

if TYPE_CHECKING:
    from server.engine.connection_context import ConnectionContext
    from server.engine.session import Session
    from server.security.authentication import Admission
    from server.sql.flight.gateway import FlightGateway
    from server.sql.services import SqlServices

MAX_CLIENTS: Final = 100
"""Clients of a connection that have credentials of their own."""

MAX_FAILED_LOGONS: Final = 3
"""Logons of a connection that may fail; after that it is closed."""

_CLOSE_DELAY_S: Final = 1.0
"""Time for the answer of the last failed logon."""


@dataclass(frozen=True, slots=True)
class FlightTransport:
    """The properties of a transport that speaks Flight SQL.

    Attributes:
        services: shared by all SQL connections.
        gateway: the gRPC server.
        asks_for_passwords: whether clients have to give credentials.
        statistics: decides about access to statistics.
    """

    services: SqlServices
    gateway: FlightGateway
    asks_for_passwords: bool
    statistics: StatisticsAccess = NO_STATISTICS


class _Logon:
    """A logon, and the calls that wait for it."""

    def __init__(self, session: Session) -> None:
        self.session: Final = session
        self.waiting: list[Future[FlightClient]] = []
        self.attempt: LogonAttempt | None = None

    def answer(self, result: FlightClient | SqlError) -> None:
        for future in self.waiting:
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(result, SqlError):
                future.set_exception(result)
            else:
                future.set_result(result)


class FlightConnection(TransportConnection):
    """One accepted connection of clients of Flight SQL.

    Args:
        transport_context: the context of its transport.
        flight: the transport's properties.

    Attributes:
        post: schedules a call on the engine's thread.
    """

    may_use_io_threads = False  # its backpressure is that of the gRPC server

    def __init__(self, transport_context: TransportContext, flight: FlightTransport) -> None:
        super().__init__(transport_context)
        self.post: Post = make_post()
        self._flight: Final = flight
        self._clients: dict[bytes, FlightClient] = {}
        self._logons: dict[bytes, _Logon] = {}
        self._pre_logon: PreLogonConnection | None = None
        self._server: _ServerSide | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._name = ""
        self._bytes_in = 0
        self._early_bytes: list[bytes] = []  # that came before the gRPC server was connected
        self._failed_logons = 0
        self._is_lost = False

    @property
    def transport_name(self) -> str:
        """The name of its transport."""
        return self._connection_context.transport

    # ---- bytes

    def _start_serving(self) -> None:
        self._pause_reading()
        self._pre_logon = PreLogonConnection(
            self._engine.pre_logon_limits, self._refuse_before_logon
        )
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Connect to the gRPC server, and pass bytes from then on."""
        server = _ServerSide(self)
        try:
            self._name = await self._flight.gateway.connect(self, lambda: server)
        except OSError as error:
            self._engine.log.emit("16-0038", transport=self.transport_name, reason=error)
            self._close()
            return
        if self._is_lost:
            server.close()
            self._flight.gateway.remove(self._name)
            return
        self._server = server
        for data in self._early_bytes:
            server.write(data)
        self._early_bytes.clear()
        self._resume_reading()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the gRPC server."""
        self._bytes_in += len(data)
        if self._pre_logon is not None:
            self._pre_logon.update_unfinished_bytes(self._bytes_in)
        for client in self._clients.values():
            client.session.input.bytes_in += len(data)
            break
        if self._server is None:
            self._early_bytes.append(data)  # reading may begin after it was paused
        else:
            self._server.write(data)

    def eof_received(self) -> bool:
        """Close the connection: a client of gRPC that sends no more reads no more."""
        return False

    def receive_from_server(self, data: bytes) -> None:
        """Pass bytes of the gRPC server to the client."""
        for client in self._clients.values():
            client.session.outbox.bytes_out += len(data)
            break
        self._write(data)

    def pause_writing(self) -> None:
        """Stop reading from the gRPC server: the client does not read."""
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        """Read from the gRPC server again."""
        if self._server is not None:
            self._server.resume_reading()

    def pause_client(self) -> None:
        """Stop reading from the client: the gRPC server does not read."""
        self._pause_reading()

    def resume_client(self) -> None:
        """Read from the client again."""
        self._resume_reading()

    def _client_name(self) -> str:
        for client in self._clients.values():
            return client.session.client_name
        return ""

    def report_defect(self, defect: Exception) -> None:
        """Log an error that is a defect of the server."""
        self._engine.log.emit("16-0034", client=self._client_name(), error=f"{defect!r}")

    # ---- the end

    def disconnect(self, reason: str) -> None:
        """See `TransportConnection`."""
        for client in list(self._clients.values()):
            client.session.close(reason)
        self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `TransportConnection`."""
        self._is_lost = True
        self._end_pre_logon()
        for key, logon in list(self._logons.items()):
            if logon.attempt is not None:
                logon.attempt.abandon()
                self._end_logon(key, SqlError(QUERY_CANCELED, "the connection was closed"))
        for client in self._clients.values():
            client.close(self._flight.gateway.schedule)
            client.session.input.on_connection_lost()
        self._clients.clear()
        if self._server is not None:
            self._server.close()
            self._flight.gateway.remove(self._name)
        super().connection_lost(exc)
        self._engine.flush()

    def on_server_lost(self) -> None:
        """Close the connection: the gRPC server has closed its end."""
        self._close()

    def _refuse_before_logon(self, problem: str) -> None:
        self._engine.log.emit("18-0002", client=self._peer_address(), problem=problem)
        self._end_pre_logon()
        if self._transport is not None:
            self._transport.abort()

    def _end_pre_logon(self) -> None:
        if self._pre_logon is not None:
            self._pre_logon.end()
            self._pre_logon = None

    # ---- clients

    def find_client(self, credentials: CallCredentials) -> FlightClient | None:
        """Return the client that has logged on with credentials; from any thread."""
        client = self._clients.get(credentials.key)
        return None if client is None or client.is_closed else client

    def log_on(
        self, credentials: CallCredentials, application: str, future: Future[FlightClient]
    ) -> None:
        """Log a client on, unless it has been.

        Args:
            credentials: its credentials.
            application: the name of the application.
            future: gets the client, or the error.
        """
        logon = self._logons.get(credentials.key)
        if logon is not None:
            logon.waiting.append(future)
            return
        client = self.find_client(credentials)
        try:
            if client is None:
                self._begin_logon(credentials, application, future)
                return
        except SqlError as error:
            future.set_exception(error)
        else:
            future.set_result(client)

    def end_client(self, client: FlightClient) -> None:
        """End the session of a client that asks for it."""
        for key, one in list(self._clients.items()):
            if one is client:
                del self._clients[key]
                client.close(self._flight.gateway.schedule)
                client.session.end_after_disconnect()
        self._engine.flush()

    def _begin_logon(
        self, credentials: CallCredentials, application: str, future: Future[FlightClient]
    ) -> None:
        if self._is_lost or self._transport is None:
            raise SqlError(QUERY_CANCELED, "the connection was closed")
        if len(self._clients) + len(self._logons) >= MAX_CLIENTS:
            self._end_idle_client()
        context = self._connection_context
        if credentials.token:
            grant = self._flight.gateway.tokens.find(credentials.token, context.transport)
            if grant is None:
                raise SqlError(INVALID_AUTHORIZATION, "the token is not valid, or has expired")
            context = with_token_user(context, grant.user)
        elif self._needs_credentials and not credentials.key:
            raise SqlError(INVALID_AUTHORIZATION, "a user name and a password are required")
        session = self._make_session(credentials.key, context)
        logon = self._logons[credentials.key] = _Logon(session)
        logon.waiting.append(future)
        logon.attempt = LogonAttempt(
            session,
            credentials.user,
            credentials.password,
            application,
            partial(self._end_logon, credentials.key),
        )
        logon.attempt.advance()

    @property
    def _needs_credentials(self) -> bool:
        return self._flight.asks_for_passwords and not self._connection_context.certificate_user

    def _make_session(self, key: bytes, context: ConnectionContext) -> Session:
        backlog = self._backlog
        connection = ConnectionHandle(
            self._peer_address(),
            lambda _: None,
            partial(self._on_session_closed, key),
            charge_memory=backlog.charge_memory,
            read_socket_stats=self._read_socket_stats,
            read_backlog_stats=lambda: backlog.stats,
        )
        return self._engine.begin_session(context, connection, FrameReader())

    def _end_logon(self, key: bytes, decision: Admission | SqlError) -> None:
        logon = self._logons.pop(key)
        session = logon.session
        if not isinstance(decision, SqlError) and decision.challenge is not None:
            decision = exchange_refused()
        if isinstance(decision, SqlError):
            logon.answer(decision)
            session.close("auth")
            self._count_failed_logon()
            return
        self._end_pre_logon()
        client = self._clients[key] = FlightClient(
            session,
            self._flight.services,
            self._flight.statistics,
            self.post,
            self._transport_context.rate_limited_log,
        )
        logon.answer(client)

    def _count_failed_logon(self) -> None:
        self._failed_logons += 1
        if self._failed_logons >= MAX_FAILED_LOGONS and not self._is_lost:
            asyncio.get_running_loop().call_later(_CLOSE_DELAY_S, self._close)

    def _end_idle_client(self) -> None:
        """End the client that was idle longest, to make room for another one.

        Raises:
            SqlError: all of them have statements in progress.
        """
        idle = [client for client in self._clients.values() if not client.runs]
        if not idle:
            raise SqlError(TOO_MANY_CONNECTIONS, f"a connection has at most {MAX_CLIENTS} clients")
        self.end_client(min(idle, key=lambda client: client.session.last_input_steady_s))

    def _on_session_closed(self, key: bytes) -> None:
        """Close the connection, if the session of one of its clients is closed by the server."""
        client = self._clients.pop(key, None)
        if client is not None:
            client.close(self._flight.gateway.schedule)
            self._close()


class _ServerSide(asyncio.Protocol):
    """The connection to the gRPC server."""

    def __init__(self, connection: FlightConnection) -> None:
        self._connection: Final = connection
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the client."""
        self._connection.receive_from_server(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the cause does not matter
        """See `asyncio.Protocol`."""
        self._transport = None
        self._connection.on_server_lost()

    def pause_writing(self) -> None:
        """Stop reading from the client."""
        self._connection.pause_client()

    def resume_writing(self) -> None:
        """Read from the client again."""
        self._connection.resume_client()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None:
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()
