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

In any of them, `Reply` carries bytes that the caller writes without more ado, and `ProtocolFailed`
the last ones of a connection that broke the protocol. The protocol object keeps prepared statements
and portals by their names. An error in the extended protocol makes it skip all messages up to the
next Sync. Source: PostgreSQL 16 documentation, 55.2 (message flow);
src/backend/tcop/postgres.c, PostgresMain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from server.security.scram import SCRAM, SCRAM_PLUS
from server.sql.postgres import messages
from server.sql.postgres.errors import (
    CONFIGURATION_LIMIT_EXCEEDED,
    DUPLICATE_CURSOR,
    DUPLICATE_PREPARED_STATEMENT,
    FATAL,
    FEATURE_NOT_SUPPORTED,
    INVALID_AUTHORIZATION,
    INVALID_CURSOR_NAME,
    INVALID_SQL_STATEMENT_NAME,
    NAME_TOO_LONG,
    PROTOCOL_VIOLATION,
    Diagnostic,
    FormatError,
)
from server.sql.postgres.messages import (
    TEXT_FORMAT,
    CancelRequest,
    ProtocolViolationError,
    TransactionStatus,
)
from server.sql.postgres.parameters import Value, decode_parameters
from server.sql.postgres.types import ResultColumn

MAX_MESSAGE_SIZE: Final = 64 * 1024 * 1024
MAX_READ_AHEAD: Final = 256 * 1024
"""Bytes of later messages that are buffered while the caller works on one."""
MAX_PREPARED_STATEMENTS: Final = 1000
MAX_PORTALS: Final = 1000
MAX_NAME_LENGTH: Final = 1000
"""Characters of the name of a prepared statement or a portal."""

_LENGTH: Final = Struct(">I")
_OPTION_PREFIX: Final = "_pq_."
_WORD: Final = re.compile(r"(?:[^\s\\]|\\.)++", re.DOTALL)
_SETTING: Final = re.compile(r"(?:-c\s*|--)([\w.-]+)=(.*)", re.DOTALL)
_NO_REPLICATION: Final = ("", "false", "off", "no", "0")

PlanT = TypeVar("PlanT")
CursorT = TypeVar("CursorT")


class ProtocolMisuseError(RuntimeError):
    """The caller gave an answer that does not fit the event."""


@dataclass(frozen=True, slots=True)
class PreparedStatement(Generic[PlanT]):
    """A statement that a client has prepared.

    Attributes:
        name: its name; empty for the unnamed one.
        text: the statement.
        parameter_types: OIDs of its parameters.
        plan: the caller's own object.
    """

    name: str
    text: str
    parameter_types: tuple[int, ...]
    plan: PlanT


@dataclass(frozen=True, slots=True)
class Portal(Generic[PlanT, CursorT]):
    """A statement with values for its parameters.

    Attributes:
        name: its name; empty for the unnamed one.
        statement: the statement.
        result_formats: as the client sent them, see `formats`.
        size: bytes of the parameters.
        cursor: the caller's own object: results that have not been sent yet.
    """

    name: str
    statement: PreparedStatement[PlanT]
    result_formats: tuple[int, ...]
    size: int
    cursor: CursorT

    def formats(self, column_count: int) -> tuple[int, ...]:
        """Return the format of each column of the result.

        Raises:
            FormatError: the client named another number of formats.
        """
        return _formats_of_all(self.result_formats, column_count, "result formats", "columns")


# Events


class Reply(NamedTuple):
    """Bytes to write; no answer needed.

    Attributes:
        data: the bytes.
    """

    data: bytes


class ProtocolFailed(NamedTuple):
    """The client broke the protocol: write the bytes and close the connection.

    Attributes:
        diagnostic: the error, for the log.
        data: the bytes.
    """

    diagnostic: Diagnostic
    data: bytes


class TlsRequested(NamedTuple):
    """The client asks for TLS: `accept_tls` or `refuse_tls`."""


class StartupRequested(NamedTuple):
    """The client begins a session: `request_password`, `request_sasl`, `accept` or `end`.

    Attributes:
        user: the name of the user.
        database: that of the database; by default the name of the user.
        parameters: settings, among them those of the parameter "options".
    """

    user: str
    database: str
    parameters: Mapping[str, str]


class PasswordGiven(NamedTuple):
    """The answer to `request_password`: `accept` or `end`.

    Attributes:
        password: the password.
    """

    password: str

    def __repr__(self) -> str:
        """Omit the password: this may end up in a log."""
        return "PasswordGiven()"


class SaslStarted(NamedTuple):
    """The answer to `request_sasl`: `continue_sasl`, `accept` or `end`.

    Attributes:
        mechanism: one of the mechanisms requested.
        data: the client's first message.
    """

    mechanism: str
    data: bytes


class SaslContinued(NamedTuple):
    """The answer to `continue_sasl`: `continue_sasl`, `accept` or `end`.

    Attributes:
        data: the client's message.
    """

    data: bytes


class StatementRequested(NamedTuple):
    """Statements of the simple protocol: results, then `ready`; or `fail`.

    Attributes:
        text: one or more statements.
    """

    text: str


class ParseRequested(NamedTuple):
    """A statement to prepare: `complete_parse` or `fail`.

    Attributes:
        name: its name.
        text: one statement.
        parameter_types: OIDs of the first parameters; 0 for a type that the server determines.
    """

    name: str
    text: str
    parameter_types: tuple[int, ...]


class BindRequested(NamedTuple, Generic[PlanT]):
    """A statement to be made a portal: `complete_bind` or `fail`.

    Attributes:
        portal: the name of the portal.
        statement: the statement.
        parameters: the values of its parameters.
    """

    portal: str
    statement: PreparedStatement[PlanT]
    parameters: tuple[Value | None, ...]


class DescribeStatementRequested(NamedTuple, Generic[PlanT]):
    """The columns of a prepared statement: `complete_describe` or `fail`.

    Attributes:
        statement: the statement.
    """

    statement: PreparedStatement[PlanT]


class DescribePortalRequested(NamedTuple, Generic[PlanT, CursorT]):
    """The columns of a portal: `complete_describe` or `fail`.

    Attributes:
        portal: the portal.
    """

    portal: Portal[PlanT, CursorT]


class ExecuteRequested(NamedTuple, Generic[PlanT, CursorT]):
    """Rows of a portal: the rows, then `complete_execute` or `suspend`; or `fail`.

    Attributes:
        portal: the portal; it may have been executed before, up to a limit.
        row_limit: the number of rows to send; 0 for all.
    """

    portal: Portal[PlanT, CursorT]
    row_limit: int


class SyncRequested(NamedTuple):
    """The end of a sequence of the extended protocol: `ready`, or `fail` if a commit does."""


class Terminated(NamedTuple):
    """The client ends the session: close the connection."""


Event = (
    Reply
    | ProtocolFailed
    | TlsRequested
    | CancelRequest
    | StartupRequested
    | PasswordGiven
    | SaslStarted
    | SaslContinued
    | StatementRequested
    | ParseRequested
    | BindRequested[PlanT]
    | DescribeStatementRequested[PlanT]
    | DescribePortalRequested[PlanT, CursorT]
    | ExecuteRequested[PlanT, CursorT]
    | SyncRequested
    | Terminated
)

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


class _StatementFailedError(Exception):
    """An error in a statement that the protocol object finds by itself."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(sqlstate, message)


class PostgresProtocol(Generic[PlanT, CursorT]):
    """The state of one connection.

    Args:
        release: called for each portal that ends, so that the caller can release its cursor.
        max_message_size: the largest message accepted after authentication, in bytes.

    Attributes:
        transaction_status: what ReadyForQuery reports. The caller sets it; an error while it is
            ACTIVE makes it FAILED, also an error that the protocol object finds by itself.
    """

    def __init__(
        self,
        release: Callable[[Portal[PlanT, CursorT]], None] = lambda _: None,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        self.transaction_status = TransactionStatus.IDLE
        self._release = release
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
        # The result formats, and the size of the parameters, of the latest BindRequested.
        self._bind: tuple[tuple[int, ...], int] = ((), 0)
        self._statements: dict[str, PreparedStatement[PlanT]] = {}
        self._statements_size = 0
        self._portals: dict[str, Portal[PlanT, CursorT]] = {}
        self._portals_size = 0

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
                    event, self._deferred = self._deferred, None
                elif self._state is _State.INITIAL:
                    event = self._next_initial_event()
                else:
                    message = self._take_message()
                    event = None if message is None else self._on_message(message)
                    if message is not None and event is None:
                        continue  # it needs no answer
            except ProtocolViolationError as error:
                return self._violation(Diagnostic(error.sqlstate, str(error), FATAL))
            except _StatementFailedError as error:
                self._skips_to_sync = True
                self._fail_transaction()
                return Reply(messages.error_response(error.diagnostic))
            if not isinstance(event, Reply | ProtocolFailed | CancelRequest | Terminated):
                self._unanswered = event
            return event
        return None

    def close(self) -> None:
        """Release all portals: the connection is lost."""
        self._state = _State.CLOSED
        self._buffer.clear()
        self._unanswered = None
        self._statements.clear()
        self._drop_portals()

    def _violation(self, diagnostic: Diagnostic) -> ProtocolFailed:
        self.close()
        return ProtocolFailed(diagnostic, messages.error_response(diagnostic))

    def _take_message(self) -> messages.FrontendMessage | None:
        """Return the next message with a type; None if it is not complete."""
        buffer = self._buffer
        if not buffer:
            return None
        code = buffer[0]
        if code not in messages.FRONTEND_LIMITS:
            raise ProtocolViolationError(f"invalid frontend message type {code}")
        if (self._state is _State.AUTHENTICATION) != (code == ord("p")) and code != ord("X"):
            expected = "a password" if self._state is _State.AUTHENTICATION else "no password"
            raise ProtocolViolationError(f"expected {expected}, got message type {code}")
        if len(buffer) < 5:
            return None
        limit = messages.FRONTEND_LIMITS[code]
        content = self._take_content(1, self._max_message_size if limit is None else limit)
        return None if content is None else messages.decode_message(code, content)

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
        content = self._take_content(0, messages.MAX_STARTUP_PACKET)
        if content is None:
            return None
        match messages.decode_initial_message(content):
            case messages.SslRequest():
                self._note_encryption_request(TlsRequested)
                return TlsRequested()
            case messages.GssEncryptionRequest():
                self._note_encryption_request(messages.GssEncryptionRequest)
                return Reply(messages.ENCRYPTION_REFUSED)
            case CancelRequest() as request:
                self.close()
                return request
            case messages.StartupMessage() as startup:
                return self._on_startup(startup)

    def _note_encryption_request(self, request: type) -> None:
        if request in self._encryption_requests:
            raise ProtocolViolationError("a second request for the same encryption")
        if self._buffer:
            raise ProtocolViolationError("received data after a request for encryption")
        self._encryption_requests.add(request)

    def _on_startup(self, startup: messages.StartupMessage) -> Event[PlanT, CursorT]:
        parameters = dict(startup.parameters)
        unknown = [name for name in parameters if name.startswith(_OPTION_PREFIX)]
        for name in unknown:
            del parameters[name]
        user = parameters.pop("user", "")
        database = parameters.pop("database", "") or user
        if not user:
            raise ProtocolViolationError(
                "no PostgreSQL user name specified in startup packet", INVALID_AUTHORIZATION
            )
        if parameters.pop("replication", "").lower() not in _NO_REPLICATION:
            raise ProtocolViolationError("replication is not supported", FEATURE_NOT_SUPPORTED)
        parameters = {**_settings_in_options(parameters.pop("options", "")), **parameters}
        self._state = _State.AUTHENTICATION
        event = StartupRequested(user, database, parameters)
        if startup.minor_version == 0 and not unknown:
            return event
        self._deferred = event
        return Reply(messages.negotiate_protocol_version(unknown))

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
            settings: those that clients want to know, such as server_version.
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

    def _on_message(self, message: messages.FrontendMessage) -> Event[PlanT, CursorT] | None:
        """Return the event for a message; None if it needs none."""
        match message:
            case messages.Terminate():
                self.close()
                return Terminated()
            case messages.PasswordMessage(content):
                return self._on_password(content)
            case messages.Sync():
                self._skips_to_sync = False
                return SyncRequested()
        if self._skips_to_sync:
            return None
        match message:
            case messages.SimpleQuery(text):
                self._drop_statement("")
                self._drop_portal("")
                return StatementRequested(text)
            case messages.FunctionCall():
                diagnostic = Diagnostic(FEATURE_NOT_SUPPORTED, "function calls are not supported")
                self._fail_transaction()
                ready = messages.ready_for_query(self.transaction_status)
                return Reply(messages.error_response(diagnostic) + ready)
            case _:
                return self._on_extended_message(message)

    def _on_password(self, content: bytes) -> Event[PlanT, CursorT]:
        if not self._mechanisms:
            return PasswordGiven(messages.decode_password(content))
        if self._sasl_started:
            return SaslContinued(content)
        mechanism, data = messages.decode_sasl_initial_response(content)
        if mechanism not in self._mechanisms:
            raise ProtocolViolationError("client selected an invalid SASL authentication mechanism")
        if (mechanism == SCRAM_PLUS) != (data or b"").startswith(b"p="):
            raise ProtocolViolationError(f"{mechanism}: the first message is for another mechanism")
        self._sasl_started = True
        return SaslStarted(mechanism, data or b"")

    def _on_extended_message(
        self, message: messages.FrontendMessage
    ) -> Event[PlanT, CursorT] | None:
        match message:
            case messages.Parse(name, text, parameter_types):
                self._check_new_statement(name, text)
                return ParseRequested(name, text, parameter_types)
            case messages.Bind():
                return self._on_bind(message)
            case messages.Describe(is_portal, name):
                if is_portal:
                    return DescribePortalRequested(self._portal(name))
                return DescribeStatementRequested(self._statement(name))
            case messages.Execute(name, row_limit):
                return ExecuteRequested(self._portal(name), row_limit)
            case messages.Close(is_portal, name):
                if is_portal:
                    self._drop_portal(name)
                else:
                    self._drop_statement(name)
                return Reply(messages.CLOSE_COMPLETE)
            case _:
                # Flush: answers are written at once. Data of a COPY: the rest of a refused one.
                return None

    def _check_new_statement(self, name: str, text: str) -> None:
        _check_name(name)
        if name and name in self._statements:
            raise _StatementFailedError(
                DUPLICATE_PREPARED_STATEMENT, f'prepared statement "{name}" already exists'
            )
        if not name:
            self._drop_statement("")
        if (
            len(self._statements) >= MAX_PREPARED_STATEMENTS
            or self._statements_size + len(text) > self._max_message_size
        ):
            raise _StatementFailedError(
                CONFIGURATION_LIMIT_EXCEEDED, "this connection has too many prepared statements"
            )

    def _on_bind(self, bind: messages.Bind) -> Event[PlanT, CursorT]:
        statement = self._statement(bind.statement)
        types = statement.parameter_types
        if len(bind.parameters) != len(types):
            raise _StatementFailedError(
                PROTOCOL_VIOLATION,
                f"bind message supplies {len(bind.parameters)} parameters, but prepared statement"
                f' "{statement.name}" requires {len(types)}',
            )
        _check_name(bind.portal)
        if bind.portal and bind.portal in self._portals:
            raise _StatementFailedError(DUPLICATE_CURSOR, f'cursor "{bind.portal}" already exists')
        if not bind.portal:
            self._drop_portal("")
        size = sum(len(one) for one in bind.parameters if one is not None)
        if len(self._portals) >= MAX_PORTALS or self._portals_size + size > self._max_message_size:
            raise _StatementFailedError(
                CONFIGURATION_LIMIT_EXCEEDED, "this connection has too many portals"
            )
        try:
            formats = _formats_of_all(
                bind.parameter_formats, len(types), "parameter formats", "parameters"
            )
            parameters = decode_parameters(bind.parameters, types, formats)
        except FormatError as error:
            raise _StatementFailedError(error.sqlstate, str(error)) from None
        self._bind = bind.result_formats, size
        return BindRequested(bind.portal, statement, parameters)

    def _statement(self, name: str) -> PreparedStatement[PlanT]:
        statement = self._statements.get(name)
        if statement is None:
            shown = f'prepared statement "{name}"' if name else "unnamed prepared statement"
            raise _StatementFailedError(INVALID_SQL_STATEMENT_NAME, f"{shown} does not exist")
        return statement

    def _portal(self, name: str) -> Portal[PlanT, CursorT]:
        portal = self._portals.get(name)
        if portal is None:
            raise _StatementFailedError(INVALID_CURSOR_NAME, f'portal "{name}" does not exist')
        return portal

    # Answers to statements

    def ready(self) -> bytes:
        """Answer StatementRequested, after its results, or SyncRequested.

        Outside of a transaction, this ends all portals.
        """
        self._answer(StatementRequested, SyncRequested)
        return self._ready()

    def _ready(self) -> bytes:
        if self.transaction_status is TransactionStatus.IDLE:
            self._drop_portals()
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
        statement = PreparedStatement(parsed.name, parsed.text, types, plan)
        self._statements[parsed.name] = statement
        self._statements_size += len(parsed.text)
        return messages.PARSE_COMPLETE

    def complete_bind(self, cursor: CursorT) -> bytes:
        """Answer BindRequested.

        Args:
            cursor: an object of the caller that is kept with the portal, until it is released.
        """
        bound = self._answer(BindRequested)
        assert isinstance(bound, BindRequested)  # noqa: S101 - for the type checker
        formats, size = self._bind
        self._portals[bound.portal] = Portal(bound.portal, bound.statement, formats, size, cursor)
        self._portals_size += size
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
            self._statements.clear()
            self._statements_size = 0
            return True
        found = name in self._statements
        self._drop_statement(name)
        return found

    def add_portal(self, name: str, plan: PlanT, cursor: CursorT) -> None:
        """Make a cursor that a statement has declared known as a portal, until portals end.

        Drivers describe such cursors by the protocol. An event is unanswered meanwhile.

        Args:
            name: the name of the cursor.
            plan: the plan of the portal's statement.
            cursor: the portal's own object.
        """
        self._drop_portal(name)
        statement: PreparedStatement[PlanT] = PreparedStatement("", "", (), plan)
        self._portals[name] = Portal(name, statement, (), 0, cursor)

    def _answer(self, *expected: type) -> Event[PlanT, CursorT]:
        """Take the unanswered event, which must be one of these types."""
        event = self._unanswered
        if event is None or not isinstance(event, expected):
            raise ProtocolMisuseError(f"no answer to {type(event).__name__}")
        self._unanswered = None
        return event

    def _drop_statement(self, name: str) -> None:
        statement = self._statements.pop(name, None)
        if statement is not None:
            self._statements_size -= len(statement.text)

    def _drop_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            self._portals_size -= portal.size
            self._release(portal)

    def _drop_portals(self) -> None:
        for name in list(self._portals):
            self._drop_portal(name)


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise _StatementFailedError(NAME_TOO_LONG, "the name is too long")


def _formats_of_all(
    formats: tuple[int, ...], count: int, formats_name: str, items_name: str
) -> tuple[int, ...]:
    """Return one format for each of some items: none are all text, one is for all of them.

    Raises:
        FormatError: there is another number of formats.
    """
    if len(formats) <= 1:
        return (formats or (TEXT_FORMAT,)) * count
    if len(formats) != count:
        raise FormatError(
            PROTOCOL_VIOLATION,
            f"bind message has {len(formats)} {formats_name} but {count} {items_name}",
        )
    return formats


def _settings_in_options(options: str) -> dict[str, str]:
    """Return the settings in the parameter "options": -c name=value and --name=value.

    A space in a value has a backslash before it. Other options of PostgreSQL are ignored.
    """
    words = [re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL) for word in _WORD.findall(options)]
    settings = {}
    position = 0
    while position < len(words):
        word = words[position]
        if word == "-c" and position + 1 < len(words):
            position += 1
            word += words[position]
        if (match := _SETTING.fullmatch(word)) is not None:
            settings[match[1].replace("-", "_")] = match[2]
        position += 1
    return settings
