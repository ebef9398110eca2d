"""Opens regular files by names from operators, and refuses all other kinds of file.

Opening or reading a pipe waits for a process at its other end, a device may do anything at all, and
a file may be larger than its reader has memory or time for. A problem is an `OSError` like any
other, with its text in `strerror`.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

MAX_CERTIFICATE_FILE_SIZE: Final = 16 * 1024 * 1024
"""Bytes of a file with certificates, or with a key."""


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file for reading, without waiting.

    Raises:
        OSError: it does not exist, may not be read, or is no regular file.
    """
    _expect_regular(os.stat(path), path)  # opening a device can have side effects
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _expect_regular(os.fstat(descriptor), path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, max_size: int | None = None) -> bytes:
    """Return the content of a file.

    Args:
        path: the file.
        max_size: the maximum number of its bytes; None: any number.

    Raises:
        OSError: it cannot be read, is no regular file, or has more.
    """
    with open_regular(path) as file:
        content = file.read() if max_size is None else file.read(max_size + 1)
    if max_size is not None and len(content) > max_size:
        raise _too_large(max_size)
    return content


def check_regular(path: str | Path, max_size: int) -> None:
    """Check that a file can be given to other code, a library for instance, to read.

    Args:
        path: the file.
        max_size: the maximum number of its bytes.

    Raises:
        OSError: it cannot be opened, is no regular file, or has more.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > max_size:
            raise _too_large(max_size)


def other_kind(mode: int) -> str | None:
    """Return the kind of a file that is neither regular nor a directory; None if it is either.

    Args:
        mode: its mode from `os.stat`.
    """
    kind = stat.S_IFMT(mode)
    return None if kind in (stat.S_IFREG, stat.S_IFDIR) else _KINDS.get(kind, "something else")


def _too_large(max_size: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {max_size} bytes")


def _expect_regular(status: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = other_kind(status.st_mode)
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind} and no file", str(path))
