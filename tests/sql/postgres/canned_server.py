"""A server of PostgreSQL's protocol with canned results, around the protocol object."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from server.security.scram import (
    ScramExchange,
    ScramMessageError,
    ScramRefusedError,
    make_verifier,
)
from server.sql import sqlstate
from server.sql.postgres import messages
from server.sql.postgres.errors import Diagnostic, FormatError
from server.sql.postgres.events import (
    BindRequested,
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
from server.sql.postgres.formats import encode_data_rows
from server.sql.postgres.frontend_messages import CancelRequest
from server.sql.postgres.messages import TransactionStatus
from server.sql.postgres.pieces import ColumnFormat
from server.sql.postgres.protocol import PostgresProtocol
from server.sql.postgres.types import ResultColumn, oid_of_arrow_type

SETTINGS = {
    "server_version": "16.0 (canned)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "TimeZone": "UTC",
}


@dataclass
class Canned:
    """A statement that the server knows.

    Attributes:
        make: its result, of the values of its parameters.
        parameter_types: their types.
        columns: the columns of the result; None for those of the Arrow schema.
    """

    make: Callable[..., pa.RecordBatch]
    parameter_types: Sequence[int] = ()
    columns: Sequence[ResultColumn] | None = None


@dataclass
class Result:
    """A result, of which some rows may have been sent."""

    columns: Sequence[ResultColumn] | None
    batch: pa.RecordBatch | None
    tag: str
    sent: int = 0

    def take(self, limit: int) -> pa.RecordBatch:
        assert self.batch is not None
        part = self.batch.slice(self.sent, limit or None)
        self.sent += part.num_rows
        return part

    @property
    def has_more(self) -> bool:
        return self.batch is not None and self.sent < self.batch.num_rows


@dataclass
class Settings:
    """What a server offers.

    Attributes:
        statements: results by statement.
        passwords: those of users; empty if none are asked for.
        scram: whether they are asked for by SCRAM.
        tls: the server's certificate; None without.
        log: events, as they came.
        cancelled: requests to cancel.
    """

    statements: Mapping[str, Canned]
    passwords: Mapping[str, str] = field(default_factory=dict)
    scram: bool = True
    tls: ssl.SSLContext | None = None
    log: list[object] = field(default_factory=list)
    cancelled: list[CancelRequest] = field(default_factory=list)


Protocol = PostgresProtocol[str, Result]


class CannedConnection(asyncio.Protocol):
    """One connection; it answers each event at once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.protocol: Protocol = PostgresProtocol(max_message_size=1_000_000)
        self.transport: Any = None
        self.user = ""
        self.scram: ScramExchange | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.protocol.feed(data)
        if self.task is None:  # otherwise the transport of TLS is not known yet
            self.run()

    def run(self) -> None:
        out = []
        while (event := self.protocol.next_event()) is not None:
            self.settings.log.append(event)
            if isinstance(event, TlsRequested) and self.settings.tls is not None:
                self.transport.write(self.protocol.accept_tls())
                self.task = asyncio.ensure_future(self.start_tls(self.settings.tls))
                return
            out.append(answer(self, event))
        self.transport.write(b"".join(out))
        if self.protocol.is_closed:
            self.transport.close()

    async def start_tls(self, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        self.transport = await loop.start_tls(self.transport, self, context, server_side=True)
        self.task = None
        self.run()

    def connection_lost(self, exc: Exception | None) -> None:
        self.protocol.close()


def answer(connection: CannedConnection, event: Event[str, Result]) -> bytes:
    """Answer one event."""
    protocol, settings = connection.protocol, connection.settings
    match event:
        case Reply(data) | ProtocolFailed(_, data):
            return data
        case CancelRequest():
            settings.cancelled.append(event)
            return b""
        case Terminated():
            return b""
        case TlsRequested():
            return protocol.refuse_tls()
        case StartupRequested() | PasswordGiven() | SaslStarted() | SaslContinued():
            return authenticate(connection, event)
        case _:
            try:
                return execute(protocol, settings, event)
            except FormatError as error:
                return protocol.fail(Diagnostic(error.sqlstate, str(error)))


def authenticate(connection: CannedConnection, event: Event[str, Result]) -> bytes:
    protocol, settings = connection.protocol, connection.settings
    refused = Diagnostic(sqlstate.INVALID_PASSWORD, "password authentication failed")
    final = None
    match event:
        case StartupRequested(user):
            connection.user = user
            if settings.passwords:
                return protocol.request_sasl() if settings.scram else protocol.request_password()
        case PasswordGiven(password):
            if settings.passwords.get(connection.user) != password:
                return protocol.end(refused)
        case SaslStarted(_, data):
            connection.scram = ScramExchange(
                make_verifier(settings.passwords.get(connection.user, "another"))
            )
            try:
                challenge = connection.scram.make_challenge(data.decode())
            except ScramMessageError as error:
                return protocol.end(Diagnostic(sqlstate.PROTOCOL_VIOLATION, str(error)))
            return protocol.continue_sasl(challenge.encode())
        case SaslContinued(data):
            assert connection.scram is not None
            try:
                final = connection.scram.finish(data.decode()).encode()
            except (ScramRefusedError, ScramMessageError):
                return protocol.end(refused)
    return protocol.accept(4711, 0xDEADBEEF, SETTINGS, final)


def execute(protocol: Protocol, settings: Settings, event: Event[str, Result]) -> bytes:
    match event:
        case StatementRequested(text):
            return simple(protocol, settings, text)
        case ParseRequested(_, text, parameter_types):
            known = settings.statements.get(normal(text))
            if known is None and command(text) is None:
                return protocol.fail(unknown_statement(text))
            types = known.parameter_types if known is not None else parameter_types
            return protocol.complete_parse(normal(text), types)
        case BindRequested(_, statement, parameters):
            return protocol.complete_bind(run(protocol, settings, statement.plan, parameters))
        case DescribeStatementRequested(statement):
            known = settings.statements.get(statement.plan)
            if known is None:
                return protocol.complete_describe(None)
            sample = known.make(*[None] * len(known.parameter_types))
            return protocol.complete_describe(known.columns or columns_of_schema(sample.schema))
        case DescribePortalRequested(portal):
            return protocol.complete_describe(portal.cursor.columns)
        case ExecuteRequested(portal, limit):
            result = portal.cursor
            if result.columns is None:
                return protocol.complete_execute(result.tag)
            formats = portal.formats(len(result.columns))
            part = result.take(limit)
            rows = encode_data_rows(part, column_formats(result.columns, formats))
            if result.has_more or (limit and part.num_rows == limit):
                return rows + protocol.suspend()
            return rows + protocol.complete_execute(f"SELECT {part.num_rows}")
        case SyncRequested():
            return protocol.ready()
    raise AssertionError(event)


def simple(protocol: Protocol, settings: Settings, text: str) -> bytes:
    out: list[bytes] = []
    statements = [one for one in text.split(";") if one.strip()]
    if not statements:
        return messages.EMPTY_QUERY_RESPONSE + protocol.ready()
    for one in statements:
        if command(one) is None and normal(one) not in settings.statements:
            if protocol.transaction_status is TransactionStatus.ACTIVE:
                protocol.transaction_status = TransactionStatus.FAILED
            return b"".join(out) + protocol.fail(unknown_statement(one))
        result = run(protocol, settings, normal(one), ())
        if result.columns is None or result.batch is None:
            out.append(messages.command_complete(result.tag))
            continue
        formats = [messages.TEXT_FORMAT] * len(result.columns)
        out.append(messages.row_description(result.columns, formats))
        out.append(encode_data_rows(result.batch, column_formats(result.columns, formats)))
        out.append(messages.command_complete(f"SELECT {result.batch.num_rows}"))
    return b"".join(out) + protocol.ready()


def run(protocol: Protocol, settings: Settings, text: str, parameters: Sequence[object]) -> Result:
    tag = command(text)
    if tag is not None:
        if tag == "BEGIN":
            protocol.transaction_status = TransactionStatus.ACTIVE
        elif tag in ("COMMIT", "ROLLBACK"):
            protocol.transaction_status = TransactionStatus.IDLE
        return Result(None, None, tag)
    known = settings.statements[text]
    batch = known.make(*parameters)
    return Result(known.columns or columns_of_schema(batch.schema), batch, "SELECT")


def normal(text: str) -> str:
    return " ".join(text.split()).rstrip("; ")


def command(text: str) -> str | None:
    """The tag of a statement without a result; None if it has one."""
    word = normal(text).upper().partition(" ")[0]
    return word if word in ("BEGIN", "COMMIT", "ROLLBACK", "SET", "DISCARD") else None


def column_formats(columns: Sequence[ResultColumn], formats: Sequence[int]) -> list[ColumnFormat]:
    return [
        ColumnFormat(column.type_oid, binary=code == messages.BINARY_FORMAT)
        for column, code in zip(columns, formats, strict=True)
    ]


def unknown_statement(text: str) -> Diagnostic:
    return Diagnostic(
        "42601", "unknown statement", detail=text.strip(), hint="ask for another one", position=1
    )


async def start(settings: Settings) -> tuple[asyncio.Server, int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: CannedConnection(settings), "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def columns_of_schema(schema: pa.Schema) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(field.name, oid_of_arrow_type(field.type)) for field in schema)
