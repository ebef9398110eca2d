"""A thread that sends what a connection is given in large amounts.

The system copies what is sent, and on the way to an instance on the same machine does the work of
the other end, too: for messages that are passed on, that costs the engine's thread more than all
the rest. So it hands them over. What is handed over while the thread is sending leaves together.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final

from server.transports.sending import send_all

MOST_UNSENT: Final = 1 << 20
"""Bytes that the system has not taken yet, after which a connection is not ready for more."""

_LEAST_UNSENT: Final = MOST_UNSENT // 4


class Carrier:
    """Sends over a connection, beside the event loop that reads from it.

    Nothing else may be written to the connection before the carrier is idle.

    Args:
        held: the connection; it has its own descriptor from now on, so `finish` or `stop` has to be
            called once.
        post: has a call made on the engine's thread.
        relieved: called there when the carrier is not crowded any more.
        lost: called there when the connection turns out to be gone.
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
        self._given = 0  # bytes, ever; the engine's
        self._sent = 0  # the thread's
        self._is_crowded = False
        self._then: Callable[[], None] | None = None  # what is to be done at the end
        self._thread = Thread(target=self._run, name="replication-send", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether all has been sent."""
        return self._given == self._sent

    def send(self, data: Sequence[bytes]) -> bool:
        """Send bytes; whether there is room for more, or `relieved` will tell."""
        self._given += sum(map(len, data))
        self._queue.put(data)
        if self._given - self._sent <= MOST_UNSENT:
            return True
        # The thread looks at this after it has counted: so one of the two sees the other.
        self._is_crowded = True
        if self._given - self._sent > _LEAST_UNSENT:
            return False
        self._is_crowded = False
        return True

    def finish(self, then: Callable[[], None]) -> None:
        """Send what there is, and nothing more.

        Args:
            then: called on the engine's thread after that.
        """
        self._then = then
        self._queue.put(None)

    def stop(self) -> None:
        """Send nothing more: the connection is gone."""
        with suppress(OSError):  # it has been closed
            self._socket.shutdown(socket.SHUT_RDWR)
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while pieces := self._next():
                send_all(self._socket.fileno(), pieces)
                self._sent += sum(map(len, pieces))
                if self._is_crowded and self._given - self._sent <= _LEAST_UNSENT:
                    self._is_crowded = False
                    self._tell(self._relieved)
        except OSError:
            self._tell(self._lost)
        self._tell(self._end)

    def _next(self) -> list[bytes]:
        """All that is to be sent; nothing if that was all."""
        pieces: list[bytes] = []
        while not pieces or not self._queue.empty():
            more = self._queue.get()
            if more is None:
                self._queue.put(None)  # for the next time
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
