"""Copies files into a backup, computing their checksums on the way.

Reads, writes and checksums of large pieces release the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from config_schema.spec.common import DIRECTORY_MODE, FILE_MODE

_PIECE_SIZE: Final = 1 << 20
_ZEROS: Final = bytes(_PIECE_SIZE)
_SYNC_INTERVAL: Final = 16 << 20
"""Bytes after which a copy is synced: a commit of the log must not wait for all of it."""
_NO_HARD_LINK: Final = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES}

AbortCheck = Callable[[], None]
"""Called between two pieces; an exception that it raises ends the copying."""


class CopiedFile(NamedTuple):
    """A file that has been copied or linked.

    Attributes:
        size: its size in bytes.
        sha256: the SHA-256 of its content.
    """

    size: int
    sha256: str


class CopyWriter:
    """Writes a file from its beginning to its end; parts that are skipped are zeros.

    Args:
        path: the file, which must not exist.
        check: called between two pieces.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, path: Path, check: AbortCheck) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, FILE_MODE)
        self._check = check
        self._hash = sha256()
        self._position = 0
        self._synced_position = 0

    def __enter__(self) -> CopyWriter:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._descriptor)

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: they cannot be written.
        """
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, self._position)
            self._hash.update(view[:written])
            self._position += written
            view = view[written:]
        if self._position - self._synced_position >= _SYNC_INTERVAL:
            self._synced_position = self._position
            os.fdatasync(self._descriptor)

    def skip_to(self, position: int) -> None:
        """Leave a hole up to a position, which reads as zeros."""
        while self._position < position:
            self._check()
            size = min(len(_ZEROS), position - self._position)
            self._hash.update(memoryview(_ZEROS)[:size])
            self._position += size

    def copy(self, source: int, begin: int, end: int) -> None:
        """Append a part of another file.

        Args:
            source: descriptor of the other file.
            begin: offset of the part.
            end: its end.

        Raises:
            OSError: it cannot be read or written, or ends before.
        """
        while begin < end:
            self._check()
            data = os.pread(source, min(_PIECE_SIZE, end - begin), begin)
            if not data:
                raise OSError(errno.ESTALE, "the file has become shorter while it was copied")
            self.write(data)
            begin += len(data)

    def finish(self) -> CopiedFile:
        """Put the file on stable storage; return its size and checksum.

        Raises:
            OSError: that fails.
        """
        os.ftruncate(self._descriptor, self._position)
        os.fsync(self._descriptor)
        return CopiedFile(self._position, self._hash.hexdigest())


def copy_file(source: Path, target: Path, check: AbortCheck) -> CopiedFile:
    """Copy a file up to the size that it has now; the times are copied, too.

    Raises:
        OSError: it cannot be copied.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        with CopyWriter(target, check) as writer:
            writer.copy(descriptor, 0, status.st_size)
            copied = writer.finish()
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(descriptor)
    return copied


def hash_file(path: Path, check: AbortCheck) -> CopiedFile:
    """Return the size and the checksum of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest, size = sha256(), 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE_SIZE):
            check()
            digest.update(piece)
            size += len(piece)
    return CopiedFile(size, digest.hexdigest())


def hard_link(source: Path, target: Path) -> bool:
    """Give a file a second name; return False where the file system cannot.

    Raises:
        OSError: the file does not exist, or the name cannot be made for another reason.
    """
    target.parent.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _NO_HARD_LINK:
            return False
        raise
    return True


def file_identity(path: Path) -> str:
    """Return a text that changes when a file is replaced or written to.

    Raises:
        OSError: the file cannot be found.
    """
    status = path.stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def remove_if_present(path: Path) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
