"""Connections of PostgreSQL clients: an asyncio shell around the protocol.

    bytes -> PostgresProtocol -> event -> answered here, or by a StatementRunner on a worker thread

The protocol belongs to the event loop's thread. A worker thread runs one statement of the
connection at a time, posts its output to the loop, and in the end the function that answers the
event. Output is limited: a client that does not read has its statement suspended, so that it
occupies no thread.

A session of the engine stands for the client, for limits before the logon, authentication,
entitlement, statistics and disconnection; it gets no frames. Its client name is the application's
name and a number, since several clients of an application are no copies of one publisher.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import FrameReader
from server.engine.pre_logon_limits import PreLogonConnection
from server.sql.client_log import MAX_LOGGED, end_statement, log_limited, note_input, printable
from server.sql.copy_input import CopySource
from server.sql.engine_thread import Post, make_post
from server.sql.live.channels import NotificationQueue
from server.sql.live.statements import LiveStatements
from server.sql.postgres import messages
from server.sql.postgres.errors import FATAL, Diagnostic
from server.sql.postgres.events import (
    BindRequested,
    CopyFailed,
    CopyReceived,
    Event,
    ExecuteRequested,
    ParseRequested,
    PasswordGiven,
    ProtocolFailed,
    Reply,
    SaslContinued,
    SaslStarted,
    StartupRequested,
    StatementRequested,
    SyncRequested,
    Terminated,
    TlsRequested,
    statement_text,
)
from server.sql.postgres.frontend_messages import CancelRequest
from server.sql.postgres.messages import TransactionStatus
from server.sql.postgres.parameters import query_values
from server.sql.postgres.portals import Portal
from server.sql.postgres.protocol import PostgresProtocol
from server.sql.postgres_logon import PostgresLogon
from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import NotAtOnceError, SqlError
from server.sql.query.session import SqlSession
from server.sql.services import CancelKey
from server.sql.sqlstate import ADMIN_SHUTDOWN, TOO_MANY_CONNECTIONS
from server.sql.statement_executor import StatementExecutor
from server.sql.statement_meter import StatementMeter
from server.sql.statement_output import NO_FAILURE, OutputWindow, StatementFailure, failure_of
from server.sql.statement_runner import (
    BoundStatement,
    StatementEvent,
    StatementPlan,
    StatementRunner,
)
from server.sql.tables.catalogue import SessionTables
from server.transports.connection import (
    HANDSHAKE_TIMEOUT_S,
    TransportConnection,
    TransportContext,
    with_certificate_user,
)
from server.transports.tls import describe_tls_error

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.sql.live.feed import LiveWait
    from server.sql.sql_transport import SqlTransport
    from server.sql.statement_output import Output, StatementOutput

_SLICE_S: Final = 0.000_5
"""The time after which other clients are served."""


class PostgresConnection(TransportConnection):
    """One accepted connection of a PostgreSQL client.

    Args:
        transport_context: the context of its transport.
        sql: the transport's properties.
    """

    may_use_io_threads = False  # it may begin TLS at any time

    def __init__(self, transport_context: TransportContext, sql: SqlTransport) -> None:
        super().__init__(transport_context)
        self._sql: Final = sql
        self._services: Final = sql.services
        self._statistics: Final = sql.statistics
        self._protocol = PostgresProtocol[StatementPlan, BoundStatement](self._release_portal)
        self._runner: StatementRunner | None = None
        self._tables: SessionTables | None = None
        self._live: LiveStatements | None = None
        self._notifications: NotificationQueue | None = None
        self._logon: PostgresLogon | None = None
        self._cancel_key: CancelKey | None = None
        self._output: StatementOutput | None = None  # of the statement in progress
        self._is_running = False  # a worker thread runs it, or is about to
        self._wait: LiveWait | CopySource | None = None  # while no thread runs it
        self._cancellation: Cancellation | None = None
        self._window: Final = OutputWindow()
        self._arrived_bytes = 0  # posted output that has arrived here, and has not been read
        self._is_upgrading = False
        self._handshake: asyncio.Task[None] | None = None  # of TLS
        self._is_lost = False
        self._is_reading_paused = False
        self._gathered: list[bytes] | None = None  # output for one write
        self._meter: Final = StatementMeter(
            self._engine.sql_counters, self._engine.scheduler.elapsed, sql.services.slow_query_s
        )
        self._post: Post = lambda _: None

    # ---- the connection

    def _start_serving(self) -> None:
        self._post = make_post()
        self._begin_session(self._connection_context, lambda _: None, FrameReader())
        session = self._session
        assert session is not None  # noqa: S101 - it has begun
        if session.pre_logon_connection is not None:
            session.pre_logon_connection.end()
            session.pre_logon_connection = PreLogonConnection(
                self._engine.pre_logon_limits, self._refuse_before_logon
            )
        self._logon = PostgresLogon(
            self._sql, self._protocol, session, self._write_out, self._open_session, self._advance
        )
        self._note_security()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; execute their messages, unless a statement is being executed."""
        session = self._session
        if session is None or not session.is_open:
            return
        session.input.bytes_in += len(data)
        note_input(session)
        self._protocol.feed(data)
        if session.pre_logon_connection is not None:
            session.pre_logon_connection.update_unfinished_bytes(self._protocol.buffered_size)
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `TransportConnection`."""
        self._is_lost = True
        if self._logon is not None:
            self._logon.close()
        self._end_statements()
        super().connection_lost(exc)

    def _on_caught_up(self) -> None:
        """See `TransportConnection`."""
        super()._on_caught_up()
        self._note_reading()

    def _close_after_flush(self) -> None:
        """Report the end to the client, unless it has asked for it, and close the connection."""
        session = self._session
        if not self._protocol.is_closed and session is not None:
            text = "terminating connection due to administrator command"
            diagnostic = Diagnostic(ADMIN_SHUTDOWN, text, FATAL, session.close_reason)
            self._write_out(messages.error_response(diagnostic))
        self._send_gathered()
        self._end_statements()
        self._close()

    def _end_statements(self) -> None:
        """Cancel the statement in progress; end all results when no thread uses them any more."""
        if self._cancel_key is not None:
            self._services.remove_cancel_key(self._cancel_key)
            self._cancel_key = None
        if self._tables is not None:
            self._tables.cancel()
        if self._cancellation is not None and self._output is not None:
            self._cancellation.cancel("the connection was closed")
        if self._wait is not None:
            self._wait.end()
            self._wait = None
        if self._live is not None:
            self._live.close()
        self._is_lost = True
        if not self._is_running:
            self._release_all()

    def _release_all(self) -> None:
        output, self._output = self._output, None
        self._meter.abandon()
        runner, self._runner = self._runner, None
        self._protocol.close()
        if runner is not None:
            self._services.workers.submit(partial(_release, output, runner))

    def _release_portal(self, portal: Portal[StatementPlan, BoundStatement]) -> None:
        cursor = portal.cursor.cursor
        if cursor is not None and not cursor.rows.is_finished:
            self._services.workers.submit(cursor.rows.close)

    def _refuse_before_logon(self, problem: str) -> None:
        session = self._session
        if session is None or not session.is_open:
            return
        session.log.emit("18-0002", client=session.client_name, problem=problem)
        self._write_out(self._protocol.end(Diagnostic(TOO_MANY_CONNECTIONS, problem)))
        session.close("auth")

    # ---- events

    def _advance(self) -> None:
        """Handle events until one of them has to wait, or others have waited long enough."""
        if isinstance(self._wait, CopySource):
            self._receive_copy(self._wait)
        elapsed = self._engine.scheduler.elapsed
        end_s = elapsed() + _SLICE_S
        with self._gathering():
            while not (self._is_running or self._is_upgrading or self._is_lost):
                if self._output is not None or (self._logon is not None and self._logon.is_pending):
                    break
                event = self._protocol.next_event()
                if event is None:
                    break
                self._handle(event)
                if elapsed() >= end_s:
                    self._post(self._advance)
                    break
        self._adjust_reading()

    def _adjust_reading(self) -> None:
        is_copying = isinstance(self._wait, CopySource)  # so it waits for the rest of a message
        wants_pause = self._protocol.wants_pause and not (self._is_lost or is_copying)
        if wants_pause != self._is_reading_paused:
            self._is_reading_paused = wants_pause
            if wants_pause:
                self._pause_reading()
            else:
                self._resume_reading()

    def _handle(self, event: Event[StatementPlan, BoundStatement]) -> None:
        session = self._session
        if session is None:
            return
        match event:
            case Reply(data):
                self._write_out(data)
            case ProtocolFailed(diagnostic, data):
                self._write_out(data)
                session.log.emit("18-0001", client=session.client_name, problem=diagnostic.message)
                session.close("unknown command")
            case TlsRequested():
                self._upgrade_to_tls()
            case CancelRequest(process_id, secret):
                self._services.cancel(CancelKey(process_id, secret))
                session.close("connection closed")
            case StartupRequested() | PasswordGiven() | SaslStarted() | SaslContinued():
                if self._logon is not None:
                    self._logon.handle(event)
            case Terminated():
                session.close("connection closed")
            case SyncRequested():
                if self._runner is not None:
                    self._write_out(self._protocol.ready())
            case BindRequested(_, statement, parameters):
                bound = BoundStatement(statement.plan, query_values(parameters))
                self._write_out(self._protocol.complete_bind(bound))
            case _:
                self._run(event)

    def _upgrade_to_tls(self) -> None:
        context = self._sql.tls.context
        if context is None:
            self._write_out(self._protocol.refuse_tls())
            return
        self._write_out(self._protocol.accept_tls())
        self._is_upgrading = True
        self._handshake = asyncio.get_running_loop().create_task(self._start_tls(context))

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101 - called while connected
        address = self._peer_address()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            reason = describe_tls_error(error) if isinstance(error, ssl.SSLError) else str(error)
            self._transport_context.on_handshake_failed(address, reason)
            transport.abort()
            return
        if secured is None or self._is_lost:
            return
        self._transport = secured
        self._connection_context = with_certificate_user(self._connection_context, secured)
        if self._session is not None:
            self._session.connection_context = self._connection_context
        self._note_security()
        self._is_upgrading = False
        self._advance()

    def _note_security(self) -> None:
        """Tell the logon whether the connection is secured."""
        logon, transport = self._logon, self._transport
        if logon is not None and transport is not None:
            logon.is_secure = bool(transport.get_extra_info("sslcontext"))
            logon.channel_binding = self._sql.tls.channel_binding if logon.is_secure else b""

    def _open_session(self, scram_final: bytes | None) -> None:
        """Prepare for statements: the client has logged on."""
        engine, session, logon = self._engine, self._session, self._logon
        assert session is not None  # noqa: S101 - it has logged on
        assert logon is not None  # noqa: S101 - it has logged on
        settings = SqlSession(
            session.user or logon.user, engine.settings.instance_name, session.number
        )
        for name, value in logon.parameters.items():
            try:
                settings.set(name, value)
            except SqlError as error:
                log_limited(
                    self._transport_context.rate_limited_log,
                    "16-0033",
                    session,
                    setting=printable(name, MAX_LOGGED),
                    reason=printable(error.message, MAX_LOGGED),
                )
        limits = self._services.limits
        self._tables = SessionTables(
            self._services.tables,
            session,
            self._post,
            limits.max_memory_bytes,
            self._statistics,
        )
        self._notifications = NotificationQueue(
            engine.clock,
            self._may_notify,
            self._write_out,
            session.charge_memory,
            self._backlog.disconnect_slow_client,
        )
        self._live = LiveStatements(self._tables, session, self._post, self._notifications.add)
        executor = StatementExecutor(
            self._services.query_engine,
            session,
            self._tables,
            settings,
            self._live,
            self._post,
            partial(self._post_warning, session),
        )
        self._runner = StatementRunner(executor, settings, self._protocol)
        self._cancel_key = CancelKey(session.number, secrets.randbits(32))
        self._services.add_cancel_key(self._cancel_key, self._cancel_statement)
        self._write_out(self._protocol.accept(*self._cancel_key, settings.reported(), scram_final))

    def _post_warning(self, session: Session, text: str) -> None:
        query = printable(text, MAX_LOGGED)
        log = self._transport_context.rate_limited_log
        self._post(partial(log_limited, log, "16-0032", session, query=query))

    # ---- statements

    def _cancel_statement(self) -> None:
        if self._cancellation is not None and self._output is not None:
            self._cancellation.cancel()
            if self._wait is not None:
                self._wait.wake()

    def _may_notify(self) -> bool:
        """Return whether no statement and no transaction is in progress."""
        is_idle = self._protocol.transaction_status is TransactionStatus.IDLE
        return self._output is None and is_idle and not self._is_lost

    def _run(self, event: StatementEvent) -> None:
        """Answer an event here, if that takes no time, or on a worker thread."""
        runner, tables, session = self._runner, self._tables, self._session
        if runner is None or tables is None or session is None:
            return
        session.input.messages_in += 1
        tables.allow()
        cancellation = self._cancellation = Cancellation()
        cancellation.on_cancel(tables.cancel)
        if isinstance(event, ParseRequested):
            session.command = "sql parse"
        elif isinstance(event, StatementRequested | ExecuteRequested):
            session.command = "sql query"
        self._meter.begin(statement_text(event))
        if not self._backlog.is_behind and runner.begin_at_once(event):
            try:
                if self._produce_at_once(runner.answer(event, cancellation)):
                    return
            finally:
                runner.end_at_once()
        self._output = runner.answer(event, cancellation)
        self._is_running = True
        self._submit()

    def _produce_at_once(self, output: StatementOutput) -> bool:
        """Answer an event on this thread; return whether nothing has had to wait."""
        parts: list[Output] = []
        answer: Callable[[], bytes] | None = None
        failure = NO_FAILURE
        try:
            while True:
                parts.append(next(output))
        except StopIteration as end:
            answer = end.value
        except NotAtOnceError:
            return False
        except Exception as error:
            failure = failure_of(error)
        for data, rows, _, _ in parts:
            self._write_out(data, rows)
            self._meter.add_output(len(data), rows)
        self._complete(answer, failure)
        return True

    def _produce(self) -> None:
        """Produce output on a worker thread, until the end or until the client has to read."""
        output = self._output
        assert output is not None  # noqa: S101 - it has been set before
        try:
            while True:
                data, rows, wait, awaited = next(output)
                if awaited is not None:  # a thread continues when it is done
                    awaited.add_done_callback(lambda _: self._submit())
                    return
                if wait is not None:
                    self._post(partial(self._wait_for, wait))
                    return
                may_continue = self._window.add(len(data))
                self._post(partial(self._receive_output, data, rows))
                if not may_continue:
                    self._post(self._suspend)
                    return
        except StopIteration as end:
            self._post_answer(end.value)
        except Exception as error:
            self._post_answer(None, failure_of(error))

    def _submit(self) -> None:
        """Begin or continue the statement on a worker thread; from any thread."""
        user = "" if self._logon is None else self._logon.user
        self._services.workers.submit(self._produce, user)

    def _post_answer(
        self, answer: Callable[[], bytes] | None, failure: StatementFailure = NO_FAILURE
    ) -> None:
        try:
            self._post(partial(self._finish, answer, failure))
        except RuntimeError:
            return  # the instance is stopping

    def _receive_output(self, data: bytes, rows: int) -> None:
        if not self._is_lost:
            self._write_out(data, rows)
            self._meter.add_output(len(data), rows)
        self._arrived_bytes += len(data)
        self._note_reading()

    def _suspend(self) -> None:
        """Note that no thread runs the statement any more, until the client has read."""
        self._is_running = False
        self._meter.suspend()
        if self._is_lost:
            self._release_all()
        else:
            self._note_reading()

    def _receive_copy(self, source: CopySource) -> None:
        """Pass the next data of a COPY to the statement that waits for them."""
        match self._protocol.next_copy_event():
            case CopyReceived(data):
                source.add(data)
            case CopyFailed(reason):
                source.fail(reason)
            case ProtocolFailed() | Terminated() as end:
                self._handle(end)

    def _wait_for(self, wait: LiveWait | CopySource) -> None:
        """Suspend the statement until there are changes to send, or data of the client."""
        self._is_running = False
        self._meter.suspend()
        if self._is_lost:
            self._release_all()
            return
        self._wait = wait
        wait.begin(self._resume)
        self._note_reading()
        if self._cancellation is not None and self._cancellation.is_cancelled:
            wait.wake()
        if isinstance(wait, CopySource):
            self._advance()

    def _resume(self) -> None:
        """Continue with a statement that has waited for changes."""
        self._wait = None
        if self._output is not None and not self._is_running and not self._is_lost:
            self._is_running = True
            self._meter.resume()
            self._submit()

    def _note_reading(self) -> None:
        """Count the output as read, if the client has read it; resume a suspended statement."""
        if self._backlog.is_behind and not self._is_lost:
            return
        size, self._arrived_bytes = self._arrived_bytes, 0
        self._window.remove(size)
        if self._wait is None:
            self._resume()

    def _finish(self, answer: Callable[[], bytes] | None, failure: StatementFailure) -> None:
        """Answer the event of a statement that has ended on a worker thread."""
        self._is_running = False
        self._output = None
        if self._is_lost or self._session is None or self._runner is None:
            self._release_all()
            return
        with self._gathering():
            self._complete(answer, failure)
            if self._notifications is not None:
                self._notifications.flush()
            self._advance()

    def _complete(self, answer: Callable[[], bytes] | None, failure: StatementFailure) -> None:
        """Answer the event of a statement that has ended."""
        session, runner = self._session, self._runner
        if session is None or runner is None:
            return
        diagnostic, defect = failure
        if diagnostic is None:
            end_statement(session, self._meter)
        else:
            end_statement(session, self._meter, diagnostic.sqlstate, diagnostic.message, defect)
            runner.on_error()
            self._write_out(self._protocol.fail(diagnostic))
        if answer is not None:
            self._write_out(answer())

    @contextmanager
    def _gathering(self) -> Iterator[None]:
        """Send all output of a block of code in one write."""
        if self._gathered is not None:
            yield
            return
        self._gathered = []
        try:
            yield
        finally:
            self._send_gathered()
            self._gathered = None

    def _send_gathered(self) -> None:
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered.clear()
            self._send(data)

    def _write_out(self, data: bytes, rows: int = 0) -> None:
        """Send bytes, and count them."""
        session = self._session
        if session is not None:
            session.outbox.bytes_out += len(data)
            session.outbox.messages_out += rows
        if self._gathered is None:
            self._send(data)
        elif data:
            self._gathered.append(data)


def _release(output: StatementOutput | None, runner: StatementRunner) -> None:
    """End the results of a client that is gone."""
    if output is not None:
        output.close()
    runner.close()
