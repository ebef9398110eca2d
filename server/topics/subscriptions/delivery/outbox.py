"""The output buffer of a connection: bytes that wait to be written to its socket.

All bytes that one iteration of the event loop has for a connection are collected here and leave in
one write. An outbox that gets its first bytes adds itself to the engine's list of outboxes to
flush, so that the cost of a flush grows with the number of connections that have output.

The results of a query take many iterations, and must arrive before all output written after the
query began (AMPS User Guide, Overview of SOW Queries). For them a `Reservation` is made: a position
in the stream that is filled incrementally, while later output waits behind it. The first
reservation is filled before the next.

    leaving now | reservation, filling | behind it | next reservation | behind that

A write is a system call, which costs more than all other work on a short message. Writes to very
many connections would make an iteration long. So outboxes are flushed for the length of a time
slice, those first that have waited longest. Output added to the others meanwhile leaves with their
flush.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, cast

from amperage.wire.frame_slices import SharedFrames
from server.topics.subscriptions.traffic import OutputTraffic
from server.util.counters import TrafficCounter

_FLUSH_BATCH_SIZE: Final = 8
"""Outboxes flushed between two readings of the clock: some dozen microseconds each."""

_FULL_WRITE_BYTES: Final = 64 * 1024
"""Bytes of output at which waiting for more saves nothing."""

_MIN_PART_BYTES: Final = 16 * 1024
"""Bytes that a large write passes on separately: copying them would cost more than a call."""

LARGE_BODY: Final = 256 * 1024
"""Bytes of a body that is written separately from its head, so that all subscribers share it, and
nothing copies it."""


Chunk: TypeAlias = bytes | SharedFrames
"""Bytes of frames, or frames whose bodies are not copied before they are sent."""


class Outbox:
    """Collects bytes for one connection until the next flush.

    Args:
        pending_outboxes: the engine's list of outboxes that have output.
        traffic: counts all output except plain deliveries; see `counting_writer`.
        sink: takes the collected bytes; the connection's write.
        shared_sink: takes frames that refer to their bodies; None if bodies have to be copied.
        takes_parts: whether the sink takes messages in several calls.

    Attributes:
        is_sharing: whether frames that refer to their bodies may be written.
        bytes_out: bytes written to the sink.
        messages_out: messages written to the sink: one per call of `write`, see `write_batch`.
    """

    def __init__(
        self,
        pending_outboxes: list[Outbox],
        traffic: OutputTraffic,
        sink: Callable[[bytes], None],
        shared_sink: Callable[[SharedFrames], None] | None = None,
        *,
        takes_parts: bool = False,
    ) -> None:
        self.is_sharing: Final = shared_sink is not None
        self.traffic: Final = traffic
        self._pending_outboxes = pending_outboxes
        self._sink = sink
        self._shared_sink = shared_sink
        self._takes_parts = takes_parts
        self._has_parts = False  # whether a message in parts has been written
        self._ready_chunks: list[Chunk] = []
        # where `write` appends; never empty behind a reservation, always empty when closed
        self._tail_chunks = self._ready_chunks
        self._reservations: deque[Reservation] = deque()
        self._is_closed = False
        self.bytes_out = 0
        self.messages_out = 0

    def close(self) -> None:
        """Discard bytes from now on. Earlier ones still leave, unless a reservation delays them."""
        self._is_closed = True
        self._tail_chunks = []

    def write(self, data: Chunk) -> None:
        """Append bytes to the next flush, or behind the last reservation."""
        if not self._tail_chunks:
            if self._is_closed:
                return
            self._pending_outboxes.append(self)
        self._tail_chunks.append(data)

    def write_batch(self, data: Chunk, messages: int) -> None:
        """Append bytes that are several messages, or none: a part of one."""
        if not messages and self._takes_parts:
            self._has_parts = True
        self.messages_out += messages - 1
        self.write(data)

    def counting_writer(self, counter: TrafficCounter) -> CountedOutbox:
        """Return a writer to this outbox that counts messages in `counter`; see `OutputTraffic`."""
        return CountedOutbox(self, counter)

    def flush(self) -> None:
        """Write all bytes that may leave to the connection, with one call."""
        chunks = self._ready_chunks
        if not chunks:  # it has been flushed already, outside of `Outboxes.flush`
            return
        data: Chunk
        if len(chunks) == 1:
            data = chunks[0]
            self.messages_out += 1
        elif (
            self._has_parts
            or self.is_sharing
            or (self._takes_parts and self.size >= _FULL_WRITE_BYTES)
        ):
            self._flush_parts()
            return
        else:
            data = b"".join(cast(list[bytes], chunks))
            self.messages_out += len(chunks)
        self.bytes_out += len(data)
        chunks.clear()
        self._pass_on(data)

    def _flush_parts(self) -> None:
        """Write all bytes that may leave, large parts separately and without a copy."""
        chunks, self._has_parts = self._ready_chunks[:], False
        self._ready_chunks.clear()
        self.messages_out += len(chunks)
        self.bytes_out += sum(map(len, chunks))
        small_chunks: list[bytes] = []
        for chunk in chunks:
            if isinstance(chunk, bytes) and len(chunk) < _MIN_PART_BYTES:
                small_chunks.append(chunk)
                continue
            if small_chunks:
                self._sink(b"".join(small_chunks))
                small_chunks = []
            self._pass_on(chunk)
        if small_chunks:
            self._sink(b"".join(small_chunks))

    def _pass_on(self, chunk: Chunk) -> None:
        if isinstance(chunk, bytes):
            self._sink(chunk)
        elif self._shared_sink is not None:
            self._shared_sink(chunk)

    @property
    def pieces(self) -> int:
        """Number of `write` calls that the next flush combines."""
        return len(self._ready_chunks)

    @property
    def size(self) -> int:
        """Bytes of the next flush."""
        return sum(map(len, self._ready_chunks))

    @property
    def bytes_behind(self) -> int:
        """Bytes that wait behind results of queries."""
        return sum(sum(map(len, reservation.chunks_behind)) for reservation in self._reservations)

    def reserve(self) -> Reservation:
        """Reserve the current position in the stream."""
        reservation = Reservation(self)
        if not self._is_closed:
            self._reservations.append(reservation)
            self._tail_chunks = reservation.chunks_behind
        return reservation

    def release_reservation(self, reservation: Reservation) -> None:
        """Release the bytes behind a reservation that is complete."""
        reservation.is_open = False
        while self._reservations and not self._reservations[0].is_open:
            self.append_chunks(self._reservations.popleft().chunks_behind)
        if not (self._reservations or self._is_closed):
            self._tail_chunks = self._ready_chunks

    def append_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Append bytes to the next flush."""
        for chunk in chunks:
            if chunk and not self._is_closed:
                if not self._ready_chunks:
                    self._pending_outboxes.append(self)
                self._ready_chunks.append(chunk)


class CountedOutbox:
    """A writer to an outbox that counts messages.

    Args:
        outbox: takes the messages.
        counter: counts them.
    """

    def __init__(self, outbox: Outbox, counter: TrafficCounter) -> None:
        self._outbox = outbox
        self._counter = counter

    def write(self, data: bytes) -> None:
        """See `Outbox.write`."""
        self._counter.add(1, len(data))
        self._outbox.write(data)

    def write_batch(self, data: bytes, messages: int) -> None:
        """See `Outbox.write_batch`."""
        self._counter.add(messages, len(data))
        self._outbox.write_batch(data, messages)


class Reservation:
    """A reserved position in the stream of a connection. See `Outbox.reserve`.

    Attributes:
        chunks_behind: bytes that follow this position.
        is_open: whether more bytes may be inserted.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.chunks_behind: list[Chunk] = [b""]  # not empty, so that `write` does not queue a flush
        self.is_open = True

    def write(self, data: bytes) -> None:
        """Insert bytes at this position, which has to be the first that is still open."""
        self._outbox.append_chunks((data,))

    def write_batch(self, data: bytes, messages: int) -> None:
        """Insert bytes that are several messages, or none."""
        self._outbox.messages_out += messages - 1
        self.write(data)

    def write_ack(self, data: bytes) -> None:
        """Insert bytes that are an ack, and no message."""
        self._outbox.traffic.answers.add(1, len(data))
        self.write(data)

    def write_results(self, data: bytes, records: int) -> None:
        """Insert bytes that are results of a query."""
        self._outbox.traffic.sow.add(records, len(data))
        self.write_batch(data, records)

    def close(self) -> None:
        """Release the bytes behind; harmless if it is closed already."""
        if self.is_open:
            self._outbox.release_reservation(self)

    def withdraw(self) -> list[bytes]:
        """Close, and return the bytes behind instead of releasing them."""
        chunks = [bytes(chunk) for chunk in self.chunks_behind[1:]]
        del self.chunks_behind[1:]
        self.close()
        return chunks


class Outboxes:
    """All outboxes that have output.

    Args:
        monotonic_s: a monotonic clock, in seconds.

    Attributes:
        pending_outboxes: the outboxes, those first that have waited longest.
        traffic: counts all output except plain deliveries.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self.pending_outboxes: list[Outbox] = []
        self.traffic: Final = OutputTraffic()
        self._monotonic_s = monotonic_s

    @property
    def is_write_full(self) -> bool:
        """True if there is so much output that waiting for more would save nothing."""
        pending_outboxes = self.pending_outboxes
        return bool(pending_outboxes) and pending_outboxes[0].size >= _FULL_WRITE_BYTES

    def flush(self, end: float, first: int = 0) -> None:
        """Flush outboxes until the end of the time slice, and at least a few.

        Args:
            end: the end of the slice, by `elapsed`.
            first: the position of the first outbox to be flushed.
        """
        pending_outboxes = self.pending_outboxes
        while first < len(pending_outboxes):
            batch = pending_outboxes[first : first + _FLUSH_BATCH_SIZE]
            del pending_outboxes[first : first + _FLUSH_BATCH_SIZE]
            for outbox in batch:
                outbox.flush()
            if self._monotonic_s() >= end:
                break
