"""Runs one statement for a call: its steps on worker threads, measured, and ended in any case.

A run belongs to gRPC's thread. It occupies a worker thread for one step at a time: while the client
does not read, or while a SUBSCRIBE waits for changes, it occupies none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from server.sql.client_log import end_statement, note_input
from server.sql.flight.errors import internal_error
from server.sql.flight.flight_data import encode_batch, encode_schema
from server.sql.live.feed import LiveWait
from server.sql.query.cancellation import BY_CLIENT
from server.sql.query.errors import SqlError
from server.sql.sqlstate import CONFIGURATION_LIMIT_EXCEEDED, QUERY_CANCELED
from server.sql.statement_executor import MAX_OPEN_RESULTS
from server.sql.statement_meter import StatementMeter

if TYPE_CHECKING:
    from server.sql.flight.client import FlightClient
    from server.sql.flight.statement import FlightStatement

_ResultT = TypeVar("_ResultT")


class StatementRun:
    """A statement in progress; a context, which ends it.

    Args:
        client: the client.
        statement: the statement.
        text: the text that counts as executed; None if it is only described.
        ticket: the ticket by which the client can cancel it.

    Attributes:
        ticket: see above.

    Raises:
        SqlError: the client has too many results open.
    """

    def __init__(
        self,
        client: FlightClient,
        statement: FlightStatement,
        text: str | None,
        ticket: bytes = b"",
    ) -> None:
        self.ticket: Final = ticket
        self._client: Final = client
        self._statement: Final = statement
        self._text: Final = text
        self._step: Future[Any] | None = None
        self._wait: LiveWait | None = None
        self._busy_s = 0.0
        self._metered_s = 0.0
        engine = client.session.engine
        self._meter: Final = StatementMeter(
            engine.sql_counters, lambda: self._metered_s, client.services.slow_query_s
        )

    async def __aenter__(self) -> StatementRun:
        """Begin."""
        client = self._client
        if client.is_closed:
            raise SqlError(QUERY_CANCELED, "the connection was closed")
        if len(client.runs) >= MAX_OPEN_RESULTS:
            raise SqlError(
                CONFIGURATION_LIMIT_EXCEEDED,
                f"a session has at most {MAX_OPEN_RESULTS} results open",
            )
        client.runs.add(self)
        client.post(self._begin)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the statement, when no thread uses it any more."""
        self._client.runs.discard(self)
        failure: SqlError | None = None
        if isinstance(error, SqlError):
            failure = error
        elif isinstance(error, Exception):
            failure = internal_error(error)
        elif error is not None:  # the call was cancelled
            failure = SqlError(QUERY_CANCELED, BY_CLIENT)
        if failure is not None:
            self._statement.cancellation.cancel(failure.message)
        close = self._statement.close
        with suppress(RuntimeError):  # the instance is stopping
            if self._step is None or self._step.done():
                self._client.call(close)
            else:
                self._step.add_done_callback(lambda _: self._client.call(close))
            self._client.post(partial(self._end, failure))

    def cancel(self, reason: str = BY_CLIENT) -> None:
        """Cancel the statement; its call fails."""
        self._statement.cancellation.cancel(reason)
        wait = self._wait
        if wait is not None:
            with suppress(RuntimeError):  # the instance is stopping
                self._client.post(wait.wake)

    async def do(self, function: Callable[[], _ResultT]) -> _ResultT:
        """Call a function on a worker thread; return its result."""
        began_s = time.monotonic()
        future = self._client.call(function)
        self._step = future
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._busy_s += time.monotonic() - began_s

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Execute a statement with rows; yield its result as messages FlightData.

        Raises:
            SqlError: it fails or is cancelled.
        """
        if not await self.do(self._statement.open):
            await self.execute()
            await self.do(self._statement.open)
        yield encode_schema(self._statement.schema)
        while True:
            step = await self.do(self._next)
            if step is None:
                return
            if isinstance(step, LiveWait):
                await self._suspend(step)
                continue
            data, rows = step
            self._client.post(partial(self._add_output, len(data), rows))
            yield data

    async def execute(self) -> int | None:
        """Execute a setting, or a statement that writes; return the number of rows written.

        Raises:
            SqlError: it fails, or is cancelled.
        """
        statement = self._statement
        if not statement.is_write:
            await self.do(statement.apply)
            return None
        async with self._client.write_lock:
            while True:
                awaited = await self.do(statement.write)
                if isinstance(awaited, int):
                    return awaited
                await asyncio.shield(asyncio.wrap_future(awaited))

    def _next(self) -> tuple[bytes, int] | LiveWait | None:
        """Return the next rows as a message, with their number; on a worker thread."""
        batch = self._statement.next_batch()
        if batch is None or isinstance(batch, LiveWait):
            return batch
        return encode_batch(batch), batch.num_rows

    async def _suspend(self, wait: LiveWait) -> None:
        """Wait for changes; no thread is occupied meanwhile."""
        over: Future[None] = Future()

        def resume() -> None:
            with suppress(InvalidStateError):  # the call has ended
                over.set_result(None)

        def begin() -> None:
            wait.begin(resume)
            if self._statement.cancellation.is_cancelled:
                wait.wake()

        self._wait = wait
        self._client.post(begin)
        try:
            await asyncio.wrap_future(over)
        except asyncio.CancelledError:
            self._client.post(wait.end)
            raise
        finally:
            self._wait = None

    # ---- on the engine's thread

    def _begin(self) -> None:
        session = self._client.session
        session.input.messages_in += 1
        session.command = "sql query" if self._text is not None else "sql parse"
        note_input(session)
        self._meter.begin(self._text)

    def _add_output(self, size: int, rows: int) -> None:
        self._client.session.outbox.messages_out += rows
        self._meter.add_output(size, rows)

    def _end(self, failure: SqlError | None) -> None:
        session = self._client.session
        self._metered_s = self._busy_s
        if failure is None:
            end_statement(session, self._meter)
        else:
            end_statement(session, self._meter, failure.sqlstate, failure.message)
