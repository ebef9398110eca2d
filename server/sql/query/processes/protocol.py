"""Messages between the server and a query process.

A query process executes one query at a time, with DuckDB. It has a limit of its own for memory, so
that texts and lists that expressions build cannot take the memory of the server. It reads no files,
has no network, and gets the final text of each query with the rows of its tables; the server keeps
everything else: users, entitlement, names, snapshots, conditions that filters decide.

    server                                   process
    START  settings, macros, limit      ->
                                        <-   READY    the memory that it needs by itself
    QUERY  text, values, tables         ->            with the descriptor of the tables' rows
                                        <-   NEXT     the next rows of a stream, as often as needed
    STREAM_ROWS or STREAM_END           ->
                                        <-   NOTIFY   a call of pg_notify, as often as needed
    STREAM_END or STREAM_FAILED         ->
                                        <-   COLUMNS  names and types of the result
                                        <-   ROWS     as often as needed
                                        <-   DONE, or FAILED at any time

Each message is a frame on a Unix socket: one byte for its kind, four for the length of its content.

Rows of tables are Arrow IPC streams one after the other in a memfd, which the process maps: it
copies nothing. The memfd is used by further queries as long as it is large enough, and the process
gets the descriptor of a new one with the query. Tables that are read while they are used, such as
the transaction log, are pulled with NEXT. Rows of results are Arrow IPC streams of one batch. Both
sides write with blocking calls and keep no queue, so a client that does not read suspends its
process: at most one batch waits on each side of the socket. The process always reads, on a thread
of its own.

A cancellation is the number of its query, written to a pipe. The pipe never blocks the server's
event loop, as the socket might. The process interrupts DuckDB until the query has ended. The server
kills a process that has not answered after `CANCEL_GRACE_S`.

The standard input of the process is a pipe, too, to which nothing is written. It is closed by the
kernel when the server has ended, however it ended, and the kernel then signals the process.

The server trusts nothing that a process sends further than Arrow's format and JSON; requests to a
process are pickled.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

MAX_ROW_BYTES: Final = 64 * 1024 * 1024
"""The size of a row of a result. A message of a client has the same limit."""

MAX_BATCH_BYTES: Final = 1024 * 1024
"""The size of a batch of a result, unless it is a single row."""

KEPT_TABLE_BYTES: Final = 64 * 1024 * 1024
"""The size up to which the memory for rows of tables is kept for further queries."""

MAX_FRAME_BYTES: Final = MAX_ROW_BYTES + 16 * 1024 * 1024
"""The size of a frame of a process: a row, with its schema and padding."""

MAX_ERROR_CHARACTERS: Final = 2000
"""The number of characters of an error that the server gets. A query can make an error of any
length, and regular expressions are applied to it."""

CANCEL_GRACE_S: Final = 1.0
"""The time that a process has to end a cancelled query, before it is killed."""

ROW_TOO_LARGE: Final = "RowTooLargeError"
"""The kind of error of a row beyond `MAX_ROW_BYTES`."""

NOT_ONE_QUERY: Final = "NotOneQueryError"
"""The kind of error of a text that DuckDB does not read as one query."""

_HEADER: Final = Struct("<BI")
_STREAM_NUMBER: Final = Struct("<I")
QUERY_NUMBER: Final = Struct("<I")
"""The byte that the server writes to the pipe of cancellations."""


NOTIFY_FUNCTION: Final = "amps_notify"
"""The function of DuckDB that `pg_notify` becomes; a query cannot name it."""


class FrameKind(IntEnum):
    """The kinds of frames; see the module."""

    START = 1
    READY = 2
    QUERY = 3
    COLUMNS = 4
    ROWS = 5
    NEXT = 6
    STREAM_ROWS = 7
    STREAM_END = 8
    STREAM_FAILED = 9
    DONE = 10
    FAILED = 11
    NOTIFY = 12


class StartRequest(NamedTuple):
    """The first message to a process.

    Attributes:
        settings: DuckDB's settings, as SQL writes their values.
        macros: statements that create the functions of PostgreSQL that DuckDB lacks.
        max_memory_bytes: the memory of a query, beyond that of the process itself.
    """

    settings: Mapping[str, str]
    macros: tuple[str, ...]
    max_memory_bytes: int


class TableSegment(NamedTuple):
    """The rows of a table within the memfd of a query.

    Attributes:
        name: the name by which the query reads the table.
        offset: where its Arrow IPC stream begins, in bytes.
        size: the length of the stream in bytes.
    """

    name: str
    offset: int
    size: int


class StreamTable(NamedTuple):
    """A table that is pulled from the server.

    Attributes:
        name: the name by which the query reads the table.
        schema: its columns, as an Arrow IPC message.
    """

    name: str
    schema: bytes


class QueryRequest(NamedTuple):
    """A query.

    Attributes:
        number: identifies the query in cancellations.
        sql: the text, for DuckDB.
        values: the values of its parameters.
        tables: the tables in the memfd; the frame has its descriptor if it is a new one.
        streams: the tables that are pulled.
        batch_rows: the maximum number of rows of a batch; 0 for the columns only.
    """

    number: int
    sql: str
    values: Mapping[str, object]
    tables: tuple[TableSegment, ...] = ()
    streams: tuple[StreamTable, ...] = ()
    batch_rows: int = 0


class QueryFrameError(Exception):
    """A frame is not as it should be: a defect, or a process out of control."""


def frame(kind: FrameKind, content: bytes | memoryview = b"") -> bytes:
    """Return a frame."""
    return b"".join((_HEADER.pack(kind, len(content)), content))


def request_frame(kind: FrameKind, request: StartRequest | QueryRequest) -> bytes:
    """Return a frame of a request."""
    return frame(kind, pickle.dumps(request, pickle.HIGHEST_PROTOCOL))


def stream_frame(kind: FrameKind, number: int, rows: bytes | memoryview = b"") -> bytes:
    """Return a frame about a stream: which one, and rows of it."""
    return frame(kind, b"".join((_STREAM_NUMBER.pack(number), rows)))


def read_stream_frame(content: bytearray) -> tuple[int, memoryview]:
    """Return the number and the rows of a frame about a stream.

    Raises:
        QueryFrameError: it is too short.
    """
    if len(content) < _STREAM_NUMBER.size:
        raise QueryFrameError("a frame about a stream is too short")
    (number,) = _STREAM_NUMBER.unpack_from(content)
    return number, memoryview(content)[_STREAM_NUMBER.size :]


def receive_frame(
    connection: socket.socket, limit: int | None = None
) -> tuple[FrameKind, bytearray, list[int]]:
    """Wait for a frame; return its kind, its content and the descriptors that came with it.

    Args:
        connection: the socket.
        limit: the maximum length of the content in bytes; None for any.

    Raises:
        EOFError: the other side has closed the socket.
        QueryFrameError: the frame is longer than the limit, or of an unknown kind.
        OSError: the socket cannot be read.
    """
    header, descriptors, _, _ = socket.recv_fds(connection, _HEADER.size, 1)
    if not header:
        raise EOFError
    if len(header) < _HEADER.size:
        header += _receive(connection, _HEADER.size - len(header))
    code, size = _HEADER.unpack(header)
    if limit is not None and size > limit:
        raise QueryFrameError(f"a frame of {size} bytes")
    try:
        kind = FrameKind(code)
    except ValueError:
        raise QueryFrameError(f"a frame of the kind {code}") from None
    return kind, _receive(connection, size), descriptors


def _receive(connection: socket.socket, size: int) -> bytearray:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        received = connection.recv_into(view)
        if not received:
            raise EOFError
        view = view[received:]
    return content
