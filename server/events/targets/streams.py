"""Byte streams into files, plain and compressed, that survive a full disk.

A write either happens or is remembered: bytes that the device refused are kept and come first at
the next attempt. So a file never holds half an entry followed by another, and a compressed file
stays readable. While such bytes are kept, new ones are refused rather than piled up.
"""

import contextlib
import errno
import os
import select
import zlib
from collections.abc import Iterator
from typing import Final, Protocol

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
    """

    def __init__(self, descriptor: int) -> None:
        """Take over `descriptor`; `close` ends the member and closes it."""
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


def complete_gzip(path: str) -> None:
    """Make a gzip file that a crash cut short whole again, so that it can be appended to.

    A reader stops at a member without an end, and would not see what is appended behind it. What
    can be read is copied to a new file, which then takes the place of the old one.

    Raises:
        OSError: the file cannot be read or replaced, or is something else than a gzip file.
    """
    path = os.path.realpath(path)
    if not os.path.isfile(path) or _is_complete(path):
        return
    repaired = f"{path}.repair"
    stream = GzipStream(os.open(repaired, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666))
    last = b"\n"
    try:
        with contextlib.suppress(
            zlib.error, EOFError
        ):  # everything before the damage has been copied
            for data in _decompressed(path):
                stream.write(data)
                last = data[-1:] or last
        if last != b"\n":
            stream.write(b"\n")
    finally:
        stream.close()
    os.replace(repaired, path)


def _is_complete(path: str) -> bool:
    with open(path, "rb") as file:
        if not _MAGIC.startswith(file.read(len(_MAGIC))):
            raise OSError(errno.EINVAL, "it exists and is not a gzip file", path)
    try:
        for _ in _decompressed(path):
            pass
    except (zlib.error, EOFError):
        return False
    return True


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
