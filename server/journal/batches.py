"""What has been appended and is not yet on stable storage, on its way from engine to committer."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from server.journal.clients import Sequences
from server.journal.extent import MOST_IN_COMMIT
from server.journal.layout import PAGE, RECORD_SIZE
from server.journal.records import Names, no_names

LARGEST_BATCH: Final = 16 << 20
"""Bytes of bodies after which a batch is closed."""

_MOST_WAITING: Final = 3  # closed batches; then the engine is held up


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
class Batch:
    """Neighbouring entries of one file.

    Attributes:
        file: where they go.
        first_txid: of the first of them.
        start: its number in the file.
        body_start: where its body begins, in bytes.
        header: the header page to write along, for the first batch of a file; else empty.
        bodies: bodies and extras, back to back.
        records: their records, in order.
        full: the file is full after this batch.
        sequences: in that case, the table of publishers as it is then.
    """

    file: LiveFile
    first_txid: int
    start: int
    body_start: int = PAGE
    header: bytes = b""
    bodies: bytearray = field(default_factory=bytearray)
    records: list[bytes] = field(default_factory=list)
    full: bool = False
    sequences: Sequences = field(default_factory=dict)

    @property
    def last_txid(self) -> int:
        """Of its last entry; the one before its first if it is empty."""
        return self.first_txid + len(self.records) - 1

    @property
    def pieces(self) -> list[tuple[int, bytes | bytearray]]:
        """What to write, as offsets in the file and bytes."""
        bottom = self.file.size - RECORD_SIZE * (self.start + len(self.records))
        pieces: list[tuple[int, bytes | bytearray]] = [(0, self.header)] if self.header else []
        if self.bodies:
            pieces.append((self.body_start, self.bodies))
        if self.records:
            pieces.append((bottom, b"".join(reversed(self.records))))
        return pieces

    def successor(self) -> Batch:
        """An empty batch for what comes next in the same file."""
        return Batch(
            self.file,
            self.last_txid + 1,
            self.start + len(self.records),
            self.body_start + len(self.bodies),
        )


class Pipe:
    """Hands batches from the engine's thread to the committer's.

    The engine adds to `batch` while it holds `lock`. `asleep` tells it that the committer waits for
    something to do, and `wake` wakes it. While the pipe is `crowded`, nothing must be added.

    Args:
        batch: the first one.
    """

    def __init__(self, batch: Batch) -> None:
        self.lock = threading.Lock()
        self.batch = batch
        self.asleep = False
        self.crowded = False
        self._full: list[Batch] = []
        self._something = threading.Event()
        self._room = threading.Condition(self.lock)

    def switch(self, batch: Batch, sequences: Sequences) -> None:
        """Begin a new file: what comes next goes to its first batch."""
        with self.lock:
            self.batch.full = True
            self.batch.sequences = sequences
            self._full.append(self.batch)
            self.batch = batch
            self.crowded = len(self._full) >= _MOST_WAITING

    def close_batch(self) -> None:
        """Let what comes next go to a new batch of the same file; this one is large enough."""
        with self.lock:
            self._full.append(self.batch)
            self.batch = self.batch.successor()
            self.crowded = len(self._full) >= _MOST_WAITING

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for a commit."""
        return not self._full and not self.batch.records

    def take(self) -> list[Batch]:
        """Everything that waits; the engine goes on with an empty batch."""
        with self.lock:
            taken = self._full
            self._full = []
            if self.batch.records:
                taken.append(self.batch)
                self.batch = self.batch.successor()
            self.crowded = False
            self._room.notify_all()
            return taken

    def wait_for_room(self, timeout: float) -> None:
        """Block until the committer has taken something."""
        with self.lock:
            if self.crowded:
                self._room.wait(timeout)

    def wait(self, timeout: float | None = None) -> None:
        """Block the committer until there is something to do, or the time is over (seconds)."""
        with self.lock:
            if self.is_empty:
                self.asleep = True
                self._something.clear()
        if self.asleep:
            self._something.wait(timeout)
            self.asleep = False

    def wake(self) -> None:
        """Let the committer go on."""
        self.asleep = False
        self._something.set()
