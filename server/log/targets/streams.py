"""Byte streams into files, plain and compressed, that survive a full disk.

A write either succeeds or stays pending: bytes that the device refused are buffered and come first
in the next attempt. So a file never holds half an entry followed by another, and a compressed file
stays readable. While bytes are pending, new ones are refused instead of buffered.
"""

import contextlib
import errno
import fcntl
import os
import select
import stat
import zlib
from collections.abc import Iterator
from typing import Final, Protocol

from config_schema.spec.common import FILE_MODE

GZIP: Final = 31
"""zlib's window parameter for the gzip format with the largest window."""

_MAGIC: Final = b"\x1f\x8b"
_READ_SIZE: Final = 1 << 16


class LogStream(Protocol):
    """An open file that is written to."""

    def write(self, data: bytes) -> None:
        """Write the pending bytes, then `data`.

        Raises:
            OSError: the device refused. `data` is pending now, unless older bytes still are.
        """

    def retry(self) -> None:
        """Write the pending bytes.

        Raises:
            OSError: the device still refuses.
        """

    def close(self) -> None:
        """Complete the file and close it.

        Raises:
            OSError: its end could not be written.
        """


class PlainStream:
    """Writes bytes unchanged to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Take ownership of `descriptor`; `close` closes it."""
        self._descriptor = descriptor
        self._pending = memoryview(b"")

    def write(self, data: bytes) -> None:
        """See `LogStream.write`."""
        self.retry()
        self._pending = memoryview(data)
        self.retry()

    def retry(self) -> None:
        """See `LogStream.retry`."""
        while self._pending:
            try:
                written = os.write(self._descriptor, self._pending)
            except BlockingIOError:  # a pipe that another process made non-blocking
                select.select((), (self._descriptor,), ())
                continue
            self._pending = self._pending[written:]

    def close(self) -> None:
        """See `LogStream.close`."""
        try:
            self.retry()
        finally:
            os.close(self._descriptor)


class GzipStream:
    """Writes compressed bytes: one gzip member per opening of the file.

    Every write ends on a byte boundary of the compressed data, so that a file can be read while it
    is written and up to the last write after a crash.

    Raises:
        OSError: another stream, of this process or another, is writing to the file: the output of
            both together would be unreadable.
    """

    def __init__(self, descriptor: int) -> None:
        """Take ownership of `descriptor`; `close` ends the member and closes it."""
        _claim(descriptor)
        self._plain = PlainStream(descriptor)
        self._compressor = zlib.compressobj(wbits=GZIP)

    def write(self, data: bytes) -> None:
        """See `LogStream.write`."""
        self._plain.retry()  # before compressing: refused data must leave no trace in the member
        compressed = self._compressor.compress(data)
        self._plain.write(compressed + self._compressor.flush(zlib.Z_SYNC_FLUSH))

    def retry(self) -> None:
        """See `LogStream.retry`."""
        self._plain.retry()

    def close(self) -> None:
        """See `LogStream.close`."""
        try:
            self._plain.write(self._compressor.flush(zlib.Z_FINISH))
        finally:
            self._plain.close()


def plain_size(path: str) -> int:
    """Return the size of a file; 0 if it does not exist, or is a pipe or a device."""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def complete_gzip(path: str) -> int:
    """Repair a gzip file truncated by a crash, so that it can be appended to.

    A reader stops at a member without an end, and would not see data appended after it. All
    readable data is copied to a new file, which then replaces the old one.

    Returns:
        The bytes of its content; 0 if there is no such file.

    Raises:
        OSError: the file cannot be read or replaced, is not a gzip file, or is being written by
            another process or stream.
    """
    path = os.path.realpath(path)
    if not os.path.isfile(path):
        return 0
    with open(path, "r+b") as file:  # a lock may require write access
        _claim(file.fileno())
        size, is_complete = _measure(path)
        return size if is_complete else _repair(path)


def _repair(path: str) -> int:
    repaired = f"{path}.repair"
    stream = GzipStream(os.open(repaired, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE))
    size, last = 0, b"\n"
    try:
        # On an error, everything before the damage has been copied.
        with contextlib.suppress(zlib.error, EOFError):
            for data in _decompressed(path):
                stream.write(data)
                size += len(data)
                last = data[-1:] or last
        if last != b"\n":
            stream.write(b"\n")
            size += 1
    finally:
        stream.close()
    os.replace(repaired, path)
    return size


def _claim(descriptor: int) -> None:
    """Lock a file for exclusive writing through `descriptor`, until that is closed."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another log is being written to it") from None
    except OSError as problem:  # network file systems may not support locks
        if problem.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise


def _measure(path: str) -> tuple[int, bool]:
    """Return the bytes of the readable content, and whether the content is complete."""
    with open(path, "rb") as file:
        if not _MAGIC.startswith(file.read(len(_MAGIC))):
            raise OSError(errno.EINVAL, "it exists and is not a gzip file", path)
    size = 0
    try:
        for data in _decompressed(path):
            size += len(data)
    except (zlib.error, EOFError):
        return size, False
    return size, True


def _decompressed(path: str) -> Iterator[bytes]:
    """Yield the content of all members of a gzip file, as far as it is readable.

    Raises:
        EOFError: the last member has no end.
        zlib.error: there is data that is not compressed.
    """
    decompressor = zlib.decompressobj(GZIP)
    inside = False
    with open(path, "rb") as file:
        while chunk := file.read(_READ_SIZE):
            while chunk:
                yield decompressor.decompress(chunk)
                chunk = decompressor.unused_data
                inside = not decompressor.eof
                if decompressor.eof:
                    decompressor = zlib.decompressobj(GZIP)
    if inside:
        raise EOFError
