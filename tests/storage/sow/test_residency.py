"""How much of a mapped file is in memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from server.storage.sow.slab.residency import resident_share

_PAGES = 256


def test_what_has_been_read_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(_PAGES * mmap.PAGESIZE))
    with path.open("r+b") as file:
        first, second = (
            mmap.mmap(file.fileno(), _PAGES // 2 * mmap.PAGESIZE, offset=offset)
            for offset in (0, _PAGES // 2 * mmap.PAGESIZE)
        )
        for memory in (first, second):
            assert sum(memory[:: mmap.PAGESIZE]) == 0
        assert resident_share((first, second)) == 1.0
        first.close()
        second.close()


def test_a_hole_that_nobody_has_touched_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as file:
        os.truncate(file.fileno(), _PAGES * mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), _PAGES * mmap.PAGESIZE) as memory:
            assert resident_share((memory,)) == 0.0


def test_nothing_is_in_memory_as_a_whole() -> None:
    assert resident_share(()) == 1.0
