"""A thread that sends large amounts of data over a connection.

The kernel copies the bytes sent and, for a peer on the same machine, also does the work of the
receiving end. For replicated messages, that costs the engine's thread more than all the rest, so it
hands them over to this thread. Data handed over during a send is batched into the next send.
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

    Nothing else may be written to the connection before the carrier is idle.

    Args:
        held: the connection. The carrier duplicates its descriptor, so `finish` or `stop` has to be
            called once.
        post: schedules a call on the engine's thread.
        relieved: called there when the unsent bytes have fallen below the lower limit.
        lost: called there when the connection has failed.
    """

    def __init__(
        self,
        held: socket.socket,
        post: Callable[[Callable[[], None]], object],
        relieved: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._socket = socket.socket(fileno=os.dup(held.fileno()))
        self._post = post
        self._relieved = relieved
        self._lost = lost
        self._queue: SimpleQueue[Sequence[bytes] | None] = SimpleQueue()
        self._given = 0  # total bytes; written by the engine's thread only
        self._sent = 0  # total bytes; written by the sending thread only
        self._is_crowded = False
        self._then: Callable[[], None] | None = None  # called at the end
        self._thread = Thread(target=self._run, name="replication-send", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """True if all data has been sent."""
        return self._given == self._sent

    def send(self, data: Sequence[bytes]) -> bool:
        """Send bytes. Return True if there is room for more; if not, `relieved` is called later."""
        self._given += sum(map(len, data))
        self._queue.put(data)
        if self._given - self._sent <= MAX_UNSENT_BYTES:
            return True
        # The thread reads this flag after it has updated `_sent`, so one of the two sees the other.
        self._is_crowded = True
        if self._given - self._sent > _MIN_UNSENT:
            return False
        self._is_crowded = False
        return True

    def finish(self, then: Callable[[], None]) -> None:
        """Send the data in the queue, then nothing more.

        Args:
            then: called on the engine's thread after that.
        """
        self._then = then
        self._queue.put(None)

    def stop(self) -> None:
        """Send nothing more: the connection is lost."""
        with suppress(OSError):  # already closed
            self._socket.shutdown(socket.SHUT_RDWR)
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while pieces := self._next():
                send_all(self._socket.fileno(), pieces)
                self._sent += sum(map(len, pieces))
                if self._is_crowded and self._given - self._sent <= _MIN_UNSENT:
                    self._is_crowded = False
                    self._tell(self._relieved)
        except OSError:
            self._tell(self._lost)
        self._tell(self._end)

    def _next(self) -> list[bytes]:
        """Return all data in the queue, waiting for some; empty at the end."""
        pieces: list[bytes] = []
        while not pieces or not self._queue.empty():
            more = self._queue.get()
            if more is None:
                self._queue.put(None)  # for the next call
                break
            pieces += more
        return pieces

    def _end(self) -> None:
        self._socket.close()
        if self._then is not None:
            self._then()

    def _tell(self, what: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._post(what)
