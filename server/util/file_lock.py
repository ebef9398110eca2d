"""Data files of an instance: the version of their format, and the lock that gives a file to one
process at a time.

The holder of a lock is looked up in /proc/locks. A process id written to the file could belong to
another process after a crash, or in another container.

Source: Linux manual pages, flock(2), proc_locks(5).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

_LOCKS: Final = Path("/proc/locks")
_UNKNOWN_HOLDER: Final = "another process"


class FileInUseError(Exception):
    """Another process has locked a file or a directory. The text names the process."""


def lock(descriptor: int) -> None:
    """Lock a file or a directory for this process alone, until it is closed.

    Raises:
        FileInUseError: another process has it; the text names the process.
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileInUseError(_holder(descriptor)) from None


def free_name(path: Path) -> Path:
    """Return a name for a damaged file that no file has yet: `NAME.damaged-1`, or the next one."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside


def _holder(descriptor: int) -> str:
    """Return the holder of a file's lock as text; other containers and machines are not named."""
    status = os.fstat(descriptor)
    file_id = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        locks = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        return _UNKNOWN_HOLDER
    for _, kind, _, _, process, file, *_ in locks:
        if (kind, file) == ("FLOCK", file_id):
            is_own = process == str(os.getpid())
            return "this process" if is_own else f"process {process}{_program(process)}"
    return _UNKNOWN_HOLDER


def _program(process: str) -> str:
    try:
        return f" ({Path('/proc', process, 'comm').read_text().strip()})"
    except OSError:  # it has just ended
        return ""


def version_mismatch(found: int, known: int) -> str:
    """Return the reason why an intact file with another version of its format cannot be read.

    Args:
        found: the version that the file has.
        known: the version that this program reads.
    """
    problem = f"its format has version {found}; this program reads {known}"
    return f"{problem}, so a later Amperage has written it" if found > known else problem
