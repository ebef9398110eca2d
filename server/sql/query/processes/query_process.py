"""A query process, as the server sees it: its start, frames, cancellations and end.

The process is a new program, not a copy of the server: it has none of the server's memory, files
and locks. Its standard error is a file in memory; the last lines have the reason of its end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from signal import SIGKILL, Signals
from typing import Final

from server.sql.query.errors import MEMORY_HINT, SqlError
from server.sql.query.processes import protocol
from server.sql.query.processes.protocol import (
    CANCEL_GRACE_S,
    FrameKind,
    QueryFrameError,
    QueryRequest,
    StartRequest,
)
from server.sql.query.processes.table_memory import TableMemory
from server.sql.sqlstate import CRASH_SHUTDOWN, OUT_OF_MEMORY

_MODULE: Final = "server.sql.query.processes.worker"

_VARIABLES: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Variables of the environment of a process: see `worker` for the allocators. numpy, which Arrow
imports, would start threads for its algebra."""

_MAX_LAST_WORDS: Final = 4000
"""Bytes of a process's standard error that are read."""

_MEMORY_WORDS: Final = (b"bad_alloc", b"MemoryError", b"Out of Memory", b"Cannot allocate memory")
"""Words in the standard error of a process that has ended because it got no more memory."""


class QueryProcess:
    """A process that executes queries, one at a time.

    It is used by one thread at a time, except for `cancel` and `kill`, which never block and may be
    called from any thread.

    Args:
        start: its settings.

    Attributes:
        settings: its settings.
        retained_bytes: the memory that it has kept after its last query, beyond what it needs by
            itself.
        table_memory: the memory for rows of tables.

    Raises:
        SqlError: it cannot be started.
    """

    def __init__(self, start: StartRequest) -> None:
        self.settings: Final = start
        self.retained_bytes = 0
        self.table_memory: Final = TableMemory()
        self._lock: Final = threading.Lock()
        self._is_killed = False
        self._connection, theirs = socket.socketpair()
        cancel_reader, self._cancel_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._last_words: Final = os.memfd_create("query-process-stderr", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno()), str(cancel_reader)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._last_words,
                pass_fds=(theirs.fileno(), cancel_reader),
                cwd="/",
                env=_environment(),
                start_new_session=True,  # a signal of a terminal is for the server
            )
        except OSError as error:
            self._close_descriptors()
            raise SqlError(
                CRASH_SHUTDOWN, f"no process for the query could be started: {error.strerror}"
            ) from None
        finally:
            theirs.close()
            os.close(cancel_reader)
        self.pid: Final = self._process.pid
        try:
            self.send(protocol.request_frame(FrameKind.START, start))
            self.receive()
        except SqlError:
            self.close()
            raise

    def send(self, frames: bytes, descriptor: int | None = None) -> None:
        """Send frames, with a descriptor if there is one; wait until the process takes them.

        Raises:
            SqlError: the process has ended.
        """
        try:
            if descriptor is not None:
                sent = socket.send_fds(self._connection, [frames], [descriptor])
                frames = frames[sent:]
            self._connection.sendall(frames)
        except OSError:
            raise self._ended() from None

    def query(self, request: QueryRequest, descriptor: int | None) -> None:
        """Send a query; see `send`."""
        self.send(protocol.request_frame(FrameKind.QUERY, request), descriptor)

    def receive(self) -> tuple[FrameKind, bytearray]:
        """Wait for the next frame.

        Raises:
            SqlError: the process has ended.
        """
        try:
            kind, content, _ = protocol.receive_frame(self._connection, protocol.MAX_FRAME_BYTES)
        except (EOFError, OSError):
            raise self._ended() from None
        except QueryFrameError as error:
            self.kill()
            raise SqlError(CRASH_SHUTDOWN, f"the process of the query sent {error}") from None
        if kind is FrameKind.DONE:
            self.retained_bytes = json.loads(content)
        elif kind is FrameKind.FAILED:
            self.retained_bytes = json.loads(content)[-1]
        else:
            return kind, content
        self.table_memory.release_excess()
        return kind, content

    def finish_cancelled(self) -> bool:
        """Read the rest of a cancelled query; return whether the process can be used further.

        It takes `CANCEL_GRACE_S` at most: the process is killed then.
        """
        timer = threading.Timer(CANCEL_GRACE_S, self.kill)
        timer.daemon = True
        timer.start()
        try:
            while True:
                kind, content = self.receive()
                if kind in (FrameKind.DONE, FrameKind.FAILED):
                    return self.is_alive
                if kind in (FrameKind.NEXT, FrameKind.NOTIFY):
                    number = json.loads(content)[0]
                    self.send(protocol.stream_frame(FrameKind.STREAM_FAILED, number))
        except SqlError:
            return False
        finally:
            timer.cancel()

    def cancel(self, number: int) -> None:
        """Cancel a query by its number; harmless if it has ended."""
        with self._lock, suppress(OSError):
            if self._cancel_writer >= 0:
                os.write(self._cancel_writer, protocol.QUERY_NUMBER.pack(number))

    def kill(self) -> None:
        """Kill the process."""
        self._is_killed = True
        self._process.kill()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self._is_killed and self._process.poll() is None

    def close(self) -> None:
        """End the process, and wait for its end: some milliseconds."""
        self.kill()
        self._process.wait()
        self.table_memory.close()
        with self._lock:
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        self._connection.close()
        for descriptor in (self._cancel_writer, self._last_words):
            os.close(descriptor)
        self._cancel_writer = -1

    def _ended(self) -> SqlError:
        """Return the error of a query after the end of its process."""
        code = self._process.wait()
        with suppress(OSError):
            words = os.pread(self._last_words, _MAX_LAST_WORDS, 0)
            if any(word in words for word in _MEMORY_WORDS):
                return SqlError(
                    OUT_OF_MEMORY,
                    "out of memory: the process of the query needs more than MaxMemory",
                    hint=MEMORY_HINT,
                )
        hint = None
        if code == -SIGKILL and not self._is_killed:
            hint = "The system does so when the memory of the machine is used up."
        cause = f"with the code {code}" if code >= 0 else f"by the signal {Signals(-code).name}"
        return SqlError(CRASH_SHUTDOWN, f"the process of the query was ended {cause}", hint=hint)


def _environment() -> Mapping[str, str]:
    """Return the variables of a process: those of the server, with the places of its modules."""
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
    return {**os.environ, **_VARIABLES, "PYTHONPATH": path}
