"""Atomic exchange of two folders, where the file system supports it (renameat2)."""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from pathlib import Path
from typing import Final

_HERE: Final = -100
"""AT_FDCWD: paths are relative to the working directory."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE."""
_CANNOT: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
"""Errors of systems that do not support it."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def exchange(folder: Path, other_folder: Path) -> bool:
    """Exchange two folders atomically.

    Returns:
        Whether they were exchanged; if not, the file system does not support it.

    Raises:
        OSError: a folder is missing, or they are on different file systems.
    """
    if not hasattr(_libc, "renameat2"):
        return False
    if (
        _libc.renameat2(_HERE, os.fsencode(folder), _HERE, os.fsencode(other_folder), _EXCHANGE)
        == 0
    ):
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(folder), None, str(other_folder))


def can_exchange(directory: Path) -> bool:
    """Return whether folders in a directory can be exchanged.

    Args:
        directory: the directory; created if missing.
    """
    one, other = (directory / uuid.uuid4().hex for _ in range(2))
    for folder in (one, other):
        folder.mkdir(parents=True)
    try:
        return exchange(one, other)
    finally:
        one.rmdir()
        other.rmdir()


def swap_folder(new_folder: Path, place: Path) -> None:
    """Put a folder into a place that another one may have.

    Where the file system cannot exchange them, the place is empty for a moment.

    Args:
        new_folder: the folder; the other one, if any, is here afterwards, or beside it.
        place: the place.

    Raises:
        OSError: that failed.
    """
    if not place.exists():
        new_folder.rename(place)
    elif not exchange(new_folder, place):
        place.rename(new_folder.with_name(uuid.uuid4().hex))
        new_folder.rename(place)
