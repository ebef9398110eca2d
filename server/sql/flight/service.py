"""The calls of Arrow Flight, as gRPC makes them. All of it runs on gRPC's thread.

    GetFlightInfo  describes a query and returns its ticket; executes statements without rows
    GetSchema      describes a query
    DoGet          executes the query of a ticket; the result is a stream of record batches
    DoPut          executes statements without rows; binds parameters
    DoAction       prepares statements, cancels queries, ends the session
    Handshake      logs on, and returns a token

Source: Flight.proto and FlightSql.proto of Apache Arrow.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
import pyarrow as pa

from server.sql.flight.arrow_types import DIGEST_BYTES, digest
from server.sql.flight.errors import internal_error, status_of, text_of
from server.sql.flight.flight_data import encode_batch, encode_schema
from server.sql.flight.logon import CallCredentials, read_authorization, token_key
from server.sql.flight.messages import (
    FLIGHT_PACKAGE,
    make_flight,
    pack,
    parse_flight,
    serialize,
    unpack,
)
from server.sql.flight.metadata import (
    MetadataSource,
    is_metadata,
    metadata_schema,
    metadata_table,
)
from server.sql.flight.parameters import ParameterReader
from server.sql.flight.statement import FlightStatement, has_rows, transactions_refused
from server.sql.flight.statement_run import StatementRun
from server.sql.query.errors import SqlError
from server.sql.result_columns import ResultChangedError
from server.sql.sqlstate import (
    ADMIN_SHUTDOWN,
    CONFIGURATION_LIMIT_EXCEEDED,
    FEATURE_NOT_SUPPORTED,
    INVALID_AUTHORIZATION,
    PROTOCOL_VIOLATION,
    QUERY_CANCELED,
)

if TYPE_CHECKING:
    from server.sql.flight.client import FlightClient
    from server.sql.flight.connection import FlightConnection
    from server.sql.flight.gateway import FlightGateway
    from server.sql.flight.prepared_statements import PreparedFlightStatement

_COMMAND: Final = 2  # FlightDescriptor.CMD

_HANDSHAKE_TIMEOUT_S: Final = 10.0

_QUERY_TICKET: Final = b"Q"
_COUNT_TICKET: Final = b"C"
"""The first byte of the handle of a ticket: a query follows, or the number of rows written."""
_NONCE_BYTES: Final = 8
"""Bytes that make tickets of the same query different; the digest of the columns follows."""

_QUERY_HEAD: Final = 1 + _NONCE_BYTES + DIGEST_BYTES

_PREPARED_QUERY: Final = "CommandPreparedStatementQuery"

MAX_PARAMETER_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the parameters of a statement, of all rows."""

_READ_TIMEOUT_S: Final = 60.0
"""Time for the next batch of parameters."""

_COUNT_SCHEMA: Final = pa.schema([("rows", pa.int64())])
"""The result of a statement without rows: how many rows it has written."""

_CLOSED: Final = 1  # CloseSessionResult.CLOSED
_CANCELLED: Final = 1  # CancelStatus.CANCELLED
_NOT_CANCELLABLE: Final = 3  # CancelStatus.NOT_CANCELLABLE

_ACTIONS: Final = {
    "CreatePreparedStatement": "Prepares a statement.",
    "ClosePreparedStatement": "Removes a prepared statement.",
    "CancelFlightInfo": "Cancels a query.",
    "CancelQuery": "Cancels a query.",
    "CloseSession": "Ends the session and its token.",
}

Context = Any
"""The context of a call: `grpc.aio.ServicerContext`."""


def make_handlers(gateway: FlightGateway) -> grpc.GenericRpcHandler:
    """Return the handlers of the service, for the gRPC server."""
    service = FlightService(gateway)
    unary, stream = service.answer, service.answer_by_stream
    handlers = {
        "Handshake": grpc.stream_stream_rpc_method_handler(partial(stream, service.shake_hands)),
        "ListFlights": grpc.unary_stream_rpc_method_handler(partial(stream, service.list_flights)),
        "GetFlightInfo": grpc.unary_unary_rpc_method_handler(
            partial(unary, service.get_flight_info)
        ),
        "GetSchema": grpc.unary_unary_rpc_method_handler(partial(unary, service.get_schema)),
        "DoGet": grpc.unary_stream_rpc_method_handler(partial(stream, service.get)),
        "DoPut": grpc.stream_stream_rpc_method_handler(partial(stream, service.put)),
        "DoAction": grpc.unary_stream_rpc_method_handler(partial(stream, service.act)),
        "ListActions": grpc.unary_stream_rpc_method_handler(partial(stream, service.list_actions)),
    }
    return grpc.method_handlers_generic_handler(f"{FLIGHT_PACKAGE}.FlightService", handlers)


class FlightService:
    """The calls of the service.

    Args:
        gateway: finds the connections of calls.
    """

    def __init__(self, gateway: FlightGateway) -> None:
        self._gateway: Final = gateway

    # ---- calls

    async def answer(
        self,
        call: Callable[[bytes, Context], Awaitable[bytes]],
        request: bytes,
        context: Context,
    ) -> bytes:
        """Handle a call that has one answer; errors end it with their status."""
        try:
            return await call(request, context)
        except SqlError as error:
            failure = error
        except Exception as defect:
            failure = self._report_defect(context, defect)
        await context.abort(status_of(failure), text_of(failure))
        raise failure  # `abort` has raised

    async def answer_by_stream(
        self,
        call: Callable[[Any, Context], AsyncGenerator[bytes, None]],
        request: Any,
        context: Context,
    ) -> None:
        """Handle a call that answers by a stream; errors end it with their status."""
        failure: SqlError | None = None
        try:
            async with aclosing(call(request, context)) as answers:
                async for answer in answers:
                    await context.write(answer)
        except SqlError as error:
            failure = error
        except Exception as defect:
            failure = self._report_defect(context, defect)
        if failure is not None:
            await context.abort(status_of(failure), text_of(failure))

    def _report_defect(self, context: Context, defect: Exception) -> SqlError:
        """Log a defect of the server; return the error that stands for it."""
        connection = self._gateway.find_connection(context.peer())
        if connection is not None:
            connection.post(partial(connection.report_defect, defect))
        return internal_error(defect)

    # ---- logon

    async def shake_hands(self, requests: object, context: Context) -> AsyncGenerator[bytes, None]:  # noqa: ARG002 - read by the context
        """Handshake: log on, and return a token in the headers and in the payload.

        The credentials are in the header `authorization`, or in the payload.
        """
        connection = self._connection_of(context)
        header = _header(context, "authorization")
        request = await asyncio.wait_for(context.read(), _HANDSHAKE_TIMEOUT_S)
        credentials = read_authorization(header)
        if not header and isinstance(request, bytes):
            payload = parse_flight("HandshakeRequest", request).payload
            if payload:
                basic = parse_flight("BasicAuth", payload)
                credentials = CallCredentials(b"", basic.username, basic.password)
        if credentials.token:
            await self._client(context)
            token = credentials.token
        else:
            token = self._gateway.tokens.make()
            credentials = credentials._replace(key=token_key(token))
            client = await _log_on(connection, credentials, context)
            self._gateway.tokens.add(token, connection.transport_name, client.session.user)
        await context.send_initial_metadata((("authorization", f"Bearer {token}"),))
        answer = make_flight("HandshakeResponse", payload=token.encode())
        yield answer.SerializeToString()

    def _connection_of(self, context: Context) -> FlightConnection:
        connection = self._gateway.find_connection(context.peer())
        if connection is None:
            raise SqlError(ADMIN_SHUTDOWN, "the connection was closed")
        return connection

    async def _client(self, context: Context) -> FlightClient:
        """Return the client that makes a call; log it on, if it has not been.

        Raises:
            SqlError: it may not log on, or its token is not valid.
        """
        connection = self._connection_of(context)
        header = _header(context, "auth-token-bin")
        header = f"Bearer {header}" if header else _header(context, "authorization")
        credentials = read_authorization(header)
        if credentials.token:
            tokens = self._gateway.tokens
            if tokens.find(credentials.token, connection.transport_name) is None:
                raise SqlError(INVALID_AUTHORIZATION, "the token is not valid, or has expired")
        return connection.find_client(credentials) or await _log_on(
            connection, credentials, context
        )

    # ---- queries

    async def get_flight_info(self, request: bytes, context: Context) -> bytes:
        """GetFlightInfo: describe a query, or execute a statement without rows."""
        client = await self._client(context)
        descriptor = parse_flight("FlightDescriptor", request)
        name, command = _command_of(descriptor)
        if is_metadata(name):
            schema, ticket = metadata_schema(name, command), descriptor.cmd
        elif name == "CommandStatementQuery":
            _check_transaction(command)
            schema, ticket = await self._plan(client, command.query)
        elif name == _PREPARED_QUERY:
            schema, ticket = await self._plan_prepared(client, command.prepared_statement_handle)
        else:
            raise _no_query(name)
        info = make_flight(
            "FlightInfo",
            schema=schema.serialize().to_pybytes(),
            flight_descriptor=descriptor,
            total_records=-1,
            total_bytes=-1,
        )
        info.endpoint.add().ticket.ticket = ticket
        data: bytes = info.SerializeToString()
        return data

    async def get_schema(self, request: bytes, context: Context) -> bytes:
        """GetSchema: describe a query."""
        client = await self._client(context)
        name, command = _command_of(parse_flight("FlightDescriptor", request))
        if is_metadata(name):
            schema = metadata_schema(name, command)
        elif name == "CommandStatementQuery":
            _check_transaction(command)
            statement = FlightStatement(client, command.query)
            async with StatementRun(client, statement, None) as run:
                schema = await run.do(statement.describe_columns)
        elif name == _PREPARED_QUERY:
            schema = client.prepared.find(command.prepared_statement_handle).columns
        else:
            raise _no_query(name)
        answer = make_flight("SchemaResult", schema=schema.serialize().to_pybytes())
        data: bytes = answer.SerializeToString()
        return data

    async def get(self, request: bytes, context: Context) -> AsyncGenerator[bytes, None]:
        """DoGet: execute the query of a ticket, and send its result."""
        client = await self._client(context)
        ticket = parse_flight("Ticket", request).ticket
        name, command = unpack(ticket)
        if is_metadata(name):
            table = await self._read_metadata(client, name, command)
            yield encode_schema(table.schema)
            for batch in table.to_batches():
                yield encode_batch(batch)
            return
        prepared: PreparedFlightStatement | None = None
        if name == _PREPARED_QUERY:
            prepared = client.prepared.find(command.prepared_statement_handle)
            text, statement = prepared.text, _execution(client, prepared, _only_row(prepared))
        elif name == "TicketStatementQuery":
            handle = command.statement_handle
            if handle[:1] == _COUNT_TICKET:
                yield encode_schema(_COUNT_SCHEMA)
                yield encode_batch(_count_batch(handle[1:]))
                return
            described, text = _query_of(handle)
            statement = FlightStatement(client, text, described=described)
        else:
            raise _no_query(name)
        try:
            async with StatementRun(client, statement, text, ticket) as run:
                async for data in run.stream():
                    yield data
        except ResultChangedError:
            if prepared is not None:
                prepared.is_outdated = True
            raise

    async def _plan(self, client: FlightClient, text: str) -> tuple[pa.Schema, bytes]:
        """Return the columns and the ticket of a statement; execute one without rows."""
        statement = FlightStatement(client, text)
        async with StatementRun(client, statement, None) as run:
            if await run.do(statement.has_rows):
                schema = await run.do(statement.describe_columns)
                nonce = secrets.token_bytes(_NONCE_BYTES)
                handle = _QUERY_TICKET + nonce + digest(schema) + text.encode()
                return schema, pack("TicketStatementQuery", statement_handle=handle)
        async with StatementRun(client, statement, text) as run:
            count = await run.execute()
        return _COUNT_SCHEMA, _count_ticket(count)

    async def _plan_prepared(self, client: FlightClient, handle: bytes) -> tuple[pa.Schema, bytes]:
        """Return the columns and the ticket of a prepared statement; see `_plan`."""
        prepared = client.prepared.find(handle)
        if has_rows(prepared.statement):
            row = _only_row(prepared)
            if prepared.is_outdated:
                statement = _execution(client, prepared, row)
                async with StatementRun(client, statement, None) as run:
                    prepared.columns = await run.do(statement.describe_columns)
                prepared.is_outdated = False
            return prepared.columns, pack(_PREPARED_QUERY, prepared_statement_handle=handle)
        return _COUNT_SCHEMA, _count_ticket(await _execute_all(client, prepared))

    async def _read_metadata(self, client: FlightClient, name: str, command: Any) -> pa.Table:
        tables = client.make_tables()
        source = MetadataSource(client.settings.database, tables.tables)
        future = client.call(partial(metadata_table, name, command, source))
        return await asyncio.wrap_future(future)

    # ---- statements without rows, and parameters

    async def put(self, requests: object, context: Context) -> AsyncGenerator[bytes, None]:  # noqa: ARG002 - read by the context
        """DoPut: execute a statement without rows, or bind parameters."""
        client = await self._client(context)
        first = await _read_data(context)
        if first is None:
            raise SqlError(PROTOCOL_VIOLATION, "the stream has no descriptor")
        name, command = _command_of(first.flight_descriptor)
        if name == "CommandStatementUpdate":
            _check_transaction(command)
            count = await self._update(client, command.query)
            answer = serialize("DoPutUpdateResult", record_count=count)
        elif name in (_PREPARED_QUERY, "CommandPreparedStatementUpdate"):
            handle = command.prepared_statement_handle
            prepared = client.prepared.find(handle)
            prepared.rows = await self._read_parameters(client, context, first)
            if name == _PREPARED_QUERY:
                answer = serialize("DoPutPreparedStatementResult", prepared_statement_handle=handle)
            elif has_rows(prepared.statement):
                raise _has_result()
            else:
                written = await _execute_all(client, prepared)
                answer = serialize("DoPutUpdateResult", record_count=_or_unknown(written))
        else:
            raise SqlError(PROTOCOL_VIOLATION, f"{name} is not a command of DoPut")
        yield make_flight("PutResult", app_metadata=answer).SerializeToString()

    async def _update(self, client: FlightClient, text: str) -> int:
        statement = FlightStatement(client, text)
        async with StatementRun(client, statement, text) as run:
            if await run.do(statement.has_rows):
                raise _has_result()
            return _or_unknown(await run.execute())

    async def _read_parameters(
        self, client: FlightClient, context: Context, first: Any
    ) -> Sequence[tuple[object, ...]]:
        reader = ParameterReader()
        data: Any = first
        size = 0
        while data is not None:
            size += len(data.data_body)
            if size > MAX_PARAMETER_BYTES:
                raise SqlError(
                    CONFIGURATION_LIMIT_EXCEEDED,
                    f"the parameters of a statement have at most {MAX_PARAMETER_BYTES} bytes",
                )
            call = client.call(partial(reader.read, data.data_header, data.data_body))
            await asyncio.wrap_future(call)
            data = await _read_data(context)
        return reader.rows

    async def _prepare(self, client: FlightClient, body: bytes) -> bytes:
        """CreatePreparedStatement: prepare a statement."""
        name, request = unpack(body)
        if name != "ActionCreatePreparedStatementRequest":
            raise _wrong_body(name)
        _check_transaction(request)
        client.prepared.check_room()
        statement = FlightStatement(client, request.query)
        async with StatementRun(client, statement, None) as run:
            prepared = await run.do(statement.prepare)
        return pack(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=client.prepared.add(prepared),
            dataset_schema=prepared.columns.serialize().to_pybytes()
            if has_rows(prepared.statement)
            else b"",
            parameter_schema=prepared.parameters.serialize().to_pybytes(),
        )

    # ---- the rest

    async def list_flights(self, request: bytes, context: Context) -> AsyncGenerator[bytes, None]:  # noqa: ARG002 - there are none
        """ListFlights: there are none; CommandGetTables lists the tables."""
        await self._client(context)
        return
        yield

    async def list_actions(self, request: bytes, context: Context) -> AsyncGenerator[bytes, None]:  # noqa: ARG002 - empty
        """ListActions: the actions of DoAction."""
        await self._client(context)
        for name, description in _ACTIONS.items():
            action = make_flight("ActionType", type=name, description=description)
            yield action.SerializeToString()

    async def act(self, request: bytes, context: Context) -> AsyncGenerator[bytes, None]:
        """DoAction: one of the actions."""
        client = await self._client(context)
        action = parse_flight("Action", request)
        answer: bytes
        match action.type:
            case "CreatePreparedStatement":
                answer = await self._prepare(client, action.body)
            case "ClosePreparedStatement":
                name, command = unpack(action.body)
                if name != "ActionClosePreparedStatementRequest":
                    raise _wrong_body(name)
                client.prepared.remove(command.prepared_statement_handle)
                return
            case "CancelFlightInfo":
                info = parse_flight("CancelFlightInfoRequest", action.body).info
                result = make_flight("CancelFlightInfoResult", status=_cancel(client, info))
                answer = result.SerializeToString()
            case "CancelQuery":
                name, command = unpack(action.body)
                if name != "ActionCancelQueryRequest":
                    raise _wrong_body(name)
                info = parse_flight("FlightInfo", command.info)
                answer = pack("ActionCancelQueryResult", result=_cancel(client, info))
            case "CloseSession":
                answer = await self._close_session(client, context)
            case "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint":
                raise transactions_refused()
            case _:
                raise SqlError(FEATURE_NOT_SUPPORTED, "the server does not have this action")
        yield make_flight("Result", body=answer).SerializeToString()

    async def _close_session(self, client: FlightClient, context: Context) -> bytes:
        connection = self._connection_of(context)
        token = read_authorization(_header(context, "authorization")).token
        if token:
            self._gateway.tokens.remove(token)
        client.post(lambda: connection.end_client(client))
        data: bytes = make_flight("CloseSessionResult", status=_CLOSED).SerializeToString()
        return data


def _cancel(client: FlightClient, info: Any) -> int:
    """Cancel the statements of the tickets of a FlightInfo; return a CancelStatus."""
    tickets = {endpoint.ticket.ticket for endpoint in info.endpoint}
    runs = [run for run in client.runs if run.ticket in tickets]
    for run in runs:
        run.cancel()
    return _CANCELLED if runs else _NOT_CANCELLABLE


def _execution(
    client: FlightClient, prepared: PreparedFlightStatement, row: Sequence[object]
) -> FlightStatement:
    return FlightStatement(client, prepared.text, row, prepared.statement, digest(prepared.columns))


async def _execute_all(client: FlightClient, prepared: PreparedFlightStatement) -> int | None:
    """Execute a prepared statement without rows, with each row of its parameters.

    Returns:
        The number of rows written; None if it does not write.
    """
    total: int | None = None
    for row in prepared.rows or [()]:
        statement = _execution(client, prepared, row)
        async with StatementRun(client, statement, prepared.text) as run:
            count = await run.execute()
        if count is not None:
            total = (total or 0) + count
    return total


def _only_row(prepared: PreparedFlightStatement) -> Sequence[object]:
    """Return the parameters of a query.

    Raises:
        SqlError: there are several rows of them, or not as many as the query has.
    """
    if len(prepared.rows) > 1:
        raise SqlError(FEATURE_NOT_SUPPORTED, "a query takes one row of parameters")
    row = prepared.rows[0] if prepared.rows else ()
    if len(row) < len(prepared.parameters):
        raise SqlError(
            PROTOCOL_VIOLATION,
            f"the statement requires {len(prepared.parameters)} parameters,"
            f" {len(row)} were supplied",
        )
    return row


def _has_result() -> SqlError:
    return SqlError(PROTOCOL_VIOLATION, "the statement has a result", hint="Execute it as a query.")


def _or_unknown(count: int | None) -> int:
    return -1 if count is None else count


def _wrong_body(name: str) -> SqlError:
    return SqlError(PROTOCOL_VIOLATION, f"{name} is not the request of this action")


async def _read_data(context: Context) -> Any:
    """Return the next message FlightData of a client; None at the end."""
    try:
        data = await asyncio.wait_for(context.read(), _READ_TIMEOUT_S)
    except TimeoutError:
        raise SqlError(QUERY_CANCELED, "the client sends no parameters") from None
    return parse_flight("FlightData", data) if isinstance(data, bytes) else None


async def _log_on(
    connection: FlightConnection, credentials: CallCredentials, context: Context
) -> FlightClient:
    future: Future[FlightClient] = Future()
    application = _header(context, "application_name")
    connection.post(lambda: connection.log_on(credentials, application, future))
    return await asyncio.wrap_future(future)


def _header(context: Context, name: str) -> str:
    """Return a header of a call; empty if it has none."""
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return value if isinstance(value, str) else value.decode("utf-8", "replace")
    return ""


def _command_of(descriptor: Any) -> tuple[str, Any]:
    if descriptor.type != _COMMAND:
        raise SqlError(
            FEATURE_NOT_SUPPORTED, "flights have no paths here, but commands of Flight SQL"
        )
    return unpack(descriptor.cmd)


def _no_query(name: str) -> SqlError:
    return SqlError(PROTOCOL_VIOLATION, f"{name} is not the command of a query")


def _check_transaction(command: Any) -> None:
    if command.transaction_id:
        raise transactions_refused()


def _query_of(handle: bytes) -> tuple[bytes, str]:
    """Return the digest of the columns, and the text, of the query of a ticket.

    Raises:
        SqlError: the server has made no such ticket.
    """
    try:
        if handle[:1] == _QUERY_TICKET:
            described, text = handle[_QUERY_HEAD - DIGEST_BYTES : _QUERY_HEAD], handle[_QUERY_HEAD:]
            return described, text.decode()
    except UnicodeDecodeError:
        pass
    raise SqlError(PROTOCOL_VIOLATION, "the ticket is not one of this server")


def _count_ticket(count: int | None) -> bytes:
    handle = _COUNT_TICKET + (b"" if count is None else str(count).encode())
    return pack("TicketStatementQuery", statement_handle=handle)


def _count_batch(digits: bytes) -> pa.RecordBatch:
    """Return the result of a statement without rows."""
    try:
        count = int(digits) if digits else None
        return pa.RecordBatch.from_pydict({"rows": [count]}, _COUNT_SCHEMA)
    except (ValueError, OverflowError, pa.ArrowInvalid):
        raise SqlError(PROTOCOL_VIOLATION, "the ticket is not one of this server") from None
