"""Opens files that people name, and nothing else that may stand under their names.

To open or to read a pipe waits for somebody at its other end, a device may do anything at all, and
a file may be larger than whoever reads it has memory or time for. A problem is an `OSError` like
any other, with its text in `strerror`.
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

MOST_OF_CERTIFICATES: Final = 16 * 1024 * 1024
"""Bytes of a file with certificates, or with a key."""


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file to read it, without waiting.

    Raises:
        OSError: there is none, it may not be read, or it is no regular file.
    """
    _expect_regular(os.stat(path), path)  # to open a device can be enough to have it do something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _expect_regular(os.fstat(descriptor), path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, most: int | None = None) -> bytes:
    """The content of a file.

    Args:
        path: the file.
        most: how many bytes it may have; None: any number.

    Raises:
        OSError: it cannot be read, is no regular file, or has more.
    """
    with open_regular(path) as file:
        content = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise _too_large(most)
    return content


def check_regular(path: str | Path, most: int) -> None:
    """See whether others, a library for instance, can be given a file to read.

    Args:
        path: the file.
        most: how many bytes it may have.

    Raises:
        OSError: it cannot be opened, is no regular file, or has more.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise _too_large(most)


def other_kind(mode: int) -> str | None:
    """What something is that is neither a regular file nor a directory; None if it is either.

    Args:
        mode: as `os.stat` tells it.
    """
    kind = stat.S_IFMT(mode)
    return None if kind in (stat.S_IFREG, stat.S_IFDIR) else _KINDS.get(kind, "something else")


def _too_large(most: int) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {most} bytes")


def _expect_regular(found: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = other_kind(found.st_mode)
    if kind is not None:
        raise OSError(errno.EINVAL, f"it is {kind} and no file", str(path))
