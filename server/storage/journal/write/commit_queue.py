"""The queue between engine and committer: entries appended and not yet on stable storage.

The engine appends blocks of entries to a list of the stream of the current file, and the committer
takes from its front. Both do so without a lock, which would cost as much as all the rest: appending
to a list, and copying or deleting its first n items, are each one step that the interpreter does
not interrupt.

The engine waits while the committer holds the interpreter's lock. So the committer joins the bytes
in pieces, and releases the lock while each piece is written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from server.storage.journal.format.layout import RECORD_SIZE, with_lag
from server.storage.journal.format.records import FileDefinitions, make_file_definitions
from server.storage.journal.log_end import MAX_COMMIT_ENTRIES
from server.storage.journal.publisher_table import PublisherSequences
from server.storage.journal.write.handles import OriginHandle, TopicHandle

MAX_UNCOMMITTED_BYTES: Final = 64 << 20
"""Limit of bytes of bodies and records that wait for a commit; beyond it the engine blocks."""

_PIECE: Final = 128 * 1024
"""Bytes that are joined for one write: some dozen microseconds of copying."""

EntryBlock: TypeAlias = tuple[int, bytes, bytes]
"""Entries that were appended together: their number, their bodies, and their records in the order
of the file, the last one first."""


@dataclass(slots=True, eq=False)
class LiveFile:
    """A journal file that can be written to.

    Attributes:
        number: its position among the files of the instance.
        path: path of the file.
        descriptor: file descriptor for writing.
        size: size in bytes.
        definitions: topics and origins defined in it so far.
        handles: handles that hold their number in this file; kept so that they are found again as
            long as this object exists.
    """

    number: int
    path: Path
    descriptor: int
    size: int
    definitions: FileDefinitions = field(default_factory=make_file_definitions)
    handles: list[TopicHandle | OriginHandle] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CommitStream:
    """The entries for one file. The committer owns `next_txid`, `taken_count` and `bodies_end`.

    Attributes:
        file: the file.
        next_txid: txid of the first entry not taken yet.
        taken_count: number of entries of the file that have been taken.
        bodies_end: offset in bytes after their bodies.
        header: the header page to write with the first commit, if the file has none; else empty.
        blocks: the entries not taken yet.
        is_full: nothing more will be appended; set by the engine.
        sequences: a snapshot of the table of publishers, taken when the file became full.
        missing_ranges: a snapshot of their missing numbers, likewise; see `PublisherTable`.
    """

    file: LiveFile
    next_txid: int
    taken_count: int
    bodies_end: int
    header: bytes = b""
    blocks: list[EntryBlock] = field(default_factory=list)
    is_full: bool = False
    sequences: PublisherSequences = field(default_factory=dict)
    missing_ranges: Sequence[tuple[int, int, int]] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CommitGroup:
    """A group of entries that is written and synced together.

    Attributes:
        stream: the stream that the entries were taken from.
        first_txid: txid of the first entry.
        last_txid: txid of the last entry; less than the first if there is none.
        header: the header page, if the file has none yet; else empty.
        bodies: bodies and extras, in order.
        bodies_offset: offset in bytes of the first body.
        records: their records, in the order of the file.
        records_offset: offset in bytes of the first record, which is that of the last entry.
        finishes_file: the file is full after this commit.
    """

    stream: CommitStream
    first_txid: int
    last_txid: int
    header: bytes
    bodies: list[bytes]
    bodies_offset: int
    records: list[bytes]
    records_offset: int
    finishes_file: bool

    @property
    def size(self) -> int:
        """The number of bytes to write."""
        return len(self.header) + sum(map(len, self.bodies)) + sum(map(len, self.records))

    def write_chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes to write, with their offsets in the file; the same on every call."""
        if self.header:
            yield 0, self.header
        yield from _pieces(self.bodies, self.bodies_offset)
        yield from _pieces(self.records, self.records_offset)


def _pieces(parts: Iterable[bytes], offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield adjacent parts with their offsets, small ones joined."""
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


class CommitQueue:
    """Passes entries from the engine's thread to the committer's.

    Args:
        stream: the stream of the current file.

    Attributes:
        stream: the stream that the engine appends to.
        is_committer_asleep: the committer has nothing to do, and has to be woken.
        taken_bytes: bytes of bodies and records taken by the committer, in total.
    """

    def __init__(self, stream: CommitStream) -> None:
        self.stream = stream
        self.is_committer_asleep = False
        self.taken_bytes = 0
        self._streams = deque((stream,))
        self._entries_event = threading.Event()
        self._space_event = threading.Event()

    def switch_stream(self, stream: CommitStream) -> None:
        """Begin a new file; earlier entries go to the old one. Called by the engine."""
        self.stream.is_full = True
        self._streams.append(stream)
        self.stream = stream

    @property
    def is_empty(self) -> bool:
        """True if nothing waits for a commit."""
        return not self._streams[0].is_full and not self._streams[0].blocks

    def take_group(self) -> CommitGroup | None:
        """Take the next commit and return it; None if nothing waits. Called by the committer."""
        stream = self._streams[0]
        is_full = stream.is_full  # before copying: nothing is appended after it is set
        blocks = stream.blocks[:]
        count = end = 0
        while end < len(blocks) and count + blocks[end][0] <= MAX_COMMIT_ENTRIES:
            count += blocks[end][0]
            end += 1
        finishes = is_full and end == len(blocks)
        if not count and not finishes:
            return None
        del stream.blocks[:end]
        bodies = [block[1] for block in blocks[:end]]
        records = [block[2] for block in blocks[end - 1 :: -1]] if end else []
        if records:
            # The records were made while the commit before this one may still have been under way.
            # It has ended since, so the first and the last record can state that as their lag.
            records[-1] = _with_last_lag(records[-1], 1)
            records[0] = _with_first_lag(records[0], count)
        size = sum(map(len, bodies))
        first = stream.next_txid
        commit = CommitGroup(
            stream,
            first,
            first + count - 1,
            stream.header,
            bodies,
            stream.bodies_end,
            records,
            stream.file.size - RECORD_SIZE * (stream.taken_count + count),
            finishes,
        )
        stream.header = b""
        stream.next_txid += count
        stream.taken_count += count
        stream.bodies_end += size
        if finishes:
            self._streams.popleft()
        self.taken_bytes += size + RECORD_SIZE * count
        self._space_event.set()
        return commit

    def wait_for_space(self, timeout: float) -> None:
        """Block the engine until the committer has taken something, `timeout` seconds at most."""
        self._space_event.wait(timeout)
        self._space_event.clear()  # after waiting: a commit since the caller's check must count

    def wait_for_entries(self) -> None:
        """Block the committer until something waits for a commit, or `wake` is called."""
        self.is_committer_asleep = True
        # The engine appends first and checks `is_committer_asleep` then; so one of the two sees the
        # other.
        if self.is_empty:
            self._entries_event.wait()
        self._entries_event.clear()
        self.is_committer_asleep = False

    def wake(self) -> None:
        """Wake the committer."""
        self.is_committer_asleep = False
        self._entries_event.set()


def _with_first_lag(records: bytes, lag: int) -> bytes:
    return with_lag(records[:RECORD_SIZE], lag) + records[RECORD_SIZE:]


def _with_last_lag(records: bytes, lag: int) -> bytes:
    return records[:-RECORD_SIZE] + with_lag(records[-RECORD_SIZE:], lag)
