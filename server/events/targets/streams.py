"""Byte streams into files, plain and compressed, that survive a full disk.

A write either happens or is remembered: bytes that the device refused are kept and come first at
the next attempt. So a file never holds half an entry followed by another, and a compressed file
stays readable. While such bytes are kept, new ones are refused rather than piled up.
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


class Stream(Protocol):
    """A file being written."""

    def write(self, data: bytes) -> None:
        """Write what waits from before, then `data`.

        Raises:
            OSError: the device refused. `data` waits now, unless something waited before it.
        """

    def retry(self) -> None:
        """Write the bytes that wait.

        Raises:
            OSError: the device still refuses.
        """

    def close(self) -> None:
        """Complete the file and give it up.

        Raises:
            OSError: its end could not be written.
        """


class PlainStream:
    """Bytes as they are, to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Take over `descriptor`; `close` closes it."""
        self._descriptor = descriptor
        self._pending = memoryview(b"")

    def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        self.retry()
        self._pending = memoryview(data)
        self.retry()

    def retry(self) -> None:
        """See `Stream.retry`."""
        while self._pending:
            try:
                written = os.write(self._descriptor, self._pending)
            except BlockingIOError:  # a pipe that somebody else made non-blocking
                select.select((), (self._descriptor,), ())
                continue
            self._pending = self._pending[written:]

    def close(self) -> None:
        """See `Stream.close`."""
        try:
            self.retry()
        finally:
            os.close(self._descriptor)


class GzipStream:
    """Compressed bytes: one gzip member per opening of the file.

    Every write ends on a byte boundary of the compressed data, so that a file can be read while it
    is written and up to the last write after a crash.

    Raises:
        OSError: another stream, of this process or another, is writing to the file: what both
            write could not be read any more.
    """

    def __init__(self, descriptor: int) -> None:
        """Take over `descriptor`; `close` ends the member and closes it."""
        _claim(descriptor)
        self._plain = PlainStream(descriptor)
        self._compressor = zlib.compressobj(wbits=GZIP)

    def write(self, data: bytes) -> None:
        """See `Stream.write`."""
        self._plain.retry()  # before compressing: what is refused must leave no trace in the member
        compressed = self._compressor.compress(data)
        self._plain.write(compressed + self._compressor.flush(zlib.Z_SYNC_FLUSH))

    def retry(self) -> None:
        """See `Stream.retry`."""
        self._plain.retry()

    def close(self) -> None:
        """See `Stream.close`."""
        try:
            self._plain.write(self._compressor.flush(zlib.Z_FINISH))
        finally:
            self._plain.close()


def plain_size(path: str) -> int:
    """The bytes of a file; 0 if there is none, or if it is a pipe or a device."""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def complete_gzip(path: str) -> int:
    """Make a gzip file that a crash cut short whole again, so that it can be appended to.

    A reader stops at a member without an end, and would not see what is appended behind it. What
    can be read is copied to a new file, which then takes the place of the old one.

    Returns:
        The bytes of its content; 0 if there is no such file.

    Raises:
        OSError: the file cannot be read or replaced, is something else than a gzip file, or is
            being written by somebody else.
    """
    path = os.path.realpath(path)
    if not os.path.isfile(path):
        return 0
    with open(path, "r+b") as file:  # a lock may need the right to write
        _claim(file.fileno())
        size, is_complete = _measure(path)
        return size if is_complete else _repair(path)


def _repair(path: str) -> int:
    repaired = f"{path}.repair"
    stream = GzipStream(os.open(repaired, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE))
    size, last = 0, b"\n"
    try:
        with contextlib.suppress(
            zlib.error, EOFError
        ):  # everything before the damage has been copied
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
    """Make it the only one through which its file is written, until it is closed."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another log is being written to it") from None
    except OSError as problem:  # file systems of other machines may have no locks
        if problem.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise


def _measure(path: str) -> tuple[int, bool]:
    """The bytes of the content, as far as it can be read, and whether that is all of it."""
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
    """The content of all members of a gzip file, as far as it goes.

    Raises:
        EOFError: the last member has no end.
        zlib.error: there is something else than compressed data.
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
