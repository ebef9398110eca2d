"""Threads that write to the sockets of clients; the theory of it is in io_threads.pyx."""

import asyncio
from collections.abc import Callable, Sequence

from amperage.wire.frame_slices import SharedFrames

class IoThreads:
    """The I/O threads of an instance.

    Args:
        count: how many, at least one.
        pending_outboxes: the outboxes that are to be flushed; the list is changed in place.

    Raises:
        OSError: the system does not allow so many threads or descriptors.
    """

    def __init__(self, count: int, pending_outboxes: Sequence[object]) -> None: ...
    def fileno(self) -> int:
        """Return a descriptor that is readable while there is something to collect."""

    def collect(self) -> None:
        """End the writes that are done, and submit what has waited behind them."""

    def settle(self) -> None:
        """Wait until all sockets have taken what they take at once."""

    def stop(self) -> None:
        """End the threads. What no socket has taken is discarded."""

class SocketWriter:
    """Writes to the socket of one client.

    Args:
        threads: the threads.
        transport: the connection, whose own buffer is empty. It is aborted if a write fails, and
            takes the bytes itself if the process has too few descriptors for a second one.
        pause: called when much waits behind a write in progress.
        resume: called when little waits again.
        on_sent: called when the socket has taken all bytes of a write of an I/O thread.

    Attributes:
        unsent_bytes: bytes that the socket has not taken, as far as known.
    """

    unsent_bytes: int

    def __init__(
        self,
        threads: IoThreads,
        transport: asyncio.Transport,
        pause: Callable[[], None],
        resume: Callable[[], None],
        on_sent: Callable[[], None],
    ) -> None: ...
    def write(self, data: bytes | SharedFrames | memoryview) -> None:
        """Write bytes, now or behind those that wait."""

    def abort(self) -> None:
        """Close; discard bytes that wait."""

    def close(self) -> None:
        """Take no more bytes. Those that wait are still written."""
