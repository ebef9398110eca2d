"""The program of a query process: executes queries with DuckDB, one at a time.

It is started as `python -m server.sql.query.processes.worker SOCKET PIPE`, with the numbers of the
descriptors of its connection and of the pipe of cancellations. `protocol` has the messages.

    main thread     waits for queries, executes them, sends rows
    reader thread   reads the socket and the pipe: queries, rows of streams, cancellations
    DuckDB's        compute, and pull rows of streams

Memory is limited by RLIMIT_DATA: that of the process after its start, and that of a query.
It counts private memory only, so neither DuckDB's code nor mapped rows of tables, which RLIMIT_AS
would count. Arrow's own allocator, and one arena of malloc per thread, would reserve far more than
they use: the server sets ARROW_DEFAULT_MEMORY_POOL and MALLOC_ARENA_MAX. An allocation beyond the
limit fails, which DuckDB reports as an error. Where a library does not, the process ends.

Interrupting DuckDB has no effect before it has begun with the query, so it is repeated.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.abc
import json
import mmap
import os
import pickle
import resource
import select
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from server.sql.query.processes import protocol
from server.sql.query.processes.protocol import (
    KEPT_TABLE_BYTES,
    NOTIFY_FUNCTION,
    FrameKind,
    QueryRequest,
    StartRequest,
)

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from server.sql.query.processes.query_cursors import QueryCursor, QueryCursors

_NICE_INCREMENT: Final = 5
"""Queries run at a lower priority than the server's threads."""

_MAX_FILE_BYTES: Final = 1024 * 1024
"""The process writes nothing but the reason of its end."""

_INTERRUPT_INTERVAL_S: Final = 0.05
"""The interval at which a cancelled query is interrupted until it ends."""

_LIMIT_SLACK_BYTES: Final = 64 * 1024 * 1024
"""Memory beyond that of the query, for stacks of threads, fragments and batches of results."""

_MAX_RETAINED_BYTES: Final = 32 * 1024 * 1024
"""Memory that the process keeps after a query, before malloc is asked to return it."""


_Answers: TypeAlias = "SimpleQueue[tuple[FrameKind, memoryview]]"
"""The answers of the server to one exchange."""


class _NoPandas(importlib.abc.MetaPathFinder):
    """Hides pandas, which DuckDB and Arrow would import to recognize objects: 0.3 s, and 50 MB."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """See `MetaPathFinder`."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


class _CancelledError(Exception):
    """The query has been cancelled while no statement of DuckDB was in progress."""


class _Streams:
    """The tables that are pulled from the server, and the notifications that it publishes.

    Each time that the query reads a table, a stream with a number of its own begins, which has all
    rows. A notification is an exchange with a number, too.
    """

    def __init__(self, send: _Sender) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._last_number = 0
        self._waiting: dict[int, _Answers] = {}

    def receive(self, kind: FrameKind, content: bytearray) -> None:
        """Hand over an answer; on the reader thread."""
        number, rows = protocol.read_stream_frame(content)
        with self._lock:
            answers = self._waiting.get(number)
        if answers is not None:
            answers.put((kind, rows))

    def pull(self, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table; on any thread."""
        import pyarrow as pa

        with self._begin() as (number, answers):
            request = json.dumps([number, name]).encode()
            while True:
                self._send.send(protocol.frame(FrameKind.NEXT, request))
                kind, rows = answers.get()
                if kind is FrameKind.STREAM_END:
                    return
                if kind is FrameKind.STREAM_FAILED:
                    raise OSError("the rows of a table cannot be read")
                yield pa.ipc.read_record_batch(pa.py_buffer(rows), schema)

    def notify(self, channel: str | None, payload: str | None) -> str:
        """Have the server publish; on any thread. It is the function `NOTIFY_FUNCTION` of DuckDB.

        Raises:
            OSError: the server refuses it, and has the reason.
        """
        with self._begin() as (number, answers):
            request = json.dumps([number, channel, payload]).encode()
            self._send.send(protocol.frame(FrameKind.NOTIFY, request))
            kind, _ = answers.get()
        if kind is FrameKind.STREAM_FAILED:
            raise OSError("the server has refused the notification")
        return ""

    @contextmanager
    def _begin(self) -> Iterator[tuple[int, _Answers]]:
        """Begin an exchange: yield its number, and the queue of its answers."""
        answers: _Answers = SimpleQueue()
        with self._lock:
            self._last_number += 1
            number = self._last_number
            self._waiting[number] = answers
        try:
            yield number, answers
        finally:
            with self._lock:
                del self._waiting[number]


class _StreamTable:
    """A table that DuckDB pulls; see Arrow's PyCapsule interface."""

    def __init__(self, streams: _Streams, name: str, schema: pa.Schema) -> None:
        self._streams = streams
        self._name = name
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        """Return the columns without beginning a stream."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Begin a stream."""
        import pyarrow as pa

        batches = self._streams.pull(self._name, self._schema)
        reader = pa.RecordBatchReader.from_batches(self._schema, batches)
        return reader.__arrow_c_stream__(requested_schema)


class _Sender:
    """Sends frames; from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, frames: bytes) -> None:
        """Send some frames; wait until the socket has taken them."""
        with self._lock:
            self._connection.sendall(frames)


class _Interrupter:
    """Interrupts the query in progress, if that is the cancelled one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running_number = 0
        self._cancelled_number = 0
        self._cursor: duckdb.DuckDBPyConnection | None = None

    def begin(self, number: int, cursor: duckdb.DuckDBPyConnection) -> None:
        """Note the query in progress."""
        with self._lock:
            self._running_number = number
            self._cursor = cursor

    def end(self) -> None:
        """Note that no query is in progress any more."""
        with self._lock:
            self._running_number = 0
            self._cursor = None

    def cancel(self, number: int) -> None:
        """Cancel a query, or one that begins soon."""
        with self._lock:
            self._cancelled_number = number
        self.interrupt()

    @property
    def is_cancelled(self) -> bool:
        """Whether the query in progress is cancelled."""
        with self._lock:
            return self._running_number != 0 and self._running_number == self._cancelled_number

    def interrupt(self) -> None:
        """Interrupt the query in progress, if it is cancelled."""
        with self._lock:
            if self._cursor is not None and self._running_number == self._cancelled_number:
                self._cursor.interrupt()

    def check(self) -> None:
        """Raise an error if the query is cancelled."""
        if self.is_cancelled:
            raise _CancelledError


class Worker:
    """Executes the queries of the server.

    Args:
        connection: the socket to the server.
        cancel_pipe: the descriptor from which cancellations are read.
    """

    def __init__(self, connection: socket.socket, cancel_pipe: int) -> None:
        self._connection: Final = connection
        self._cancel_pipe: Final = cancel_pipe
        self._sender: Final = _Sender(connection)
        self._streams: Final = _Streams(self._sender)
        self._interrupter: Final = _Interrupter()
        self._requests: SimpleQueue[tuple[QueryRequest, list[int]]] = SimpleQueue()
        self._base_bytes = 0
        self._table_memory: mmap.mmap | None = None

    def run(self) -> None:
        """Serve until the server closes the connection."""
        _, content, _ = protocol.receive_frame(self._connection)
        start: StartRequest = pickle.loads(content)  # noqa: S301 - from the server
        database = _open_database(start, self._streams)
        threading.Thread(target=self._read, daemon=True).start()
        _limit_memory(start.max_memory_bytes)
        self._base_bytes = _private_bytes()
        self._sender.send(protocol.frame(FrameKind.READY))
        from server.sql.query.processes.query_cursors import QueryCursors

        cursors = QueryCursors(database)
        while True:
            request, descriptors = self._requests.get()
            self._answer(cursors, request, descriptors)

    # ---- the reader thread

    def _read(self) -> None:
        """Read the socket and the pipe; end the process when the server is gone."""
        descriptors = [self._connection.fileno(), self._cancel_pipe]
        try:
            while True:
                wait_s = _INTERRUPT_INTERVAL_S if self._interrupter.is_cancelled else None
                readable, _, _ = select.select(descriptors, [], [], wait_s)
                if self._cancel_pipe in readable:
                    number = os.read(self._cancel_pipe, protocol.QUERY_NUMBER.size)
                    self._interrupter.cancel(*protocol.QUERY_NUMBER.unpack(number))
                else:
                    self._interrupter.interrupt()
                if descriptors[0] in readable:
                    self._receive()
        finally:
            os._exit(0)

    def _receive(self) -> None:
        kind, content, descriptors = protocol.receive_frame(self._connection)
        if kind is FrameKind.QUERY:
            self._requests.put((pickle.loads(content), descriptors))  # noqa: S301 - see above
        else:
            self._streams.receive(kind, content)

    # ---- queries

    def _answer(
        self, cursors: QueryCursors, request: QueryRequest, descriptors: Sequence[int]
    ) -> None:
        """Execute a query, and report its end."""
        opened: QueryCursor | None = None
        try:
            opened = cursors.open(
                self._read_tables(request, descriptors), self._streams_of(request)
            )
            self._interrupter.begin(request.number, opened.cursor)
            self._execute(cursors, opened.cursor, request)
        except BaseException as error:
            failure: Any = _described(error)
        else:
            failure = None
        self._interrupter.end()
        if opened is not None:
            cursors.release(opened, is_finished=failure is None)
        if self._table_memory is not None and len(self._table_memory) > KEPT_TABLE_BYTES:
            self._table_memory = None  # unmapped with the last buffer of Arrow
        retained = self._retained_bytes()
        if failure is None:
            self._sender.send(protocol.frame(FrameKind.DONE, json.dumps(retained).encode()))
        else:
            content = json.dumps([*failure, retained]).encode()
            self._sender.send(protocol.frame(FrameKind.FAILED, content))

    def _execute(
        self, cursors: QueryCursors, cursor: duckdb.DuckDBPyConnection, request: QueryRequest
    ) -> None:
        from server.sql.query.processes.result_batches import result_batches, to_stream

        self._interrupter.check()
        if not cursors.is_query(cursor, request.sql):
            # All of it has been checked as one query, so the text would mean something else.
            raise _NotOneQueryError
        values = dict(request.values)
        relation = cursor.sql(request.sql, params=values) if values else cursor.sql(request.sql)
        columns = [list(relation.columns), [str(kind) for kind in relation.types]]
        frames = protocol.frame(FrameKind.COLUMNS, json.dumps(columns).encode())
        if not request.batch_rows:
            self._sender.send(frames)
            return
        reader = relation.to_arrow_reader(request.batch_rows)
        try:
            for batch in reader:
                self._interrupter.check()
                for part in result_batches(batch):
                    frames += protocol.frame(FrameKind.ROWS, memoryview(to_stream(part)))
                    self._sender.send(frames)
                    frames = b""
        finally:
            if frames:
                self._sender.send(frames)

    def _read_tables(
        self, request: QueryRequest, descriptors: Sequence[int]
    ) -> Mapping[str, pa.Table]:
        """Return the tables of a query that are in shared memory."""
        import pyarrow as pa

        for descriptor in descriptors:
            try:
                self._table_memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
            finally:
                os.close(descriptor)
        if self._table_memory is None:
            return {}
        tables: dict[str, pa.Table] = {}
        memory = pa.py_buffer(self._table_memory)
        for name, offset, size in request.tables:
            with pa.ipc.open_stream(memory.slice(offset, size)) as stream:
                tables[name] = stream.read_all()
        return tables

    def _streams_of(self, request: QueryRequest) -> Mapping[str, _StreamTable]:
        """Return the tables of a query that are pulled."""
        import pyarrow as pa

        return {
            name: _StreamTable(self._streams, name, pa.ipc.read_schema(pa.py_buffer(described)))
            for name, described in request.streams
        }

    def _retained_bytes(self) -> int:
        """Return the memory that the process has taken since its start."""
        retained = _private_bytes() - self._base_bytes
        if retained > _MAX_RETAINED_BYTES:
            _return_free_memory()
            retained = _private_bytes() - self._base_bytes
        return max(0, retained)


class _NotOneQueryError(Exception):
    """DuckDB does not read the text as one query."""


def _described(error: BaseException) -> tuple[list[str], str]:
    """Return the names of an error's classes, and its text."""
    kinds = [kind.__name__.removeprefix("_") for kind in type(error).__mro__]
    if isinstance(error, _CancelledError):
        kinds = ["InterruptException"]
    return kinds, str(error)[: protocol.MAX_ERROR_CHARACTERS]


def _open_database(start: StartRequest, streams: _Streams) -> duckdb.DuckDBPyConnection:
    """Open DuckDB, with everything imported that the first query would import."""
    import duckdb
    import pyarrow as pa
    from duckdb.func import FunctionNullHandling

    database = duckdb.connect(":memory:")
    for name, value in start.settings.items():
        database.execute(f"SET GLOBAL {name} = {value}")
    for statement in start.macros:
        database.execute(statement)
    database.create_function(
        NOTIFY_FUNCTION,
        streams.notify,
        ["VARCHAR", "VARCHAR"],
        "VARCHAR",
        side_effects=True,
        null_handling=FunctionNullHandling.SPECIAL,
    )
    database.execute("SET lock_configuration = true")
    with database.cursor() as cursor:
        cursor.register("t0", pa.table({"a": [1]}))
        cursor.sql('SELECT "a" FROM "t0"').to_arrow_reader(1).read_all()
    return database


def _prepare_process() -> None:
    """Lower the priority, and end when the server ends."""
    os.nice(_NICE_INCREMENT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):  # a kernel without it
        Path("/proc/self/oom_score_adj").write_text("1000")
    # A signal that ends the process when the server's end of the standard input is closed: it
    # takes effect whatever the threads do.
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([0], [], [], 0)[0]:  # it has ended already
        os._exit(0)


def _limit_memory(max_memory_bytes: int) -> None:
    """Limit memory to that of the process now and that of a query; the limit is final."""
    limit = _data_bytes() + max_memory_bytes + _LIMIT_SLACK_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))


def _data_bytes() -> int:
    """Return the private memory that the process may write to, used or not."""
    with open("/proc/self/statm", "rb") as status:
        return int(status.read().split()[5]) * mmap.PAGESIZE


def _private_bytes() -> int:
    """Return the memory that the process uses and shares with no other."""
    with open("/proc/self/statm", "rb") as status:
        fields = status.read().split()
    return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE


def _return_free_memory() -> None:
    """Return free memory to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def main() -> None:
    """Run the process."""
    _prepare_process()
    sys.meta_path.insert(0, _NoPandas())
    connection_number, cancel_pipe = map(int, sys.argv[1:])
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        Worker(socket.socket(fileno=connection_number), cancel_pipe).run()


if __name__ == "__main__":
    main()
