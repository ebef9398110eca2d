"""A directory for the temporary files of one Spark session, removed when the program ends.

A program that is killed cannot remove its directory. So each program holds a lock on a file in its
directory, and the next one removes the directories whose lock is not held.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "amperage-spark-"
_LOCK: Final = "lock"


def scratch_directory() -> Path:
    """Create a directory that is removed at the end of the program."""
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    # Locked before it gets its name, so that no other program finds it without an owner.
    descriptor = os.open(directory / "new", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (directory / "new").rename(directory / _LOCK)
    _remove_abandoned(directory.parent)
    return directory


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # it is locked, owned by another user, or gone
            descriptor = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
