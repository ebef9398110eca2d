"""Non-blocking standard output and standard error of a running server.

Warnings of Python, and output of users' modules, would block the engine while a pipe is not read
or the terminal is stopped. So threads write them. Text that does not fit into a queue, because the
descriptor takes no data, is lost.

Log targets do not use these streams: they have threads of their own (server/log/target_writer.py).
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO, cast

_MAX_BYTES: Final = 256 * 1024
_END_TIMEOUT_S: Final = 1.0
"""How long the shutdown waits for each descriptor."""


def takes_data(descriptor: int) -> bool:
    """Return whether a short write would not block at present."""
    return bool(select.select((), (descriptor,), (), 0)[1])


@contextmanager
def background_output() -> Iterator[None]:
    """Replace `sys.stdout` and `sys.stderr` by streams that never block."""
    before = sys.stdout, sys.stderr
    streams = [_BackgroundStream(stream) for stream in before if stream is not None]
    if len(streams) == len(before):
        sys.stdout, sys.stderr = (cast("TextIO", stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            stream.finish()


class _BackgroundStream(io.TextIOBase):
    """Queues text for a thread that writes it to the descriptor of another stream."""

    def __init__(self, stream: TextIO) -> None:
        self._descriptor: Final = stream.fileno()
        self._encoding: Final = stream.encoding
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0  # includes those being written
        # Its lock is reentrant, because a signal handler may print in the middle of a print.
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has an attribute
        """The encoding of the stream that is replaced."""
        return self._encoding

    def fileno(self) -> int:
        """Return the descriptor that the thread writes to."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Queue a text, or drop it if the queue is full; return its length."""
        octets = text.encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._queued_bytes + len(octets) <= _MAX_BYTES:
                self._queue.append(octets)
                self._queued_bytes += len(octets)
                self._changed.notify_all()
                if self._thread is None:
                    name = f"output {self._descriptor}"
                    self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                    self._thread.start()
        return len(text)

    def finish(self) -> None:
        """Wait until everything has been written, at most `_END_TIMEOUT_S`."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        with self._changed:
            while self._queued_bytes and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                octets = b"".join(self._queue)
                self._queue.clear()
            self._write(octets)
            with self._changed:
                self._queued_bytes -= len(octets)
                self._changed.notify_all()

    def _write(self, octets: bytes) -> None:
        while octets:
            try:
                octets = octets[os.write(self._descriptor, octets) :]
            except BlockingIOError:  # a pipe that another process made non-blocking
                select.select((), (self._descriptor,), ())
            except OSError:
                return  # the pipe is closed, or the disk is full
