"""Minidumps: a file per call, with the permissions that are asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from server.process.minidump import write_minidump


@pytest.mark.parametrize("mask", [0o640, 0o600, 0o444])
def test_the_permissions_are_those_of_the_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(0o077)
    try:
        path = write_minidump(str(tmp_path), mask, "plant", {"sessions": 3})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mask


def test_what_is_in_it(tmp_path: Path) -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait_here() -> None:
        entered.set()
        leave.wait()

    thread = threading.Thread(target=wait_here, name="the waiting one")
    thread.start()
    try:
        entered.wait()
        first, second = (
            write_minidump(str(tmp_path), 0o640, "a/../b", {"sessions": 1234}) for _ in range(2)
        )
    finally:
        leave.set()
        thread.join()
    assert first != second
    assert {first.parent, second.parent} == {tmp_path}
    text = first.read_text()
    for part in ("instance a/../b", "(the waiting one)", "wait_here", "1,234", "generation 0"):
        assert part in text


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    path = write_minidump(str(tmp_path / "a" / "b"), 0o640, "plant", {})
    assert path.parent == tmp_path / "a" / "b"


def test_a_directory_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        write_minidump(str(tmp_path / "file" / "none"), 0o640, "plant", {})
