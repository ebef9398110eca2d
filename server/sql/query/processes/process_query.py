"""A query that a process executes: its columns, its rows as they are computed, its end.

A thread that reads the next rows also serves the streams of the query: it reads rows of the
transaction log, for example, when the process asks for them. So streams are read on the thread that
reads the result, and not at all while the client does not read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import pyarrow as pa

from server.sql.query.errors import DuckDbError, SqlError
from server.sql.query.processes import protocol
from server.sql.query.processes.protocol import CANCEL_GRACE_S, FrameKind, QueryRequest, StreamTable
from server.sql.sqlstate import CRASH_SHUTDOWN, FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE
from server.sql.statement_threads import blocking_wait

if TYPE_CHECKING:
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.processes.process_pool import ProcessLease
    from server.sql.tables.history_stream import HistoryStream


Notify: TypeAlias = Callable[[str, str], None]
"""Publishes a payload to a channel."""


class QueryText(NamedTuple):
    """A query for DuckDB.

    Attributes:
        sql: the text.
        values: the values of its parameters.
        tables: its tables by name.
        batch_rows: the maximum number of rows of a batch; 0 for the columns only.
        notify: publishes a payload to a channel, for `pg_notify`; it may raise a SqlError.
    """

    sql: str
    values: Mapping[str, object]
    tables: Mapping[str, pa.Table | HistoryStream]
    batch_rows: int
    notify: Notify | None = None


class ProcessQuery:
    """A query in progress. It has to be read to its end, or closed.

    It is used by one thread at a time, except for `cancel`.

    Args:
        lease: the process.
        number: the number of the query.
        cancellation: cancels the query until it has ended.

    Attributes:
        names: the names of the columns.
        types: their types, as DuckDB writes them.
    """

    def __init__(self, lease: ProcessLease, number: int, cancellation: Cancellation) -> None:
        self.names: list[str] = []
        self.types: list[str] = []
        self._lease: Final = lease
        self._process: Final = lease.process
        self._number: Final = number
        self._cancellation: Final = cancellation
        self._streams: dict[str, HistoryStream] = {}
        self._readers: dict[int, pa.RecordBatchReader] = {}
        self._first: list[pa.RecordBatch] = []
        self._notify: Notify = _refuse_notification
        self._notify_error: SqlError | None = None
        self._lock: Final = threading.Lock()
        self._kill_timer: threading.Timer | None = None
        self._is_ended = False

    def begin(self, text: QueryText) -> None:
        """Send the query; wait for the columns. The tables may be dropped after that.

        Raises:
            DuckDbError: the query fails.
            SqlError: the process ends.
        """
        self._notify = text.notify or _refuse_notification
        tables = {name: table for name, table in text.tables.items() if isinstance(table, pa.Table)}
        self._streams = {
            name: table for name, table in text.tables.items() if not isinstance(table, pa.Table)
        }
        streams = tuple(
            StreamTable(name, stream.schema.serialize().to_pybytes())
            for name, stream in self._streams.items()
        )
        self._cancellation.on_cancel(self.cancel)
        try:
            segments, descriptor = self._process.table_memory.write(tables)
            request = QueryRequest(
                self._number, text.sql, text.values, segments, streams, text.batch_rows
            )
            self._process.query(request, descriptor)
        except BaseException:
            self._end(is_finished=False)
            raise
        kind, content = self._next_frame()
        if kind is not FrameKind.COLUMNS:
            raise self._out_of_turn(kind)
        self.names, self.types = json.loads(content)

    def read_ahead(self) -> None:
        """Read the first rows, for errors that are to be known before the client gets any.

        Raises:
            DuckDbError: the query fails.
            SqlError: the process ends.
        """
        batch = self._next_batch()
        if batch is not None:
            self._first.append(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows.

        Raises:
            DuckDbError: the query fails.
            SqlError: the process ends, or was taken for another query.
        """
        while self._first:
            yield self._first.pop(0)
        while (batch := self._next_batch()) is not None:
            yield batch

    def cancel(self) -> None:
        """Cancel the query; from any thread, without waiting.

        A process that does not end the query in time is killed.
        """
        with self._lock:
            if self._is_ended or self._kill_timer is not None:
                return
            self._process.cancel(self._number)
            self._kill_timer = threading.Timer(CANCEL_GRACE_S, self._process.kill)
            self._kill_timer.daemon = True
            self._kill_timer.start()

    def close(self) -> None:
        """End the query; harmless if it has ended. It does not wait for the process."""
        if not self._is_ended:
            self._process.cancel(self._number)
            self._end(is_finished=False)

    # ---- frames

    def _next_batch(self) -> pa.RecordBatch | None:
        """Return the next rows; None at the end."""
        if self._is_ended:
            return None
        kind, content = self._next_frame()
        if kind is FrameKind.DONE:
            return None
        if kind is not FrameKind.ROWS:
            raise self._out_of_turn(kind)
        with pa.ipc.open_stream(pa.py_buffer(content)) as stream:
            return stream.read_next_batch()

    def _next_frame(self) -> tuple[FrameKind, bytearray]:
        """Wait for a frame of the result; serve streams meanwhile."""
        try:
            self._lease.begin_use()
        except SqlError:
            self._end(is_finished=False)
            raise
        try:
            kind, content = self._receive()
            while kind in (FrameKind.NEXT, FrameKind.NOTIFY):
                answer = self._stream_rows if kind is FrameKind.NEXT else self._publish
                self._process.send(answer(content))
                kind, content = self._receive()
        except SqlError:
            self._end(is_finished=False)
            raise
        finally:
            self._lease.end_use()
        if kind in (FrameKind.DONE, FrameKind.FAILED):
            self._end(is_finished=True)
            if kind is FrameKind.FAILED:
                if self._notify_error is not None:
                    raise self._notify_error
                kinds, text, _ = json.loads(content)
                raise DuckDbError(tuple(kinds), text)
        return kind, content

    def _receive(self) -> tuple[FrameKind, bytearray]:
        with blocking_wait():
            return self._process.receive()

    def _stream_rows(self, content: bytearray) -> bytes:
        """Return the frame that answers a request for rows of a stream."""
        number, name = json.loads(content)
        try:
            reader = self._readers.get(number)
            if reader is None:
                reader = pa.RecordBatchReader.from_stream(self._streams[name])
                self._readers[number] = reader
            batch = reader.read_next_batch()
        except StopIteration:
            del self._readers[number]
            return protocol.stream_frame(FrameKind.STREAM_END, number)
        except Exception:  # any error: the stream has it, as the client gets it
            return protocol.stream_frame(FrameKind.STREAM_FAILED, number)
        rows = memoryview(batch.serialize())
        return protocol.stream_frame(FrameKind.STREAM_ROWS, number, rows)

    def _publish(self, content: bytearray) -> bytes:
        """Publish for `pg_notify`; return the frame that answers the call."""
        number, channel, payload = json.loads(content)
        try:
            _check_channel(channel)
            self._notify(channel, payload or "")
        except SqlError as error:
            self._notify_error = error
            return protocol.stream_frame(FrameKind.STREAM_FAILED, number)
        return protocol.stream_frame(FrameKind.STREAM_END, number)

    def _out_of_turn(self, kind: FrameKind) -> SqlError:
        self._process.kill()
        self._end(is_finished=False)
        return SqlError(CRASH_SHUTDOWN, f"the process of the query sent {kind.name} out of turn")

    def _end(self, *, is_finished: bool) -> None:
        with self._lock:
            if self._is_ended:
                return
            self._is_ended = True
            if self._kill_timer is not None:
                self._kill_timer.cancel()
        self._cancellation.remove(self.cancel)
        self._readers.clear()
        self._lease.give_back(is_finished=is_finished)


def _check_channel(channel: str | None) -> None:
    if not channel:
        raise SqlError(INVALID_PARAMETER_VALUE, "channel name cannot be empty")


def _refuse_notification(channel: str, payload: str) -> None:  # noqa: ARG001 - see `Notify`
    raise SqlError(FEATURE_NOT_SUPPORTED, "pg_notify() cannot be called here")
