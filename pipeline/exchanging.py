"""Folders that take each other's place at once, where the file system can do that (renameat2)."""

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
"""What systems say that cannot do it."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def exchange(one: Path, other: Path) -> bool:
    """Have two folders take each other's place.

    Returns:
        Whether they have; if not, the file system cannot do that.

    Raises:
        OSError: one is not there, or they are not on one file system.
    """
    if not hasattr(_libc, "renameat2"):
        return False
    if _libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def can_exchange(directory: Path) -> bool:
    """Whether folders in a directory can take each other's place.

    Args:
        directory: made if it is not there.
    """
    one, other = (directory / uuid.uuid4().hex for _ in range(2))
    for folder in (one, other):
        folder.mkdir(parents=True)
    try:
        return exchange(one, other)
    finally:
        one.rmdir()
        other.rmdir()


def take_place(made: Path, place: Path) -> None:
    """Put a folder into a place, where another one may be.

    Where the file system cannot exchange them, there is none for a moment.

    Args:
        made: the folder; if there is another one, that is here afterwards, or beside it.
        place: where it belongs.

    Raises:
        OSError: it cannot be done.
    """
    if not place.exists():
        made.rename(place)
    elif not exchange(made, place):
        place.rename(made.with_name(uuid.uuid4().hex))
        made.rename(place)
