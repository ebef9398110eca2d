"""A thread that sends large amounts of data over a connection.

The kernel copies the bytes sent and, for a peer on the same machine, also does the work of the
receiving end. For replicated messages, that costs the engine's thread more than all the rest, so it
passes them to this thread. Data passed during a send is batched into the next send.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final

from server.replication.transport.socket_send import send_all

MAX_UNSENT_BYTES: Final = 1 << 20
"""Bytes not yet accepted by the kernel above which a connection is not ready for more."""

_MIN_UNSENT: Final = MAX_UNSENT_BYTES // 4


class BulkSender:
    """Sends over a connection on a thread, while the event loop reads from it.

    Nothing else may be written to the connection before the sender is idle.

    Args:
        connection: the connection. The sender duplicates its descriptor, so `finish` or `stop` has
            to be called once.
        post: schedules a call on the engine's thread.
        on_drained: called there when the unsent bytes have fallen below the lower limit.
        on_lost: called there when the connection has failed.
    """

    def __init__(
        self,
        connection: socket.socket,
        post: Callable[[Callable[[], None]], object],
        on_drained: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._post = post
        self._on_drained = on_drained
        self._on_lost = on_lost
        self._queue: SimpleQueue[Sequence[bytes] | None] = SimpleQueue()
        self._queued_bytes = 0  # total bytes; written by the engine's thread only
        self._sent_bytes = 0  # total bytes; written by the sending thread only
        self._is_full = False
        self._on_finished: Callable[[], None] | None = None  # called at the end
        self._thread = Thread(target=self._run, name="replication-send", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """True if all data has been sent."""
        return self._queued_bytes == self._sent_bytes

    def send(self, data: Sequence[bytes]) -> bool:
        """Send bytes; return True if there is room for more, else `on_drained` is called later."""
        self._queued_bytes += sum(map(len, data))
        self._queue.put(data)
        if self._queued_bytes - self._sent_bytes <= MAX_UNSENT_BYTES:
            return True
        # The thread reads this flag after it has updated `_sent_bytes`, so one of the two sees the
        # other.
        self._is_full = True
        if self._queued_bytes - self._sent_bytes > _MIN_UNSENT:
            return False
        self._is_full = False
        return True

    def finish(self, callback: Callable[[], None]) -> None:
        """Send the data in the queue, then nothing more.

        Args:
            callback: called on the engine's thread after that.
        """
        self._on_finished = callback
        self._queue.put(None)

    def stop(self) -> None:
        """Send nothing more: the connection is lost."""
        with suppress(OSError):  # already closed
            self._socket.shutdown(socket.SHUT_RDWR)
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while pieces := self._next_pieces():
                send_all(self._socket.fileno(), pieces)
                self._sent_bytes += sum(map(len, pieces))
                if self._is_full and self._queued_bytes - self._sent_bytes <= _MIN_UNSENT:
                    self._is_full = False
                    self._call_engine(self._on_drained)
        except OSError:
            self._call_engine(self._on_lost)
        self._call_engine(self._close)

    def _next_pieces(self) -> list[bytes]:
        """Return all data in the queue, waiting for some; empty at the end."""
        pieces: list[bytes] = []
        while not pieces or not self._queue.empty():
            data = self._queue.get()
            if data is None:
                self._queue.put(None)  # for the next call
                break
            pieces += data
        return pieces

    def _close(self) -> None:
        self._socket.close()
        if self._on_finished is not None:
            self._on_finished()

    def _call_engine(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._post(callback)
