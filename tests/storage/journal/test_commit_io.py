"""A commit in one go does what it does step by step, and says the same where it cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.storage.journal import Disk
from tests.support.stepped_disk import commit_in_steps

SIZE = 4096
MARK = (SIZE - 8, b"the mark")
OTHER_SIZE = f"the file has been cut while it was in use: it should have {SIZE} bytes"

pieces = st.lists(st.tuples(st.integers(0, SIZE - 100), st.binary(max_size=60)), max_size=6)


def new_file(path: Path) -> Path:
    """A file of zeros."""
    path.write_bytes(bytes(SIZE))
    return path


def cut(path: Path) -> None:
    """Take something off a file."""
    os.truncate(path, SIZE // 2)


def replace(path: Path) -> None:
    """Put another file in the place of one."""
    os.replace(new_file(path.with_name("other")), path)


@given(parts=pieces)
def test_the_file_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, bytes]]
) -> None:
    """However many pieces there are, and whether they overlap or are empty."""
    directory, disk = tmp_path_factory.mktemp("files"), Disk()
    contents = []
    for commit in Disk.commit, commit_in_steps:
        path = new_file(directory / commit.__name__)
        descriptor = disk.open(path, writable=True)
        commit(disk, descriptor, iter(parts), path, SIZE, MARK)
        disk.close(descriptor)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].endswith(MARK[1])


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (Path.unlink, "the file has been removed or renamed while it was in use"),
        (replace, "another file has taken the place of the file while it was in use"),
        (cut, OTHER_SIZE),
    ],
)
def test_a_file_that_is_not_in_place(
    tmp_path: Path, operation: Callable[[Path], None], why: str
) -> None:
    """What is safe in it will not be found: that is an error, and no mark says otherwise."""
    path, disk = new_file(tmp_path / "file"), Disk()
    descriptor = disk.open(path, writable=True)
    operation(path)
    with pytest.raises(OSError, match=why):
        disk.commit(descriptor, [(0, b"body")], path, SIZE, MARK)
    assert os.pread(descriptor, 4, 0) == b"body"
    assert os.pread(descriptor, 8, MARK[0]) in (bytes(8), b"")
    disk.close(descriptor)


@pytest.mark.parametrize("parts", [[(0, b"x")], [(0, b"x")] * 5])
def test_what_the_system_says_is_passed_on(parts: Sequence[tuple[int, bytes]]) -> None:
    """From the pieces that are written together, and from those before."""
    disk = Disk()
    full = disk.open(Path("/dev/full"), writable=True)
    with pytest.raises(OSError, match="No space left on device") as refused:
        disk.commit(full, parts, Path("/dev/full"), SIZE, MARK)
    assert refused.value.errno == errno.ENOSPC
    disk.close(full)
