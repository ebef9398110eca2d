"""Commits of the log step by step, for tests that come between the steps.

The server makes the same calls in the same order in one go
(`server/storage/journal/commit_io.pyx`), where no test can refuse one of them, or let the process
die in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from server.storage.journal.storage import Disk, WriteChunk


def commit_in_steps(
    self: Disk,
    descriptor: int,
    chunks: Iterable[WriteChunk],
    path: Path,
    size: int,
    mark: WriteChunk,
) -> None:
    """Do what `Disk.commit` does, by the disk's other methods."""
    for offset, data in chunks:
        self.write(descriptor, data, offset)
    self.sync(descriptor)
    self.check_in_place(descriptor, path, size)
    self.write(descriptor, mark[1], mark[0])
