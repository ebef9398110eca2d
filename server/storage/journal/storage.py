"""File I/O of the journal: all of its file operations go through `Disk`.

Tests substitute disks that fail, or that record which data have been synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from config_schema.spec.common import FILE_MODE
from server.storage.journal.cached_read import read_in_memory
from server.storage.journal.commit_io import store

WriteChunk: TypeAlias = tuple[int, bytes]
"""An offset in a file in bytes, and the bytes to write there."""

_ZEROS: Final = bytes(1 << 20)
_READ_BATCH_SIZE: Final = 1 << 20
"""Bytes that are copied in less time than it may take to reacquire the interpreter's lock."""
_CHUNKS_PER_WRITE: Final = 2
"""Pieces of a commit that are written together; most commits have no more."""


class Disk:
    """The disk of the operating system. Every method raises OSError when a system call fails."""

    def create_allocated(self, path: Path, size: int) -> int:
        """Create a file with all its space allocated.

        Args:
            path: path of the file, which must not exist yet.
            size: size in bytes.

        Returns:
            A file descriptor for reading and writing.
        """
        file_system = os.statvfs(path.parent)
        if (
            file_system.f_bavail * file_system.f_frsize < size
        ):  # fallocate would fail only after allocating
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError:
            os.close(descriptor)
            path.unlink()
            raise
        return descriptor

    def fill_with_zeros(self, descriptor: int, size: int) -> None:
        """Write zeros over a reserved file, so that writing to it later changes no metadata.

        That makes a small commit several times faster than on blocks never written before.
        """
        for offset in range(0, size, len(_ZEROS)):
            self.write(descriptor, _ZEROS[: size - offset], offset)
        self.sync(descriptor)

    def open(self, path: Path, *, writable: bool = False) -> int:
        """Open an existing file."""
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def create(self, path: Path) -> int:
        """Create a file, which must not exist yet, and open it for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def write(self, descriptor: int, data: bytes | bytearray, offset: int) -> None:
        """Write all of `data` at an offset in bytes."""
        written = os.pwrite(descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)

    def truncate(self, descriptor: int, size: int) -> None:
        """Set the size of a file in bytes; an added part is a hole."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Put all data written to a file on stable storage: an fsync without the times."""
        os.fdatasync(descriptor)

    def check_in_place(self, descriptor: int, path: Path, size: int) -> None:
        """Make sure that the data on stable storage will be found again.

        Writes and syncs also succeed on a file that another process has unlinked, renamed or
        truncated, but recovery does not find its data.

        Args:
            descriptor: descriptor of the file.
            path: the path that it must have.
            size: the size in bytes that it must have.

        Raises:
            OSError: it is not there any more, or has another size.
        """
        descriptor_stat = os.fstat(descriptor)
        try:
            path_stat = os.stat(path)
        except FileNotFoundError:
            cause = "the file has been removed or renamed while it was in use"
            raise OSError(errno.ENOENT, cause) from None
        if not os.path.samestat(descriptor_stat, path_stat):
            cause = "another file has taken the place of the file while it was in use"
            raise OSError(errno.ESTALE, cause)
        if descriptor_stat.st_size != size:
            cause = f"the file has been cut while it was in use: it should have {size} bytes"
            raise OSError(errno.ESTALE, cause)

    def commit(
        self, descriptor: int, chunks: Iterable[WriteChunk], path: Path, size: int, mark: WriteChunk
    ) -> None:
        """Write to a file, sync it, check that it is in place, and write a mark.

        Args:
            descriptor: descriptor of the file.
            chunks: the bytes to write.
            path: the path that the file must have; see `check_in_place`.
            size: the size in bytes that it must have.
            mark: the mark, written last and not synced.
        """
        pending: deque[WriteChunk] = deque()
        for chunk in chunks:
            if len(pending) == _CHUNKS_PER_WRITE:
                offset, data = pending.popleft()
                self.write(descriptor, data, offset)
            pending.append(chunk)
        if not store(descriptor, pending, os.fsencode(path), size, mark):
            self.check_in_place(descriptor, path, size)
            self.write(descriptor, mark[1], mark[0])

    def sync_directory(self, directory: Path) -> None:
        """Return once the names in a directory are on stable storage."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing one with the new name, and sync the directory."""
        os.replace(old, new)
        self.sync_directory(new.parent)

    def store_atomically(self, path: Path, data: bytes) -> None:
        """Store a small file atomically and durably."""
        temporary = path.with_name(path.name + ".tmp")
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE
        )
        try:
            self.write(descriptor, data, 0)
            self.sync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)

    def overwrite(self, path: Path, chunks: Iterable[WriteChunk]) -> None:
        """Overwrite bytes of a file, on stable storage.

        Args:
            path: path of the file, which is at least as long.
            chunks: the bytes to write.
        """
        descriptor = self.open(path, writable=True)
        try:
            for offset, data in chunks:
                self.write(descriptor, data, offset)
            self.sync(descriptor)
        finally:
            self.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


class ByteSource(Protocol):
    """The bytes of one journal file, on disk or in memory."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes from an offset; fewer at the end of the file.

        Raises:
            OSError: they cannot be read.
        """


class FileSource:
    """A journal file on the disk. It stays readable after it is unlinked or renamed.

    Args:
        path: path of the file.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        length, offset = max(length, 0), max(offset, 0)
        if length <= _READ_BATCH_SIZE:
            data = read_in_memory(self._descriptor, length, offset)
            if data is not None:
                return data
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, str(self._path)) from None


class MemorySource:
    """A journal file in memory, for example a decompressed one.

    Args:
        data: all its bytes, which are not copied.
        padding: number of zeros to append.
    """

    def __init__(self, data: bytes | bytearray, padding: int = 0) -> None:
        self._data = memoryview(data)
        self.size = len(data) + padding

    def read(self, offset: int, length: int) -> bytes:
        """See `ByteSource.read`."""
        start = min(max(offset, 0), self.size)
        end = min(start + max(length, 0), self.size)
        return bytes(self._data[start:end]).ljust(end - start, b"\0")
