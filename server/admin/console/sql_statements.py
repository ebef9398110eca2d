"""`/console/sql`: executes SQL, and streams the result as lines of JSON.

    POST /console/sql         {"statement": "SELECT ...", "rows": 1000}
    POST /console/sql/more    {"id": "..."}   the next rows of a statement that waits
    POST /console/sql/cancel  {"id": "..."}   cancels a statement

The lines of the answer; empty ones show that the statement still runs:

    {"id": "...", "live": false}                 `live`: a SUBSCRIBE, without an end
    {"columns": [{"name": "qty", "type": "bigint"}, ...]}
    {"rows": [["12", null], ...]}                texts as psql shows them; null is NULL
    {"more": true}                               `rows` rows have been sent, and there are more
    {"tag": "SELECT 2"}
    {"error": {"code": "42P01", "message": ..., "detail": ..., "hint": ..., "position": 15}}
    {"end": true}                                the answer is complete

Each statement has a connection of its own (`LocalClient`). It is cancelled if the requester goes
away, and suspended while the requester does not read. A SUBSCRIBE is executed as a cursor: its
changes are fetched as soon as the previous ones have been sent.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import msgspec

from server.admin.console.assets import SQL_PATH
from server.admin.http.limits import SEND_CHUNK_SIZE
from server.admin.http.messages import HttpDocument, HttpError, HttpRequest, HttpResponse
from server.sql.local_client import LocalClient, LocalConnectionLostError, LocalLogonError
from server.sql.postgres.errors import Diagnostic
from server.sql.postgres.server_messages import (
    ColumnsMessage,
    ErrorMessage,
    ReadyMessage,
    RowMessage,
    ServerMessage,
    TagMessage,
)
from server.sql.query.pg_types import TYPES
from server.sql.services import CancelKey
from server.sql.sqlstate import (
    CONNECTION_FAILURE,
    INVALID_AUTHORIZATION,
    QUERY_CANCELED,
    TOO_MANY_CONNECTIONS,
)

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.csrf import CsrfProtection
    from server.admin.engine_calls import EngineCalls
    from server.sql.local_client import LocalSqlTransport

_MORE: Final = "more"
_CANCEL: Final = "cancel"

MAX_STATEMENTS: Final = 20
"""Statements at a time, of all requesters together."""

MAX_ROWS: Final = 10_000
"""Rows that a requester may ask for at once."""

_DEFAULT_ROWS: Final = 1_000
_MORE_TIMEOUT_S: Final = 300.0
"""How long a result waits for its requester to ask for more rows."""

_KEEPALIVE_S: Final = 2.0
"""The longest silence on a stream: writing to it detects a requester that has gone."""

_NDJSON: Final = "application/x-ndjson"
_APPLICATION: Final = "console"

_SUBSCRIBE: Final = re.compile(
    r"(?:\s|--[^\n]*+(?:\n|$)|/\*.*?\*/)*+SUBSCRIBE\b", re.IGNORECASE | re.DOTALL
)
_DECLARE: Final = "DECLARE changes CURSOR FOR "
_FETCH: Final = "FETCH ALL changes"


_TYPE_NAMES: Final = {
    oid: name
    for known in TYPES
    for oid, name in (
        (known.array_oid, f"{known.sql_name}[]"),
        (known.oid, known.sql_name),
    )
}

_BodyT = TypeVar("_BodyT")
_Values: TypeAlias = Sequence[str | None]


class _StatementBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to execute a statement."""

    statement: str
    rows: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] = _DEFAULT_ROWS


class _IdBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request about a statement that runs."""

    id: str


@dataclass(slots=True)
class _RunningStatement:
    """A statement that has not ended.

    Attributes:
        user: the user that executes it.
        transport: the transport that executes it.
        more_requested: set when the requester asks for more rows.
        cancel_key: the key that cancels it; None until it begins.
    """

    user: str
    transport: LocalSqlTransport
    more_requested: asyncio.Event = field(default_factory=asyncio.Event)
    cancel_key: CancelKey | None = None


class SqlStatements:
    """Executes statements for requesters of the admin interface.

    Args:
        access: authenticates requesters, and checks their entitlement to the path.
        csrf: refuses pages of other sites.
        engine_calls: runs calls on the engine's thread.
    """

    def __init__(
        self, access: AccessControl, csrf: CsrfProtection, engine_calls: EngineCalls
    ) -> None:
        self._access: Final = access
        self._csrf: Final = csrf
        self._engine_calls: Final = engine_calls
        self._running: dict[str, _RunningStatement] = {}

    async def handle_request(
        self, request: HttpRequest, requester: Requester, transport: LocalSqlTransport
    ) -> HttpResponse:
        """Execute statements, and return a stream of the lines above; or continue or cancel them.

        Args:
            request: the request.
            requester: its sender.
            transport: the transport that executes new statements.

        Raises:
            HttpError: the requester may not use this path, the request may come from a page of
                another site, its body is not as expected, or the requester has no such statement.
        """
        match request.segments[len(SQL_PATH) :]:
            case ():
                return await self._execute(request, requester, transport)
            case (part,) if part == _MORE:
                return await self._continue(request, requester)
            case (part,) if part == _CANCEL:
                return await self._cancel(request, requester)
        raise HttpError(404, "There is no such path.")

    async def _execute(
        self, request: HttpRequest, requester: Requester, transport: LocalSqlTransport
    ) -> HttpResponse:
        requester = await self._authorize(request, requester)
        body = _decode(request, _StatementBody)
        return HttpResponse(
            self._stream(requester, body, transport),
            content_type=_NDJSON,
            headers=[("Cache-Control", "no-store")],
        )

    async def _continue(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Continue a statement that waits after as many rows as its requester asked for."""
        running = await self._find(request, requester)
        running.more_requested.set()
        return _no_content()

    async def _cancel(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        running = await self._find(request, requester)
        key = running.cancel_key
        if key is not None:
            self._engine_calls.post(lambda: running.transport.cancel(key))
        running.more_requested.set()  # a result that waits goes on, and finds that it is cancelled
        return _no_content()

    async def _authorize(self, request: HttpRequest, requester: Requester) -> Requester:
        """Return the requester, with the user; also for a path of AnonymousPaths."""
        self._csrf.refuse_foreign_request(request)
        if self._csrf.is_forgeable(request):
            raise HttpError(403, "A browser asks for this without the header X-Requested-With.")
        if requester.is_exempt:
            requester = await self._access.log_on(request)
        await self._access.require_access(requester, "/" + "/".join(SQL_PATH))
        return requester

    async def _find(self, request: HttpRequest, requester: Requester) -> _RunningStatement:
        requester = await self._authorize(request, requester)
        running = self._running.get(_decode(request, _IdBody).id)
        if running is None or running.user != requester.user:
            raise HttpError(404, "There is no such statement any more.")
        return running

    async def _stream(
        self, requester: Requester, body: _StatementBody, transport: LocalSqlTransport
    ) -> AsyncGenerator[bytes, None]:
        if len(self._running) >= MAX_STATEMENTS:
            text = f"{MAX_STATEMENTS} statements are being executed already"
            yield _error_line(Diagnostic(TOO_MANY_CONNECTIONS, text)) + _line(end=True)
            return
        identity = secrets.token_urlsafe(16)
        running = self._running[identity] = _RunningStatement(requester.user, transport)
        client: LocalClient | None = None
        try:
            client = await LocalClient.connect(
                transport,
                self._engine_calls.run_coroutine,
                requester.user,
                requester.address,
                _APPLICATION,
            )
            running.cancel_key = client.cancel_key
            result = _ResultStream(client, running, body)
            yield _line(id=identity, live=result.is_live)
            async with aclosing(result.lines()) as lines:
                async for line in lines:
                    for start in range(0, len(line), SEND_CHUNK_SIZE):
                        yield line[start : start + SEND_CHUNK_SIZE]
        except (LocalLogonError, HttpError) as error:
            yield _error_line(Diagnostic(INVALID_AUTHORIZATION, str(error)))
        except LocalConnectionLostError as error:
            yield _error_line(Diagnostic(CONNECTION_FAILURE, str(error)))
        finally:
            del self._running[identity]
            if client is not None:
                client.close()
        yield _line(end=True)


class _ResultStream:
    """The result of statements, as lines.

    Args:
        client: the connection that executes them.
        running: says when more rows are asked for.
        body: the statements, and the number of rows.

    Attributes:
        is_live: whether it is a SUBSCRIBE.
    """

    def __init__(
        self, client: LocalClient, running: _RunningStatement, body: _StatementBody
    ) -> None:
        self.is_live: Final = _SUBSCRIBE.match(body.statement) is not None
        self._client: Final = client
        self._running: Final = running
        self._text: Final = body.statement
        self._row_limit: Final = body.rows
        self._left = body.rows  # rows that may be sent before the requester asks for more
        self._columns: Sequence[tuple[str, int]] | None = None
        self._has_failed = False

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Execute the statements, and yield the lines of their results."""
        texts: Iterable[str] = [self._text]
        if self.is_live:
            texts = chain(["BEGIN", _DECLARE + self._text], repeat(_FETCH))
        for text in texts:
            self._client.send(text)
            async with aclosing(self._answer()) as answer:
                async for line in answer:
                    yield line
            if self._has_failed:
                return

    async def _answer(self) -> AsyncGenerator[bytes, None]:
        """Yield the lines of the results of one text."""
        while True:
            messages = await self._receive()
            if not messages:
                yield b"\n"
            for is_row, group in groupby(messages, lambda message: isinstance(message, RowMessage)):
                if is_row:
                    values = [
                        message.values for message in group if isinstance(message, RowMessage)
                    ]
                    async with aclosing(self._row_lines(values)) as lines:
                        async for line in lines:
                            yield line
                    if self._has_failed:
                        return
                    continue
                for message in group:
                    if isinstance(message, ReadyMessage):
                        return
                    yield self._line_of(message)

    async def _row_lines(self, rows: list[_Values]) -> AsyncGenerator[bytes, None]:
        """Yield rows as lines; after as many as the requester wanted, wait for it to want more."""
        while rows:
            if not self._left:
                async with aclosing(self._wait_for_more()) as lines:
                    async for line in lines:
                        yield line
                if self._has_failed:
                    return
            count = len(rows) if self.is_live else min(len(rows), self._left)
            yield _line(rows=rows[:count])
            del rows[:count]
            if not self.is_live:
                self._left -= count

    async def _receive(self) -> Sequence[ServerMessage]:
        """Return the next messages; none after a while."""
        try:
            async with asyncio.timeout(_KEEPALIVE_S):
                return await self._client.receive()
        except TimeoutError:
            return ()

    def _line_of(self, message: ServerMessage) -> bytes:
        """Return the line of a message that is no row; empty if it has none."""
        match message:
            case ColumnsMessage(columns):
                if self.is_live and columns == self._columns:
                    return b""
                self._columns = columns
                named = [
                    {"name": name, "type": _TYPE_NAMES.get(oid, "text")} for name, oid in columns
                ]
                return _line(columns=named)
            case TagMessage(tag):
                return b"" if self.is_live else _line(tag=tag)
            case ErrorMessage(diagnostic):
                self._has_failed = True
                if self.is_live and diagnostic.position:
                    position = max(0, diagnostic.position - len(_DECLARE))
                    diagnostic = diagnostic._replace(position=position)
                return _error_line(diagnostic)
            case _:
                return b""

    async def _wait_for_more(self) -> AsyncGenerator[bytes, None]:
        """Yield lines until the requester asks for more rows."""
        requested = self._running.more_requested
        requested.clear()
        yield _line(more=True)
        deadline_s = asyncio.get_running_loop().time() + _MORE_TIMEOUT_S
        while not requested.is_set():
            if asyncio.get_running_loop().time() >= deadline_s:
                self._has_failed = True
                text = "canceling statement, as no more rows were asked for"
                yield _error_line(Diagnostic(QUERY_CANCELED, text))
                return
            try:
                await asyncio.wait_for(requested.wait(), _KEEPALIVE_S)
            except TimeoutError:
                yield b"\n"
        self._left = self._row_limit


def _decode(request: HttpRequest, body_type: type[_BodyT]) -> _BodyT:
    """Return the body of a request.

    Raises:
        HttpError: it is not as expected.
    """
    try:
        return msgspec.json.decode(request.body, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f"The body is not as expected: {error}.") from None


def _line(**content: object) -> bytes:
    return msgspec.json.encode(content) + b"\n"


def _error_line(diagnostic: Diagnostic) -> bytes:
    return _line(
        error={
            "code": diagnostic.sqlstate,
            "message": diagnostic.message,
            "detail": diagnostic.detail,
            "hint": diagnostic.hint,
            "position": diagnostic.position,
        }
    )


def _no_content() -> HttpResponse:
    return HttpResponse(HttpDocument(b"", ""), 204, headers=[("Cache-Control", "no-store")])
