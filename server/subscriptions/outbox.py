"""The bytes that wait to be written to one connection.

Everything that a turn of the event loop has for a connection is collected here and leaves in one
write. An outbox that gets its first bytes puts itself on the engine's list of outboxes to flush, so
that a flush costs as much as there are connections with something to say.

A write is a system call, which costs more than everything else about a short message. While a
publisher has more to say than one read can take, and what it says goes to many connections in
crumbs, holding them back for the next read makes a write of several; `is_worth_flushing` tells.
What is held is bounded by a few kilobytes a connection, and leaves when there is no more to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FEW_OUTBOXES: Final = 64
_FULL_WRITE: Final = 2048
"""Bytes from which on a write costs more than the call."""


class Outbox:
    """Collects bytes for one connection until the next flush.

    Args:
        waiting: the engine's list of outboxes that have something to write.
        sink: takes the collected bytes; the connection's write.
    """

    __slots__ = ("_chunks", "_sink", "_waiting", "size")

    def __init__(self, waiting: list[Outbox], sink: Callable[[bytes], None]) -> None:
        self._waiting = waiting
        self._sink = sink
        self._chunks: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add bytes to what leaves with the next flush."""
        if not self._chunks:
            self._waiting.append(self)
        self._chunks.append(data)
        self.size += len(data)

    def flush(self) -> None:
        """Hand everything collected to the connection, in one piece."""
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.size = 0
        self._sink(data)


def flush_all(waiting: list[Outbox]) -> None:
    """Flush every outbox of the list and empty it."""
    for outbox in waiting:
        outbox.flush()
    waiting.clear()


def is_worth_flushing(waiting: list[Outbox]) -> bool:
    """Whether the writes of a flush would be few, or mostly full, even though more is to come."""
    if len(waiting) <= _FEW_OUTBOXES:
        return True
    return sum(outbox.size for outbox in waiting) >= _FULL_WRITE * len(waiting)
