"""The bytes that wait to be written to one connection.

Everything that a turn of the event loop has for a connection is collected here and leaves in one
write. An outbox that gets its first bytes puts itself on the engine's list of outboxes to flush, so
that a flush costs as much as there are connections with something to say.

The results of a query take many turns, and must arrive before whatever is written after the query
began (AMPS User Guide, Overview of SOW Queries). For them a `Reservation` is made: a place in the
stream that is filled bit by bit, while what is written meanwhile waits behind it. The first one is
filled before the next.

    leaving now | reservation, filling | behind it | next reservation | behind that

A write is a system call, which costs more than everything else about a short message. Writes to
very many connections would make a turn long. So outboxes are flushed for as long as a slice lasts,
those first that have waited longest, and what is added to the others meanwhile leaves with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from server.base.tally import Tally
from server.subscriptions.traffic import Traffic

_FLUSHED_BETWEEN_LOOKS: Final = 8
"""Outboxes that are flushed before it is looked at the clock: some dozen microseconds each."""

_FULL_WRITE: Final = 64 * 1024
"""Bytes with which waiting for more saves nothing."""

LARGE_BODY: Final = 256 * 1024
"""Bytes of a body that is written beside its head, so that all subscribers share it, and nothing
copies it."""


class Outbox:
    """Collects bytes for one connection until the next flush.

    Args:
        waiting: the engine's list of outboxes that have something to write.
        traffic: counts what is not plain deliveries; see `counted`.
        sink: takes the collected bytes; the connection's write.
        takes_parts: whether the sink takes messages in several calls.

    Attributes:
        bytes_out: bytes that have left.
        traffic: see above.
        messages_out: messages that have left: one for each call of `write`, see `write_run`.
    """

    __slots__ = (
        "_has_parts",
        "_is_closed",
        "_last",
        "_ready",
        "_reservations",
        "_sink",
        "_takes_parts",
        "_waiting",
        "bytes_out",
        "messages_out",
        "traffic",
    )

    def __init__(
        self,
        waiting: list[Outbox],
        traffic: Traffic,
        sink: Callable[[bytes], None],
        *,
        takes_parts: bool = False,
    ) -> None:
        self.traffic: Final = traffic
        self._waiting = waiting
        self._sink = sink
        self._takes_parts = takes_parts
        self._has_parts = False  # whether a message in parts has been written
        self._ready: list[bytes] = []
        # where bytes join the stream; never empty behind a reservation, always when it is closed
        self._last = self._ready
        self._reservations: deque[Reservation] = deque()
        self._is_closed = False
        self.bytes_out = 0
        self.messages_out = 0

    def close(self) -> None:
        """Take nothing more. What has been written so far, and waits for nothing, still leaves."""
        self._is_closed = True
        self._last = []

    def write(self, data: bytes) -> None:
        """Add bytes to what leaves with the next flush."""
        if not self._last:
            if self._is_closed:
                return
            self._waiting.append(self)
        self._last.append(data)

    def write_run(self, data: bytes, messages: int) -> None:
        """Add bytes that are several messages, or none: a part of one."""
        if not messages and self._takes_parts:
            self._has_parts = True
        self.messages_out += messages - 1
        self.write(data)

    def counted(self, tally: Tally) -> CountedOutbox:
        """The same outbox for those whose messages are counted apart; see `Traffic`."""
        return CountedOutbox(self, tally)

    def flush(self) -> None:
        """Hand everything that may leave to the connection, in one piece."""
        chunks = self._ready
        if not chunks:  # it has been flushed out of turn
            return
        if self._has_parts:
            self._flush_parts()
            return
        if len(chunks) == 1:
            data = chunks[0]
            self.messages_out += 1
        else:
            data = b"".join(chunks)
            self.messages_out += len(chunks)
        self.bytes_out += len(data)
        chunks.clear()
        self._sink(data)

    def _flush_parts(self) -> None:
        """The same with large parts, each of which is handed over as it is."""
        chunks, self._has_parts = self._ready[:], False
        self._ready.clear()
        self.messages_out += len(chunks)
        self.bytes_out += sum(map(len, chunks))
        small: list[bytes] = []
        for chunk in chunks:
            if len(chunk) < LARGE_BODY:
                small.append(chunk)
                continue
            if small:
                self._sink(b"".join(small))
                small = []
            self._sink(chunk)
        if small:
            self._sink(b"".join(small))

    @property
    def pieces(self) -> int:
        """How many calls of `write` have given what leaves with the next flush."""
        return len(self._ready)

    @property
    def size(self) -> int:
        """Bytes that leave with the next flush."""
        return sum(map(len, self._ready))

    @property
    def behind(self) -> int:
        """Bytes that wait for results of queries to leave before them."""
        return sum(sum(map(len, one.behind)) for one in self._reservations)

    def reserve(self) -> Reservation:
        """Reserve the place in the stream that has been reached."""
        reservation = Reservation(self)
        if not self._is_closed:
            self._reservations.append(reservation)
            self._last = reservation.behind
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Let leave what waits behind a place that will not be filled any further."""
        reservation.is_open = False
        while self._reservations and not self._reservations[0].is_open:
            self.leave(self._reservations.popleft().behind)
        if not (self._reservations or self._is_closed):
            self._last = self._ready

    def leave(self, chunks: Iterable[bytes]) -> None:
        """Let bytes leave with the next flush."""
        for chunk in chunks:
            if chunk and not self._is_closed:
                if not self._ready:
                    self._waiting.append(self)
                self._ready.append(chunk)


class CountedOutbox:
    """An outbox as those see it whose messages are counted.

    Args:
        outbox: where they go.
        tally: counts them.
    """

    __slots__ = ("_outbox", "_tally")

    def __init__(self, outbox: Outbox, tally: Tally) -> None:
        self._outbox = outbox
        self._tally = tally

    def write(self, data: bytes) -> None:
        """See `Outbox.write`."""
        self._tally.add(1, len(data))
        self._outbox.write(data)

    def write_run(self, data: bytes, messages: int) -> None:
        """See `Outbox.write_run`."""
        self._tally.add(messages, len(data))
        self._outbox.write_run(data, messages)


class Reservation:
    """A place in the stream of a connection. See `Outbox.reserve`.

    Attributes:
        behind: bytes that come after this place.
        is_open: whether more may come at this place.
    """

    __slots__ = ("_outbox", "behind", "is_open")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.behind: list[bytes] = [b""]  # not empty: these bytes are not ready to leave
        self.is_open = True

    def write(self, data: bytes) -> None:
        """Add bytes at this place, which has to be the first that is still open."""
        self._outbox.leave((data,))

    def write_run(self, data: bytes, messages: int) -> None:
        """Add bytes that are several messages, or none."""
        self._outbox.messages_out += messages - 1
        self.write(data)

    def write_answer(self, data: bytes) -> None:
        """Add bytes that are no message, but say something about messages."""
        self._outbox.traffic.answers.add(1, len(data))
        self.write(data)

    def write_results(self, data: bytes, records: int) -> None:
        """Add bytes that are records found."""
        self._outbox.traffic.sow.add(records, len(data))
        self.write_run(data, records)

    def close(self) -> None:
        """Let leave what waits behind; harmless if it has been done."""
        if self.is_open:
            self._outbox.release(self)

    def withdraw(self) -> list[bytes]:
        """Close, and give what has waited behind instead of letting it leave."""
        behind = self.behind[1:]
        del self.behind[1:]
        self.close()
        return behind


class Outboxes:
    """All outboxes that have something to write.

    Args:
        elapsed: seconds since some moment, never going back.

    Attributes:
        waiting: the outboxes, those first that have waited longest.
        traffic: counts what leaves that is not plain deliveries.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self.waiting: list[Outbox] = []
        self.traffic: Final = Traffic()
        self._elapsed = elapsed

    @property
    def is_write_full(self) -> bool:
        """Whether there is so much to write that waiting for more would save nothing."""
        waiting = self.waiting
        return bool(waiting) and waiting[0].size >= _FULL_WRITE

    def flush(self, end: float, first: int = 0) -> None:
        """Flush outboxes for as long as there is time, and at least a few.

        Args:
            end: when the time is over, by `elapsed`.
            first: the position of the first outbox to be flushed.
        """
        waiting = self.waiting
        while first < len(waiting):
            part = waiting[first : first + _FLUSHED_BETWEEN_LOOKS]
            del waiting[first : first + _FLUSHED_BETWEEN_LOOKS]
            for outbox in part:
                outbox.flush()
            if self._elapsed() >= end:
                break
