"""What has been appended and is not yet on stable storage, on its way from engine to committer.

The engine appends to two lists of the stream of the current file, and the committer takes from
their front. Both do so without a lock, which would cost as much as all the rest: appending to a
list, and copying or deleting its first n items, are each one step that the interpreter does not
interrupt. The record is appended last, so whatever number of records the committer sees, the bodies
are there.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from server.journal.clients import Sequences
from server.journal.extent import MOST_IN_COMMIT
from server.journal.layout import RECORD_SIZE, with_lag
from server.journal.records import Names, no_names

MOST_WAITING: Final = 64 << 20
"""Bytes of bodies and records that may wait; then the engine is held up."""


@dataclass(slots=True, eq=False)
class LiveFile:
    """A journal file that can be written to.

    Attributes:
        number: its place among the files of the instance.
        path: where it is.
        descriptor: for writing.
        size: in bytes.
        names: topics and origins defined in it so far.
    """

    number: int
    path: Path
    descriptor: int
    size: int
    names: Names = field(default_factory=no_names)


@dataclass(slots=True, eq=False)
class Stream:
    """What goes to one file.

    Attributes:
        file: the file.
        next_txid: of the first entry not taken yet; the committer's.
        taken: entries of the file that have been taken; the committer's.
        bodies_end: offset in bytes behind their bodies; the committer's.
        header: the header page to write with the first commit, if the file has none; else empty.
        bodies: bodies and extras not taken yet.
        records: their records.
        full: nothing more will be appended; the engine sets it.
        sequences: in that case, the table of publishers as it was then.
    """

    file: LiveFile
    next_txid: int
    taken: int
    bodies_end: int
    header: bytes = b""
    bodies: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    full: bool = False
    sequences: Sequences = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """What is written and made safe together.

    Attributes:
        stream: where it comes from.
        first_txid: of its first entry.
        last_txid: of its last entry; less than the first if it has none.
        pieces: what to write, as offsets in the file and bytes.
        finishes: the file is full after this.
    """

    stream: Stream
    first_txid: int
    last_txid: int
    pieces: tuple[tuple[int, bytes], ...]
    finishes: bool


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
        return not self._streams[0].full and not self._streams[0].records

    def take(self) -> Commit | None:
        """What to write next; None if there is nothing. The committer's."""
        stream = self._streams[0]
        full = stream.full  # before counting: nothing is appended after it is set
        count = min(len(stream.records), MOST_IN_COMMIT)
        finishes = full and count == len(stream.records)
        if not count and not finishes:
            return None
        records, bodies = stream.records[:count], b"".join(stream.bodies[:count])
        if records:
            # When they were made, the commit before this one may still have been under way. It is
            # over, and what follows on it proves that.
            records[0] = with_lag(records[0], 1)
            records[-1] = with_lag(records[-1], count)
        del stream.records[:count]
        del stream.bodies[:count]
        bottom = stream.file.size - RECORD_SIZE * (stream.taken + count)
        pieces = [(0, stream.header), (stream.bodies_end, bodies)]
        pieces.append((bottom, b"".join(reversed(records))))
        first = stream.next_txid
        stream.header = b""
        stream.next_txid += count
        stream.taken += count
        stream.bodies_end += len(bodies)
        if finishes:
            self._streams.popleft()
        self.taken += len(bodies) + RECORD_SIZE * count
        self._room.set()
        written = tuple((offset, data) for offset, data in pieces if data)
        return Commit(stream, first, first + count - 1, written, finishes)

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
