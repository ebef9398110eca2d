"""Commits of files that are asked for at odd moments."""

from __future__ import annotations

import gc
from pathlib import Path

from server.storage.sow.records import Record
from tests.storage.sow.support import Disk


def test_what_waited_for_a_commit_asks_for_another_as_it_is_dropped(tmp_path: Path) -> None:
    """So does another thread, while what a compiled closure held is dropped: setup.py mends that.

    The collector drops functions before what they share if it has seen them while they were in use.
    """
    disk = Disk(tmp_path)
    store, _ = disk.open()
    told: list[object] = []

    class Waiting:  # without attributes, so that the collector does not ask it beforehand
        __slots__ = ()

        def __call__(self, problem: object) -> None:
            told.append(problem)

        def __del__(self) -> None:
            store.commit(lambda problem: told.append(("again", problem)))

    store.put("1", Record("1", b"x", "t"))
    gc.collect()
    gc.disable()
    try:
        store.commit(Waiting())
        gc.collect()
        disk.settle()
        store.commit()  # of which the committer knows instead
        disk.settle()
        gc.collect()
    finally:
        gc.enable()
    disk.settle()
    assert told == [None, ("again", None)]
    store.close()
    disk.close()
