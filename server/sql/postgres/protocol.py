"""The server's side of one connection of PostgreSQL's protocol, without I/O.

The caller feeds bytes and pulls events. Most events need an answer, a method of the protocol that
returns the bytes to write; until the caller has given it, there is no next event, so that a client
may send a thousand statements at once and each finds the state that the one before has left:

    protocol.feed(data)
    while (event := protocol.next_event()) is not None:
        match event:
            case StatementRequested(text): …   # results, then write(protocol.ready())

States, and the events of each:

    initial         TlsRequested, CancelRequest, StartupRequested
    authentication  PasswordGiven, SaslStarted, SaslContinued
    open            StatementRequested; ParseRequested, BindRequested, DescribeStatementRequested,
                    DescribePortalRequested, ExecuteRequested, SyncRequested; Terminated
    closed          none

While a statement is unanswered that copies data of the client, `next_copy_event` returns these. In
any state, `Reply` carries bytes that the caller writes without more ado, and `ProtocolFailed`
the last ones of a connection that broke the protocol. The protocol object keeps prepared statements
and portals by their names. An error in the extended protocol makes it skip all messages up to the
next Sync. Source: PostgreSQL 16 documentation, 55.2 (message flow);
src/backend/tcop/postgres.c, PostgresMain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from struct import Struct
from typing import Final, Generic

from server.security.scram import SCRAM, SCRAM_PLUS
from server.sql.postgres import frontend_messages as frontend
from server.sql.postgres import messages
from server.sql.postgres.errors import FATAL, Diagnostic, FormatError
from server.sql.postgres.events import (
    BindRequested,
    CopyEvent,
    CopyFailed,
    CopyReceived,
    DescribePortalRequested,
    DescribeStatementRequested,
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
)
from server.sql.postgres.frontend_messages import CancelRequest, ProtocolViolationError
from server.sql.postgres.messages import TEXT_FORMAT, TransactionStatus
from server.sql.postgres.portals import (
    CursorT,
    NamedStatements,
    PlanT,
    Portal,
    PreparedStatement,
    StatementFailedError,
)
from server.sql.postgres.startup import read_startup
from server.sql.postgres.types import ResultColumn
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED

MAX_MESSAGE_SIZE: Final = 64 * 1024 * 1024
MAX_COPY_MESSAGES: Final = 1000
"""Messages with data of a COPY that are taken at once."""
MAX_READ_AHEAD: Final = 256 * 1024
"""Bytes of later messages that are buffered while the caller works on one."""

_LENGTH: Final = Struct(">I")


class ProtocolMisuseError(RuntimeError):
    """The caller gave an answer that does not fit the event."""


_EXTENDED: Final = (
    ParseRequested,
    BindRequested,
    DescribeStatementRequested,
    DescribePortalRequested,
    ExecuteRequested,
)
_AUTHENTICATION: Final = (StartupRequested, PasswordGiven, SaslStarted, SaslContinued)


class _State(Enum):
    """See the picture above."""

    INITIAL = auto()
    AUTHENTICATION = auto()
    OPEN = auto()
    CLOSED = auto()


class PostgresProtocol(Generic[PlanT, CursorT]):
    """The state of one connection.

    Args:
        release: called for each portal that ends, so that the caller can release its cursor.
        max_message_size: the largest message accepted after authentication, in bytes.

    Attributes:
        transaction_status: the state that ReadyForQuery reports. The caller sets it; an error while
            it is ACTIVE makes it FAILED, also an error that the protocol object finds by itself.
    """

    def __init__(
        self,
        release: Callable[[Portal[PlanT, CursorT]], None] = lambda _: None,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        self.transaction_status = TransactionStatus.IDLE
        self._max_message_size = max_message_size
        self._buffer = bytearray()
        self._state = _State.INITIAL
        self._unanswered: Event[PlanT, CursorT] | None = None
        self._deferred: StartupRequested | None = None  # comes after the Reply that precedes it
        self._encryption_requests: set[type] = set()  # each may come once
        self._stuffed = False  # bytes came between the request for TLS and its acceptance
        self._mechanisms: tuple[str, ...] = ()  # of SASL; empty if a password is expected
        self._sasl_started = False
        self._skips_to_sync = False
        self._copy_end: frontend.CopyDone | frontend.CopyFail | frontend.Terminate | None = None
        # The result formats, and the size of the parameters, of the latest BindRequested.
        self._bind: tuple[tuple[int, ...], int] = ((), 0)
        self._named: Final = NamedStatements[PlanT, CursorT](release, max_message_size)

    # Input

    def feed(self, data: bytes) -> None:
        """Receive bytes from the client."""
        if self._state is not _State.CLOSED:
            self._buffer += data

    @property
    def wants_pause(self) -> bool:
        """True if the caller should stop reading, until it has answered the event.

        The buffer holds at most one message and `MAX_READ_AHEAD`, if the caller does so.
        """
        return self._unanswered is not None and len(self._buffer) >= MAX_READ_AHEAD

    @property
    def buffered_size(self) -> int:
        """Bytes that are buffered."""
        return len(self._buffer)

    @property
    def is_closed(self) -> bool:
        """True after the last event: the caller closes the connection."""
        return self._state is _State.CLOSED

    @property
    def is_open(self) -> bool:
        """True from `accept` on, while the connection lasts."""
        return self._state is _State.OPEN

    def next_event(self) -> Event[PlanT, CursorT] | None:
        """Return the next event; None if an event is unanswered, or more bytes are needed."""
        while self._unanswered is None and self._state is not _State.CLOSED:
            try:
                event: Event[PlanT, CursorT] | None
                if self._deferred is not None:
                    event = self._take_deferred()
                elif self._state is _State.INITIAL:
                    event = self._next_initial_event()
                else:
                    message = self._take_message()
                    event = None if message is None else self._on_message(message)
                    if message is not None and event is None:
                        continue  # it needs no answer
            except ProtocolViolationError as error:
                return self._violation(Diagnostic(error.sqlstate, str(error), FATAL))
            except StatementFailedError as error:
                self._skips_to_sync = True
                self._fail_transaction()
                return Reply(messages.error_response(error.diagnostic))
            if not isinstance(event, Reply | ProtocolFailed | CancelRequest | Terminated):
                self._unanswered = event
            return event
        return None

    def next_copy_event(self) -> CopyEvent | None:
        """Return the next data of a COPY, while the statement that copies is unanswered.

        Returns:
            None if more bytes are needed.
        """
        try:
            pieces = self._take_copy_data()
        except ProtocolViolationError as error:
            return self._violation(Diagnostic(error.sqlstate, str(error), FATAL))
        if pieces:
            return CopyReceived(b"".join(pieces))
        end, self._copy_end = self._copy_end, None
        match end:
            case frontend.CopyDone():
                return CopyReceived(None)
            case frontend.CopyFail(reason):
                return CopyFailed(reason)
            case frontend.Terminate():
                self.close()
                return Terminated()
        return None

    def _take_copy_data(self) -> list[bytes]:
        """Return the data of complete messages, and note their end."""
        pieces: list[bytes] = []
        while self._copy_end is None and len(pieces) < MAX_COPY_MESSAGES:
            match self._take_message():
                case frontend.CopyData(data):
                    pieces.append(data)
                case frontend.Sync() | frontend.Flush():
                    pass  # they precede the data in the extended protocol
                case frontend.CopyDone() | frontend.CopyFail() | frontend.Terminate() as end:
                    self._copy_end = end
                case None:
                    break
                case _:
                    raise ProtocolViolationError("unexpected message during COPY from stdin")
        return pieces

    def close(self) -> None:
        """Release all portals: the connection is lost."""
        self._state = _State.CLOSED
        self._buffer.clear()
        self._unanswered = None
        self._named.drop_statements()
        self._named.drop_portals()

    def _violation(self, diagnostic: Diagnostic) -> ProtocolFailed:
        self.close()
        return ProtocolFailed(diagnostic, messages.error_response(diagnostic))

    def _take_message(self) -> frontend.FrontendMessage | None:
        """Return the next message with a type; None if it is not complete."""
        buffer = self._buffer
        if not buffer:
            return None
        code = buffer[0]
        if code not in frontend.FRONTEND_LIMITS:
            raise ProtocolViolationError(f"invalid frontend message type {code}")
        if (self._state is _State.AUTHENTICATION) != (code == ord("p")) and code != ord("X"):
            expected = "a password" if self._state is _State.AUTHENTICATION else "no password"
            raise ProtocolViolationError(f"expected {expected}, got message type {code}")
        if len(buffer) < 5:
            return None
        limit = frontend.FRONTEND_LIMITS[code]
        content = self._take_content(1, self._max_message_size if limit is None else limit)
        return None if content is None else frontend.decode_message(code, content)

    def _take_content(self, start: int, limit: int) -> bytes | None:
        """Remove a message from the buffer, and return its content; None if it is not complete.

        Args:
            start: where its length is.
            limit: the most bytes that its content may have.
        """
        buffer = self._buffer
        (length,) = _LENGTH.unpack_from(buffer, start)
        if not _LENGTH.size <= length <= limit + _LENGTH.size:
            raise ProtocolViolationError("invalid message length")
        end = start + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            content = bytes(view[start + _LENGTH.size : end])
        del buffer[:end]
        return content

    # The first messages

    def _next_initial_event(self) -> Event[PlanT, CursorT] | None:
        if self._stuffed:
            raise ProtocolViolationError("received unencrypted data after SSL request")
        if len(self._buffer) < _LENGTH.size:
            return None
        content = self._take_content(0, frontend.MAX_STARTUP_PACKET)
        if content is None:
            return None
        match frontend.decode_initial_message(content):
            case frontend.SslRequest():
                self._note_encryption_request(TlsRequested)
                return TlsRequested()
            case frontend.GssEncryptionRequest():
                self._note_encryption_request(frontend.GssEncryptionRequest)
                return Reply(messages.ENCRYPTION_REFUSED)
            case CancelRequest() as request:
                self.close()
                return request
            case frontend.StartupMessage() as startup:
                self._deferred, unknown = read_startup(startup)
                self._state = _State.AUTHENTICATION
                if startup.minor_version == 0 and not unknown:
                    return self._take_deferred()
                return Reply(messages.negotiate_protocol_version(unknown))

    def _take_deferred(self) -> StartupRequested | None:
        event, self._deferred = self._deferred, None
        return event

    def _note_encryption_request(self, request: type) -> None:
        if request in self._encryption_requests:
            raise ProtocolViolationError("a second request for the same encryption")
        if self._buffer:
            raise ProtocolViolationError("received data after a request for encryption")
        self._encryption_requests.add(request)

    # Answers to the first messages

    def accept_tls(self) -> bytes:
        """Answer TlsRequested; the TLS handshake follows, and then another first message.

        asyncio delivers the first bytes that were encrypted before `loop.start_tls` returns the
        transport for the answers: feed them, and pull events afterwards.
        """
        self._answer(TlsRequested)
        self._stuffed = bool(self._buffer)
        return messages.SSL_ACCEPTED

    def refuse_tls(self) -> bytes:
        """Answer TlsRequested: the client goes on without, or gives up."""
        self._answer(TlsRequested)
        return messages.ENCRYPTION_REFUSED

    def request_password(self) -> bytes:
        """Answer StartupRequested with the request for the password as it is."""
        self._answer(StartupRequested)
        return messages.AUTHENTICATION_CLEARTEXT_PASSWORD

    def request_sasl(self, *, binds_channel: bool = False) -> bytes:
        """Answer StartupRequested with the request to authenticate by SCRAM.

        Args:
            binds_channel: whether channel binding is offered as well.
        """
        self._answer(StartupRequested)
        self._mechanisms = (SCRAM_PLUS, SCRAM) if binds_channel else (SCRAM,)
        return messages.authentication_sasl(self._mechanisms)

    def continue_sasl(self, data: bytes) -> bytes:
        """Answer SaslStarted or SaslContinued with a challenge."""
        self._answer(SaslStarted, SaslContinued)
        return messages.authentication_sasl_continue(data)

    def accept(
        self,
        process_id: int,
        secret: int,
        settings: Mapping[str, str],
        sasl_final: bytes | None = None,
    ) -> bytes:
        """Answer any event of the authentication: the client may send statements.

        Args:
            process_id: the number of the connection, for a CancelRequest.
            secret: its secret, 32 bits, for a CancelRequest.
            settings: the settings that are reported to clients, such as server_version.
            sasl_final: the outcome of the SASL mechanism; None for none.
        """
        self._answer(*_AUTHENTICATION)
        self._state = _State.OPEN
        parts = [] if sasl_final is None else [messages.authentication_sasl_final(sasl_final)]
        parts.append(messages.AUTHENTICATION_OK)
        parts += [messages.parameter_status(name, value) for name, value in settings.items()]
        parts.append(messages.backend_key_data(process_id, secret))
        parts.append(messages.ready_for_query(self.transaction_status))
        return b"".join(parts)

    def end(self, diagnostic: Diagnostic) -> bytes:
        """Return the error that ends the connection, at any time; the caller closes it."""
        self.close()
        return messages.error_response(diagnostic._replace(severity=FATAL))

    # Messages with a type

    def _on_message(self, message: frontend.FrontendMessage) -> Event[PlanT, CursorT] | None:
        """Return the event for a message; None if it needs none."""
        match message:
            case frontend.Terminate():
                self.close()
                return Terminated()
            case frontend.PasswordMessage(content):
                return self._on_password(content)
            case frontend.Sync():
                self._skips_to_sync = False
                return SyncRequested()
        if self._skips_to_sync:
            return None
        match message:
            case frontend.SimpleQuery(text):
                self._named.drop_statement("")
                self._named.drop_portal("")
                return StatementRequested(text)
            case frontend.FunctionCall():
                diagnostic = Diagnostic(FEATURE_NOT_SUPPORTED, "function calls are not supported")
                self._fail_transaction()
                ready = messages.ready_for_query(self.transaction_status)
                return Reply(messages.error_response(diagnostic) + ready)
            case _:
                return self._on_extended_message(message)

    def _on_password(self, content: bytes) -> Event[PlanT, CursorT]:
        if not self._mechanisms:
            return PasswordGiven(frontend.decode_password(content))
        if self._sasl_started:
            return SaslContinued(content)
        mechanism, data = frontend.decode_sasl_initial_response(content)
        if mechanism not in self._mechanisms:
            raise ProtocolViolationError("client selected an invalid SASL authentication mechanism")
        if (mechanism == SCRAM_PLUS) != (data or b"").startswith(b"p="):
            raise ProtocolViolationError(f"{mechanism}: the first message is for another mechanism")
        self._sasl_started = True
        return SaslStarted(mechanism, data or b"")

    def _on_extended_message(
        self, message: frontend.FrontendMessage
    ) -> Event[PlanT, CursorT] | None:
        named = self._named
        match message:
            case frontend.Parse(name, text, parameter_types):
                named.check_new(name, text)
                return ParseRequested(name, text, parameter_types)
            case frontend.Bind():
                statement, parameters, size = named.read_bind(message)
                self._bind = message.result_formats, size
                return BindRequested(message.portal, statement, parameters)
            case frontend.Describe(is_portal, name):
                if is_portal:
                    return DescribePortalRequested(named.find_portal(name))
                return DescribeStatementRequested(named.find_statement(name))
            case frontend.Execute(name, row_limit):
                return ExecuteRequested(named.find_portal(name), row_limit)
            case frontend.Close(is_portal, name):
                if is_portal:
                    named.drop_portal(name)
                else:
                    named.drop_statement(name)
                return Reply(messages.CLOSE_COMPLETE)
            case _:
                # Flush: answers are written at once. Data of a COPY: the rest of a refused one.
                return None

    # Answers to statements

    def ready(self) -> bytes:
        """Answer StatementRequested, after its results, or SyncRequested.

        Outside of a transaction, this ends all portals.
        """
        self._answer(StatementRequested, SyncRequested)
        return self._ready()

    def _ready(self) -> bytes:
        if self.transaction_status is TransactionStatus.IDLE:
            self._named.drop_portals()
        return messages.ready_for_query(self.transaction_status)

    def fail(self, diagnostic: Diagnostic) -> bytes:
        """Answer any event from StatementRequested on with an error.

        As any error, it makes a transaction that is active a failed one.
        """
        answered = self._answer(StatementRequested, SyncRequested, *_EXTENDED)
        self._fail_transaction()
        error = messages.error_response(diagnostic)
        if isinstance(answered, StatementRequested | SyncRequested):
            return error + self._ready()
        self._skips_to_sync = True
        return error

    def _fail_transaction(self) -> None:
        if self.transaction_status is TransactionStatus.ACTIVE:
            self.transaction_status = TransactionStatus.FAILED

    def complete_parse(self, plan: PlanT, parameter_types: Sequence[int]) -> bytes:
        """Answer ParseRequested.

        Args:
            plan: an object of the caller that is kept with the statement.
            parameter_types: the types of all parameters, as the caller determines them. Those that
                the client gave stand instead: it encodes the values accordingly.
        """
        parsed = self._answer(ParseRequested)
        assert isinstance(parsed, ParseRequested)  # noqa: S101 - for the type checker
        given = dict(enumerate(parsed.parameter_types))
        types = tuple(given.get(place) or found for place, found in enumerate(parameter_types))
        self._named.add_statement(PreparedStatement(parsed.name, parsed.text, types, plan))
        return messages.PARSE_COMPLETE

    def complete_bind(self, cursor: CursorT) -> bytes:
        """Answer BindRequested.

        Args:
            cursor: an object of the caller that is kept with the portal, until it is released.
        """
        bound = self._answer(BindRequested)
        assert isinstance(bound, BindRequested)  # noqa: S101 - for the type checker
        formats, size = self._bind
        self._named.add_portal(Portal(bound.portal, bound.statement, formats, size, cursor))
        return messages.BIND_COMPLETE

    def complete_describe(self, columns: Sequence[ResultColumn] | None) -> bytes:
        """Answer DescribeStatementRequested or DescribePortalRequested.

        Args:
            columns: the columns of the result; None for a statement that returns no rows.
        """
        unanswered = self._unanswered
        if isinstance(unanswered, DescribePortalRequested):
            if columns is None:
                self._answer(DescribePortalRequested)
                return messages.NO_DATA
            try:
                formats = unanswered.portal.formats(len(columns))
            except FormatError as error:
                return self.fail(Diagnostic(error.sqlstate, str(error)))
            self._answer(DescribePortalRequested)
            return messages.row_description(columns, formats)
        described = self._answer(DescribeStatementRequested)
        assert isinstance(described, DescribeStatementRequested)  # noqa: S101 - for mypy
        parameters = messages.parameter_description(described.statement.parameter_types)
        if columns is None:
            return parameters + messages.NO_DATA
        return parameters + messages.row_description(columns, [TEXT_FORMAT] * len(columns))

    def complete_execute(self, tag: str) -> bytes:
        """Answer ExecuteRequested, after its rows, if there are no more.

        Args:
            tag: the command and the number of rows, such as "SELECT 5"; empty for an empty
                statement.
        """
        self._answer(ExecuteRequested)
        return messages.command_complete(tag) if tag else messages.EMPTY_QUERY_RESPONSE

    def suspend(self) -> bytes:
        """Answer ExecuteRequested, after as many rows as its limit allows."""
        self._answer(ExecuteRequested)
        return messages.PORTAL_SUSPENDED

    def deallocate(self, name: str | None) -> bool:
        """Drop a prepared statement, or all (None), for DEALLOCATE and DISCARD ALL.

        Returns:
            False if there is no statement of this name.
        """
        if name is None:
            self._named.drop_statements()
            return True
        return self._named.drop_statement(name)

    def add_portal(self, name: str, plan: PlanT, cursor: CursorT) -> None:
        """Make a cursor that a statement has declared known as a portal, until portals end.

        Drivers describe such cursors by the protocol. An event is unanswered meanwhile.

        Args:
            name: the name of the cursor.
            plan: the plan of the portal's statement.
            cursor: the portal's own object.
        """
        statement: PreparedStatement[PlanT] = PreparedStatement("", "", (), plan)
        self._named.add_portal(Portal(name, statement, (), 0, cursor))

    def _answer(self, *expected: type) -> Event[PlanT, CursorT]:
        """Take the unanswered event, which must be one of these types."""
        event = self._unanswered
        if event is None or not isinstance(event, expected):
            raise ProtocolMisuseError(f"no answer to {type(event).__name__}")
        self._unanswered = None
        self._copy_end = None  # of a COPY that has failed before it
        return event
