"""What has been appended and is not yet on stable storage, on its way from engine to committer.

The engine appends blocks of entries to a list of the stream of the current file, and the committer
takes from its front. Both do so without a lock, which would cost as much as all the rest: appending
to a list, and copying or deleting its first n items, are each one step that the interpreter does
not interrupt.

Whatever the committer does while it holds the interpreter's lock is what the engine waits for. So
it joins what it writes in pieces, and lets the engine have the lock while each is written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from server.journal.clients import Sequences
from server.journal.extent import MOST_IN_COMMIT
from server.journal.handles import OriginHandle, TopicHandle
from server.journal.layout import RECORD_SIZE, with_lag
from server.journal.records import Names, no_names

MOST_WAITING: Final = 64 << 20
"""Bytes of bodies and records that may wait; then the engine is held up."""

_PIECE: Final = 128 * 1024
"""Bytes that are joined to be written at once: some dozen microseconds of copying."""

Block: TypeAlias = tuple[int, bytes, bytes]
"""Entries that were appended together: how many, their bodies, and their records as they lie in the
file, the last one first."""


@dataclass(slots=True, eq=False)
class LiveFile:
    """A journal file that can be written to.

    Attributes:
        number: its place among the files of the instance.
        path: where it is.
        descriptor: for writing.
        size: in bytes.
        names: topics and origins defined in it so far.
        handles: those that know their numbers in it; they are found again as long as it is there.
    """

    number: int
    path: Path
    descriptor: int
    size: int
    names: Names = field(default_factory=no_names)
    handles: list[TopicHandle | OriginHandle] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Stream:
    """What goes to one file.

    Attributes:
        file: the file.
        next_txid: of the first entry not taken yet; the committer's.
        taken: entries of the file that have been taken; the committer's.
        bodies_end: offset in bytes behind their bodies; the committer's.
        header: the header page to write with the first commit, if the file has none; else empty.
        blocks: the entries not taken yet.
        full: nothing more will be appended; the engine sets it.
        sequences: in that case, the table of publishers as it was then.
        missing: and what was missing of them; see `ClientsCache`.
    """

    file: LiveFile
    next_txid: int
    taken: int
    bodies_end: int
    header: bytes = b""
    blocks: list[Block] = field(default_factory=list)
    full: bool = False
    sequences: Sequences = field(default_factory=dict)
    missing: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """What is written and made safe together.

    Attributes:
        stream: where it comes from.
        first_txid: of its first entry.
        last_txid: of its last entry; less than the first if it has none.
        header: the header page, if the file has none yet; else empty.
        bodies: bodies and extras, in order.
        bodies_at: offset in bytes of the first of them.
        records: their records, as they lie in the file.
        records_at: offset in bytes of the first of them, which is that of the last entry.
        finishes: the file is full after this.
    """

    stream: Stream
    first_txid: int
    last_txid: int
    header: bytes
    bodies: list[bytes]
    bodies_at: int
    records: list[bytes]
    records_at: int
    finishes: bool

    @property
    def size(self) -> int:
        """How many bytes there are to write."""
        return len(self.header) + sum(map(len, self.bodies)) + sum(map(len, self.records))

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """What to write, as offsets in the file and bytes; the same every time."""
        if self.header:
            yield 0, self.header
        yield from _pieces(self.bodies, self.bodies_at)
        yield from _pieces(self.records, self.records_at)


def _pieces(parts: Iterable[bytes], offset: int) -> Iterator[tuple[int, bytes]]:
    """Parts that follow on one another, joined where they are small."""
    joined: list[bytes] = []
    size = 0
    for part in parts:
        if joined and size + len(part) > _PIECE:
            yield offset, b"".join(joined)
            offset += size
            joined, size = [], 0
        joined.append(part)
        size += len(part)
    if size:
        yield offset, b"".join(joined)


class Pipe:
    """Leads from the engine's thread to the committer's.

    Args:
        stream: of the current file.

    Attributes:
        stream: what the engine appends to.
        asleep: the committer has nothing to do, and has to be woken.
        taken: bytes of bodies and records that have been taken, ever.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.asleep = False
        self.taken = 0
        self._streams = deque((stream,))
        self._something = threading.Event()
        self._room = threading.Event()

    def switch(self, stream: Stream) -> None:
        """Begin a new file. The engine's; what it appended before goes to the old one."""
        self.stream.full = True
        self._streams.append(stream)
        self.stream = stream

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for a commit."""
        return not self._streams[0].full and not self._streams[0].blocks

    def take(self) -> Commit | None:
        """What to write next; None if there is nothing. The committer's."""
        stream = self._streams[0]
        full = stream.full  # before copying: nothing is appended after it is set
        blocks = stream.blocks[:]
        count = end = 0
        while end < len(blocks) and count + blocks[end][0] <= MOST_IN_COMMIT:
            count += blocks[end][0]
            end += 1
        finishes = full and end == len(blocks)
        if not count and not finishes:
            return None
        del stream.blocks[:end]
        bodies = [block[1] for block in blocks[:end]]
        records = [block[2] for block in blocks[end - 1 :: -1]] if end else []
        if records:
            # When they were made, the commit before this one may still have been under way. It is
            # over, and what follows on it proves that.
            records[-1] = _with_last_lag(records[-1], 1)
            records[0] = _with_first_lag(records[0], count)
        size = sum(map(len, bodies))
        first = stream.next_txid
        commit = Commit(
            stream,
            first,
            first + count - 1,
            stream.header,
            bodies,
            stream.bodies_end,
            records,
            stream.file.size - RECORD_SIZE * (stream.taken + count),
            finishes,
        )
        stream.header = b""
        stream.next_txid += count
        stream.taken += count
        stream.bodies_end += size
        if finishes:
            self._streams.popleft()
        self.taken += size + RECORD_SIZE * count
        self._room.set()
        return commit

    def wait_for_room(self, timeout: float) -> None:
        """Hold the engine up until the committer has taken something (seconds at most)."""
        self._room.wait(timeout)
        self._room.clear()  # after waiting: what happened since the caller looked must count

    def wait(self) -> None:
        """Hold the committer up until there is something to do, or `wake` is called."""
        self.asleep = True
        # Who appends does so first and looks at `asleep` then; so one of the two sees the other.
        if self.is_empty:
            self._something.wait()
        self._something.clear()
        self.asleep = False

    def wake(self) -> None:
        """Let the committer go on."""
        self.asleep = False
        self._something.set()


def _with_first_lag(records: bytes, lag: int) -> bytes:
    return with_lag(records[:RECORD_SIZE], lag) + records[RECORD_SIZE:]


def _with_last_lag(records: bytes, lag: int) -> bytes:
    return records[:-RECORD_SIZE] + with_lag(records[-RECORD_SIZE:], lag)
