"""The bytes that wait to be written to one connection.

Everything that a turn of the event loop has for a connection is collected here and leaves in one
write. An outbox that gets its first bytes puts itself on the engine's list of outboxes to flush, so
that a flush costs as much as there are connections with something to say.
"""

from __future__ import annotations

from collections.abc import Callable


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
