"""Journals in temporary directories, clocks that are set, disks that fail or remember."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from server.storage.journal import (
    Disk,
    Journal,
    JournalCursor,
    JournalEntry,
    JournalNotice,
    JournalSettings,
    LogSpan,
)
from server.storage.journal.format.entry import JournalEntryKind
from tests.support.stepped_disk import commit_in_steps

FILE: Final = 1 << 20
START: Final = 1_750_000_000_000_000
"""Where the clock of a test begins, in microseconds since the Unix epoch."""

EVERYTHING: Final = frozenset(JournalEntryKind)


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


class Bench:
    """A journal, its clock, and what it has said."""

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        clock: SetClock | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or SetClock()
        self.notices: list[JournalNotice] = []
        self.durable: list[int] = []
        chosen: dict[str, Any] = {
            "instance": "TEST",
            "directory": directory,
            "file_size": FILE,
            "preallocated": 1,
            **settings,
        }
        self.journal = Journal(
            JournalSettings(**chosen),
            self.clock,
            self.durable.append,
            self.notices.append,
            disk,
        )

    def events(self) -> list[str]:
        """What it has said, by kind."""
        return [notice.event.name for notice in self.notices]


@contextmanager
def opened(directory: Path, disk: Disk | None = None, **settings: Any) -> Iterator[Bench]:
    """A journal that is closed in the end."""
    bench = Bench(directory, disk, **settings)
    try:
        yield bench
    finally:
        bench.journal.close()


def read_all(journal: Journal, span: LogSpan | None = None, most: int = 100) -> list[JournalEntry]:
    """What a replay hands out, up to where it has caught up."""
    cursor = journal.replay(span or LogSpan(0))
    entries: list[JournalEntry] = []
    while not cursor.is_caught_up:
        entries += cursor.read(most)
    return entries


def read_next(cursor: JournalCursor, most: int, *, as_passage: bool) -> list[JournalEntry]:
    """What a cursor hands out next, in either form."""
    return (
        cursor.read_for_forwarding(most, 1 << 20).to_entry_range().entries()
        if as_passage
        else cursor.read(most)
    )


class FailingDisk(Disk):
    """Refuses what a test wants it to."""

    commit = commit_in_steps

    def __init__(self) -> None:
        self.full = False
        self.broken = False

    def create_allocated(self, path: Path, size: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return super().create_allocated(path, size)

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> None:
        if self.broken:
            super().write(descriptor, data[: len(data) // 2], offset)
            raise OSError(errno.EIO, "Input/output error")
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(descriptor)


class ForgetfulDisk(Disk):
    """Knows what would be left of files if the power failed now.

    What has been synced stays. Of what was written since, any sectors may have reached the disk.
    """

    SECTOR: Final = 512

    commit = commit_in_steps

    def __init__(self) -> None:
        self._paths: dict[int, Path] = {}
        self._unsafe: dict[Path, list[tuple[int, bytes]]] = {}  # offset, what was there before
        self.power_is_failing = False

    def create_allocated(self, path: Path, size: int) -> int:
        descriptor = super().create_allocated(path, size)
        self._paths[descriptor] = path
        return descriptor

    def open(self, path: Path, *, writable: bool = False) -> int:
        descriptor = super().open(path, writable=writable)
        self._paths[descriptor] = path
        return descriptor

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        for descriptor, path in self._paths.items():
            if path == old:
                self._paths[descriptor] = new
        self._unsafe[new] = self._unsafe.pop(old, [])

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> None:
        path = self._paths.get(descriptor)
        if path is not None:
            with path.open("rb") as file:
                file.seek(offset)
                self._unsafe.setdefault(path, []).append((offset, file.read(len(data))))
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        if self.power_is_failing:
            raise OSError(errno.EIO, "this is as far as it gets")
        super().sync(descriptor)
        path = self._paths.get(descriptor)
        if path is not None:
            self._unsafe[path] = []

    def fail_power(self, chance: random.Random) -> None:
        """Take back sectors that were not safe, each with some probability."""
        share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for path, writes in self._unsafe.items():
            with path.open("r+b") as file:
                for offset, before in reversed(writes):
                    first = offset // self.SECTOR * self.SECTOR
                    for sector in range(first, offset + len(before), self.SECTOR):
                        if chance.random() < share:
                            begin = max(sector, offset)
                            end = min(sector + self.SECTOR, offset + len(before))
                            file.seek(begin)
                            file.write(before[begin - offset : end - offset])
        self._unsafe.clear()
