"""Threads that write to the sockets of clients; the theory of it is in io_threads.pyx."""

import asyncio
from collections.abc import Callable
from typing import Any

from amperage.wire.frame_slices import SharedFrames

class IoThreads:
    """The I/O threads of an instance.

    Args:
        count: how many, at least one.
        pending_outboxes: the outboxes that are to be flushed; the list is changed in place.

    Raises:
        OSError: the system does not allow so many threads or descriptors.
    """

    def __init__(self, count: int, pending_outboxes: list[Any]) -> None: ...
    def fileno(self) -> int:
        """Return a descriptor that is readable while there are writes to reap."""

    def reap_writes(self) -> None:
        """End the writes that are done, and submit what has waited behind them."""

    def stop(self) -> None:
        """End the threads, once all sockets have taken what they take at once.

        The event loop writes what follows.
        """

class SocketWriter:
    """Writes to the socket of one client.

    Args:
        threads: the threads.
        transport: the connection, whose own buffer is empty. It is aborted if a write fails, and
            takes the bytes itself if the process has too few descriptors for a second one.
        pause: called when the socket is full, or much waits for the thread.
        resume: called when it takes bytes again.
        take_back: called after `pause` with what waited behind the write in progress; returns
            False if that has to stay here.
        on_sent: called when the socket has taken all bytes of a write of an I/O thread.

    Attributes:
        unsent_bytes: bytes of the write in progress and behind it.
        full_since_s: the time of a monotonic clock at which the write in progress began, if the
            socket has not taken all of it at once; else None.
    """

    unsent_bytes: int
    @property
    def full_since_s(self) -> float | None: ...
    def __init__(
        self,
        threads: IoThreads,
        transport: asyncio.Transport,
        pause: Callable[[], None],
        resume: Callable[[], None],
        take_back: Callable[[list[bytes | memoryview | SharedFrames]], bool],
        on_sent: Callable[[], None],
    ) -> None: ...
    def write(self, data: bytes | SharedFrames | memoryview) -> None:
        """Write bytes, now or behind those that wait."""

    def abort(self) -> None:
        """Close; discard bytes that wait."""

    def close(self) -> None:
        """Take no more bytes. Those that wait are still written."""
