"""Output buffers of slow clients, and their limits.

    online   bytes that the socket does not take wait in memory
      |  ^   over the client's share of the memory, or as the largest when all of it is used up
      v  |   everything has been read
    offline  bytes wait in a file
      |      over the client's share of the disk, or as the largest when all of it is used up;
      v      or, in either state, when the oldest byte has waited too long
    disconnected

The clients of a transport, or of all transports without limits of their own, share a pool. A
backlog is a stream of bytes that are framed already, so that it may be cut anywhere. It is spilled
to the file in chunks; bytes that are queued for the file count as written. Other memory that is
held for a client, such as aggregated groups, counts as well, but cannot be spilled: a client that
holds too much of it is disconnected.

Source: AMPS User Guide, Slow Client Management and Capacity Limits.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Final, NamedTuple, TypeAlias

from amperage.wire.frame_slices import SharedFrames
from server.topics.subscriptions.limits.client_limits import ClientLimits
from server.util.daemon_threads import DaemonThreadPool
from server.util.large_bodies import MIN_LARGE_BYTES, free_when_unused

if TYPE_CHECKING:
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_SLICE_BYTES: Final = 256 * 1024
"""Bytes passed to a socket at once."""

_WRITE_BATCH_SIZE: Final = 1024 * 1024
"""Bytes passed to the socket, or spilled to the file, before other tasks run (below 1 ms)."""

_CLOSE_POOL: Final = DaemonThreadPool(1, "spill-close")
"""Closes spill files: the system takes 50 ms to free the pages of a file of 500 MB."""

_MARKS_PER_LIFETIME: Final = 100
"""Resolution of the age of waiting bytes, in parts of the age limit."""

_UNLIMITED_STEP: Final = 1.0
"""The same in seconds, if there is no limit; then the age is only displayed."""


_Piece: TypeAlias = bytes | memoryview | SharedFrames


class BacklogStats(NamedTuple):
    """The bytes kept for a client, and the limits.

    Attributes:
        memory_bytes: bytes that wait in memory.
        held_bytes: other bytes that are held in memory.
        disk_bytes: bytes that wait on disk.
        is_offline: whether new bytes go to disk.
        stalled_s: seconds since the socket stopped taking bytes; None if it takes some.
        limits: the limits of the client's pool.
        pool_memory_bytes: bytes of memory used by all clients of the pool.
        pool_disk_bytes: bytes of disk used by them.
    """

    memory_bytes: int
    held_bytes: int
    disk_bytes: int
    is_offline: bool
    stalled_s: float | None
    limits: ClientLimits
    pool_memory_bytes: int
    pool_disk_bytes: int


class ClientPool:
    """The clients that share limits.

    Args:
        limits: the limits.

    Attributes:
        memory_used: bytes that wait in memory, or are held there.
        disk_used: bytes that wait on disk.
        buffered_bytes_total: total of all bytes that have ever waited, in memory or on disk.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self.limits = limits
        self.memory_used = 0
        self.disk_used = 0
        self.buffered_bytes_total = 0
        self.backlogs: set[ClientBacklog] = set()

    def enforce_limits(self, client: ClientBacklog) -> None:
        """Offline or disconnect clients, after more bytes have been kept for `client`."""
        limits = self.limits
        if client.memory_total > limits.memory_bytes * limits.client_share:
            client.free_memory()
        if client.memory_total > limits.memory_bytes * limits.client_share:
            client.free_memory()
        while self.memory_used > limits.memory_bytes:
            max(self.backlogs, key=lambda one: one.memory_total).free_memory()
        if client.disk_used > limits.disk_bytes * limits.client_share:
            client.disconnect_slow_client()
        while self.disk_used > limits.disk_bytes:
            max(self.backlogs, key=lambda one: one.disk_used).disconnect_slow_client()


class ClientBacklog:
    """The bytes that wait for one client.

    Args:
        pool: the clients that it shares limits with.
        clock: measures the age of waiting bytes.
        log: gets the entries about offlining and disconnecting.
        client_name: returns the client's name, for the log.
        write: takes bytes for the socket.
        disconnect: closes the connection at once, dropping waiting bytes.
        notify_offline_event: called with `offline_start` when the client goes offline,
            `offline_stop` when back.
        on_caught_up: called when the socket has taken everything, after it had not.

    Attributes:
        memory_used: bytes that wait in memory.
        memory_held: other bytes that are held in memory for the client.
        disk_used: bytes that wait on disk.
    """

    def __init__(
        self,
        pool: ClientPool,
        clock: Clock,
        log: ServerLog,
        client_name: Callable[[], str],
        write: Callable[[_Piece], None],
        disconnect: Callable[[], None],
        notify_offline_event: Callable[[str], None],
        on_caught_up: Callable[[], None],
    ) -> None:
        self.memory_used = 0
        self.memory_held = 0
        self.disk_used = 0
        self._pool = pool
        self._clock = clock
        self._log = log
        self._client_name = client_name
        self._write = write
        self._disconnect = disconnect
        self._notify_offline_event = notify_offline_event
        self._on_caught_up = on_caught_up
        self._paused_at: float | None = None
        self._is_closed = False
        self._queue: deque[_Piece] = deque()  # bytes that follow those in the file
        self._file: IO[bytes] | None = None
        self._read_offset = 0
        self._file_size = 0  # the bytes of the file
        self._cancel_spilling: Callable[[], None] | None = None
        self._cancel_writing: Callable[[], None] | None = None
        self._ages = _Ages(pool.limits.max_age_s)
        self._cancel_age_check: Callable[[], None] | None = None
        self._cancel_enforcement: Callable[[], None] | None = None

    @property
    def memory_total(self) -> int:
        """Bytes of memory used by the client."""
        return self.memory_used + self.memory_held

    @property
    def is_behind(self) -> bool:
        """True if the client has not read everything that was sent to it."""
        return self._paused_at is not None or self.has_pending_bytes

    @property
    def has_pending_bytes(self) -> bool:
        """True if bytes are kept for the client that the socket has not taken."""
        return self.memory_used + self.disk_used > 0

    @property
    def oldest_wait_s(self) -> float:
        """Seconds for which the oldest byte not taken by the socket has waited; 0 if none."""
        if not self.is_behind:
            return 0.0
        now = self._clock.steady_unpaused()
        oldest = self._ages.oldest_at(now)
        return max(now - (oldest if self._paused_at is None else min(oldest, self._paused_at)), 0)

    @property
    def stats(self) -> BacklogStats:
        """The bytes kept for the client, and the limits."""
        paused_at, pool = self._paused_at, self._pool
        return BacklogStats(
            self.memory_used,
            self.memory_held,
            self.disk_used,
            self._file is not None,
            None if paused_at is None else max(self._clock.steady_unpaused() - paused_at, 0.0),
            pool.limits,
            pool.memory_used,
            pool.disk_used,
        )

    def send(self, data: bytes | SharedFrames) -> None:
        """Send bytes to the client, now or when its socket takes them."""
        if self._is_closed:
            return
        if not self.is_behind and len(data) <= _SLICE_BYTES:
            self._write(data)
            return
        self._enqueue(data)
        if self._cancel_writing is None:
            self._write_pending()
        if self.has_pending_bytes:
            self._pool.enforce_limits(self)
            self._schedule_age_check()

    def take_back(self, pieces: list[_Piece]) -> bool:
        """Keep bytes that were passed to `write` last; return False if a file is in the way."""
        if self._is_closed or self._file is not None:
            return False
        size = sum(map(len, pieces))
        self._pool.buffered_bytes_total += size
        self._ages.add_first(size, self._clock.steady_unpaused())
        self._queue.extendleft(reversed(pieces))
        self._add_usage(memory=size)
        self._pool.enforce_limits(self)
        self._schedule_age_check()
        return True

    def pause_writing(self) -> None:
        """Stop writing: the socket accepts no more for now."""
        self._paused_at = self._clock.steady_unpaused()
        self._schedule_age_check()

    def resume_writing(self) -> None:
        """Write again: the socket accepts more."""
        self._paused_at = None
        self._continue_writing()

    def charge_memory(self, size: int) -> None:
        """Charge bytes that are held in memory to the client.

        Limits are enforced in a later callback, after the current call has returned.

        Args:
            size: bytes, negative to release.
        """
        if self._is_closed:
            return
        self._add_usage(held=size)
        limits = self._pool.limits
        is_too_much = (
            self.memory_total > limits.memory_bytes * limits.client_share
            or self._pool.memory_used > limits.memory_bytes
        )
        if is_too_much and self._cancel_enforcement is None:
            self._cancel_enforcement = self._clock.call_later(0, self._enforce_limits)

    def free_memory(self) -> None:
        """Spill waiting bytes to disk or, if none wait in memory, disconnect the client."""
        if self.memory_used:
            self.go_offline()
        else:
            self.disconnect_slow_client()

    def go_offline(self) -> None:
        """Move waiting bytes to disk, and keep the following ones there."""
        if self._file is None:
            self._log.emit("70-0011", client=self._client_name())
            self._notify_offline_event("offline_start")
            try:
                self._file = tempfile.TemporaryFile(  # noqa: SIM115 - open as long as it is needed
                    dir=self._pool.limits.directory
                )
            except OSError as error:
                self._fail_spilling(error)
                return
        self._add_usage(memory=-self.memory_used, disk=self.memory_used)
        self._schedule_spill()

    def disconnect_slow_client(self) -> None:
        """Disconnect the client, dropping waiting bytes."""
        if not self._is_closed:
            self._log.emit("70-0004", client=self._client_name())
            self.close()
            self._disconnect()

    def close(self) -> None:
        """Drop waiting bytes; the connection has ended."""
        self._is_closed = True
        if self._queue or self._file is not None:
            _CLOSE_POOL.submit(_release, self._queue, self._file)
            self._queue, self._file = deque(), None
        self._add_usage(-self.memory_used, -self.disk_used, -self.memory_held)
        for cancel in (self._cancel_spilling, self._cancel_age_check, self._cancel_enforcement):
            if cancel is not None:
                cancel()
        self._cancel_spilling = self._cancel_age_check = self._cancel_enforcement = None
        self._cancel_pending_writes()

    def _cancel_pending_writes(self) -> None:
        if self._cancel_writing is not None:
            self._cancel_writing()
            self._cancel_writing = None

    def _enforce_limits(self) -> None:
        self._cancel_enforcement = None
        self._pool.enforce_limits(self)

    def _enqueue(self, data: bytes | SharedFrames) -> None:
        self._pool.buffered_bytes_total += len(data)
        self._ages.add(len(data), self._clock.steady_unpaused())
        self._queue.append(data)
        if isinstance(data, bytes) and len(data) >= MIN_LARGE_BYTES:
            free_when_unused(data)
        if self._file is not None:
            self._add_usage(disk=len(data))
            self._schedule_spill()
        else:
            self._add_usage(memory=len(data))

    def _schedule_spill(self) -> None:
        if self._cancel_spilling is None and self._queue:
            self._cancel_spilling = self._clock.call_later(0, self._spill)

    def _spill(self) -> None:
        """Write a part of the queue to the file."""
        self._cancel_spilling = None
        if self._file is None:
            return
        end = self._file_size + _WRITE_BATCH_SIZE
        try:
            self._file.seek(0, os.SEEK_END)
            while self._queue and self._file_size < end:
                self._file_size += self._file.write(_bytes_of(self._next_piece()))
        except OSError as error:
            self._fail_spilling(error)
            return
        self._schedule_spill()

    def _fail_spilling(self, error: OSError) -> None:
        self._log.emit("70-0013", client=self._client_name(), reason=error)
        self.disconnect_slow_client()

    def _continue_writing(self) -> None:
        self._write_pending()
        if not self.is_behind:
            self._on_caught_up()

    def _write_pending(self) -> None:
        """Pass waiting bytes to the socket, oldest first, until it blocks again.

        A socket whose peer reads at the same time may never block: then other tasks run in between.
        """
        self._cancel_pending_writes()
        written = 0
        while self._paused_at is None and not self._is_closed:
            if written >= _WRITE_BATCH_SIZE and self.has_pending_bytes:
                self._cancel_writing = self._clock.call_later(0, self._continue_writing)
                return
            chunk = self._dequeue()
            if chunk is None:
                return
            self._ages.remove(len(chunk))
            self._write(chunk)
            written += len(chunk)

    def _dequeue(self) -> _Piece | None:
        if self._file is not None:
            return self._dequeue_offline(self._file)
        if not self._queue:
            return None
        chunk = self._next_piece()
        self._add_usage(memory=-len(chunk))
        return chunk

    def _dequeue_offline(self, file: IO[bytes]) -> _Piece | None:
        """Remove a chunk from the file or, once that has been read, from the queue; return it."""
        chunk: _Piece = b""
        if self._read_offset < self._file_size:
            file.seek(self._read_offset)
            chunk = file.read(_SLICE_BYTES)
            self._read_offset += len(chunk)
        elif self._queue:
            chunk = self._next_piece()
        self._add_usage(disk=-len(chunk))
        if not self.disk_used:
            _CLOSE_POOL.submit(_release, deque(), file)
            self._file = None
            self._read_offset = self._file_size = 0
            self._log.emit("70-0012", client=self._client_name())
            self._notify_offline_event("offline_stop")
        return chunk or None

    def _next_piece(self) -> _Piece:
        chunk = self._queue.popleft()
        if not isinstance(chunk, SharedFrames) and len(chunk) > _SLICE_BYTES:
            view = memoryview(chunk)
            chunk, rest = view[:_SLICE_BYTES], view[_SLICE_BYTES:]
            self._queue.appendleft(rest)
        return chunk

    def _add_usage(self, memory: int = 0, disk: int = 0, held: int = 0) -> None:
        self.memory_used += memory
        self.memory_held += held
        self.disk_used += disk
        self._pool.memory_used += memory + held
        self._pool.disk_used += disk
        if self.has_pending_bytes or self.memory_held:
            self._pool.backlogs.add(self)
        else:
            self._pool.backlogs.discard(self)

    def _schedule_age_check(self) -> None:
        limit = self._pool.limits.max_age_s
        if limit is None or self._cancel_age_check is not None or self._is_closed:
            return
        wait = limit - self.oldest_wait_s
        self._cancel_age_check = self._clock.call_later(max(wait, 0.0), self._check_age)

    def _check_age(self) -> None:
        self._cancel_age_check = None
        limit = self._pool.limits.max_age_s
        if limit is None or not self.is_behind:
            return
        if self.oldest_wait_s >= limit:
            self.disconnect_slow_client()
        else:
            self._schedule_age_check()


def _bytes_of(piece: _Piece) -> bytes | memoryview:
    return bytes(piece) if isinstance(piece, SharedFrames) else piece


def _release(queue: deque[_Piece], file: IO[bytes] | None) -> None:
    """Free waiting bytes and close the file; yield to other threads after each large chunk."""
    while queue:
        if len(queue.popleft()) > _WRITE_BATCH_SIZE:
            time.sleep(0)
    if file is not None:
        file.close()


class _Ages:
    """Tracks the age of the oldest byte of a stream, in coarse steps.

    Args:
        limit: the age limit in seconds; None for no limit.
    """

    def __init__(self, limit: float | None) -> None:
        self._step_s = _UNLIMITED_STEP if limit is None else limit / _MARKS_PER_LIFETIME
        self._segments: deque[tuple[float, int]] = deque()  # time added, bytes

    def add(self, size: int, now: float) -> None:
        """Add bytes at the end of the stream."""
        if self._segments and now - self._segments[-1][0] < self._step_s:
            added_at, segment_size = self._segments.pop()
            self._segments.append((added_at, segment_size + size))
        else:
            self._segments.append((now, size))

    def add_first(self, size: int, now: float) -> None:
        """Add bytes at the front of the stream."""
        self._segments.appendleft((self.oldest_at(now), size))

    def remove(self, size: int) -> None:
        """Remove bytes from the front of the stream."""
        while self._segments and size:
            added_at, segment_size = self._segments.popleft()
            if segment_size > size:
                self._segments.appendleft((added_at, segment_size - size))
                return
            size -= segment_size

    def oldest_at(self, now: float) -> float:
        """Return the time at which the front byte was added; `now` for an empty stream."""
        return self._segments[0][0] if self._segments else now
