"""What would be left of a server's files if the power failed: kept in the server's own process.

Beside every file that the server puts on stable storage lies its *shadow*: its content as of the
last sync. What a file has and its shadow has not may be lost, sector by sector, when the power
fails; `fail_power` does that to the files of a server that has been killed.

The process is prepared before it becomes a server. Its system calls for writing and syncing are
watched from there on; they can also be where it dies.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.storage.journal import Disk
from server.storage.sow.group_commit import SowCommitter
from tests.support.stepped_disk import commit_in_steps

SECTOR: Final = 512
"""Bytes that reach a disk together."""

FILES: Final = (
    "journal/*.journal",
    "journal/*.ack",
    "journal/*.index.gz",
    "journal/*.sow",
    "*.sow",
)


@dataclass(frozen=True)
class Watch:
    """Prepares a process: see above.

    Attributes:
        shadows: the directory of shadows; None: none are kept.
        calls: how many calls the process makes before it dies in one; None: it does not.
    """

    shadows: Path | None
    calls: int | None

    def __call__(self) -> None:
        """Watch the calls of this process from now on."""
        fates = None if self.calls is None else iter(range(self.calls, -1, -1))
        written: dict[int, list[tuple[int, int]]] = {}  # since the last sync, by descriptor
        pwrite, close = os.pwrite, os.close

        def dies() -> bool:
            return fates is not None and next(fates, 0) == 0

        def write(descriptor: int, data: bytes, offset: int) -> int:
            if dies():
                pwrite(descriptor, data[: len(data) // 2], offset)
                _die()
            if descriptor in written:
                written[descriptor].append((offset, len(data)))
            return pwrite(descriptor, data, offset)

        def synced(sync: Callable[[int], None]) -> Callable[[int], None]:
            def watched(descriptor: int) -> None:
                if dies():
                    _die()
                ranges = written.get(descriptor, [])
                written[descriptor] = []
                sync(descriptor)
                if dies():
                    _die()
                if self.shadows is not None:
                    _follow(self.shadows, descriptor, ranges)

            return watched

        def forget(descriptor: int) -> None:
            written.pop(descriptor, None)
            close(descriptor)

        Disk.commit = commit_in_steps  # type: ignore[method-assign]  # by the calls replaced below
        os.pwrite, os.close = write, forget  # type: ignore[assignment]  # of the same signature but for names
        os.fsync, os.fdatasync = synced(os.fsync), synced(os.fdatasync)  # type: ignore[assignment]  # of the same signature but for names
        _, *others = SowCommitter.__init__.__defaults__ or ()
        SowCommitter.__init__.__defaults__ = (os.fdatasync, *others)  # it is looked up already


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # other threads may run on for an instant; this one goes no further


def _follow(shadows: Path, descriptor: int, ranges: list[tuple[int, int]]) -> None:
    """Bring a shadow up to date: the ranges that were written, or all where they are not known."""
    status = os.fstat(descriptor)
    if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
        return  # a directory
    shadow = shadows / str(status.st_ino)
    # A new one counts when it is complete: the process may be killed while it is made.
    copied = shadow if shadow.exists() else shadows / f"{status.st_ino}-{descriptor}"
    target = os.open(copied, os.O_WRONLY | os.O_CREAT)
    with open(f"/proc/self/fd/{descriptor}", "rb") as file, open(target, "wb", 0) as copy:
        for offset, length in ranges or [(0, status.st_size)]:
            file.seek(offset)
            copy.seek(offset)
            copy.write(file.read(length))
        copy.truncate(status.st_size)
    copied.rename(shadow)


def fail_power(directory: Path, shadows: Path, chance: random.Random) -> int:
    """Lose some of what a killed server had not put on stable storage, and spoil some of it.

    Args:
        directory: the server's.
        shadows: the shadows of its files; gone afterwards.
        chance: decides what becomes of each sector.

    Returns:
        How many sectors are not what the server wrote.
    """
    changed = 0
    for pattern in FILES:
        for path in directory.glob(pattern):
            shadow = shadows / str(path.stat().st_ino)
            if shadow.exists():
                changed += _lose(path, shadow.read_bytes(), chance)
    for shadow in shadows.iterdir():
        shadow.unlink()
    return changed


def _lose(path: Path, safe: bytes, chance: random.Random) -> int:
    content = bytearray(path.read_bytes())
    safe = safe.ljust(len(content), b"\0")
    fate = chance.choice(("all", "none", "some", "spoiled"))
    changed = 0
    for start in range(0, len(content), SECTOR):
        old, new = safe[start : start + SECTOR], content[start : start + SECTOR]
        if old == new or fate == "none" or (fate != "all" and chance.random() < 0.5):
            continue
        if fate == "spoiled" and chance.random() < 0.3:
            # A disk that fails within a sector leaves alone what is not changed in it.
            garbage = chance.choice((chance.randbytes(len(new)), bytes(len(new)), new[::-1]))
            old = bytes(
                was if was == will else any_
                for was, will, any_ in zip(old, new, garbage, strict=True)
            )
        content[start : start + SECTOR] = old
        changed += 1
    path.write_bytes(content)
    return changed
