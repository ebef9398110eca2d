"""A file of records that one process appends to, and that survives a crash of that process.

The format is described in docs/formats/client_stores.md. In short: a magic text, then records,
each with its length and a checksum. Records are atomic: opening truncates an unfinished record that
a crash has left at the end. Any other deviation from the format is damage, and is reported without
changing the file.

`rewrite` compacts a file: it writes a new file beside the old one, and then replaces the old one
atomically.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, Literal

from amperage.client.errors import StoreError

SyncPolicy = Literal["never", "always"]
"""When writes are forced to the disk: "never" leaves that to the operating system, so that records
survive a crash of the process; with "always", they also survive a failure of the machine."""

_MAGIC: Final = b"\xabREC"
_HEAD: Final = Struct("<4sII")  # magic, length of the content, checksum of length and content
_LENGTH: Final = Struct("<I")
_MAX_RECORD_SIZE: Final = 256 * 1024 * 1024


class RecordLog:
    """One file of records.

    Args:
        path: the file; it is created if missing.
        magic: the first eight bytes of such a file.
        sync: see `SyncPolicy`.
        earlier_magic: the first eight bytes of files in an earlier version of the format, which can
            be read, too.

    Attributes:
        size: bytes in the file.
        is_earlier: whether the file has the earlier version; rewrite it before the first `append`.

    Raises:
        StoreError: the file cannot be used: it is locked by another store, is of another kind, is
            damaged, or the operating system reports an error.
    """

    _file = -1

    def __init__(
        self,
        path: str | os.PathLike[str],
        magic: bytes,
        sync: SyncPolicy = "never",
        earlier_magic: bytes | None = None,
    ) -> None:
        if sync not in ("never", "always"):
            raise ValueError(f'sync is {sync!r}, expected "never" or "always"')
        self._path = Path(path)
        self._magic = magic
        self._earlier_magic = earlier_magic
        self.is_earlier = False
        self._is_synced = sync == "always"
        self._process_id = os.getpid()
        try:
            self._file = self._open_locked()
            self._records, self.size = self._read_records()
        except OSError as error:
            self.close()
            raise self._store_error(error) from None

    def take_records(self) -> Iterator[bytes]:
        """Return the records read at opening, oldest first; later calls return none."""
        records, self._records = self._records, []
        return iter(records)

    def append(self, records: Iterable[bytes]) -> None:
        """Append records: all of them, or none.

        Raises:
            StoreError: the records cannot be written.
        """
        data = b"".join(map(_framed, records))
        self._check_usable()
        try:
            _write_all(self._file, data)
            if self._is_synced:
                os.fdatasync(self._file)
        except OSError as error:
            self._undo_partial_write()
            raise self._store_error(error) from None
        self.size += len(data)

    def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace all records by others, atomically.

        Raises:
            StoreError: the records cannot be replaced; the file is unchanged.
        """
        self._check_usable()
        beside = self._path.with_name(f"{self._path.name}.new")
        fresh = -1
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            fresh = os.open(beside, flags, 0o600)
            fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = self._magic + b"".join(map(_framed, records))
            _write_all(fresh, data)
            os.fsync(fresh)
            os.replace(beside, self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            if fresh >= 0:
                os.close(fresh)
            raise self._store_error(error) from None
        os.close(self._file)
        self._file, self.size = fresh, len(data)
        self.is_earlier = False

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open_locked(self) -> int:
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file), os.stat(self._path)):
                    return file
            except BlockingIOError:
                os.close(file)
                raise StoreError(
                    f"{self._path} is in use by another store, of this process or another one;"
                    " each needs a file of its own. A store stays open when its client is closed:"
                    " close() it, or open it in a `with` statement"
                ) from None
            except FileNotFoundError:
                pass
            os.close(file)  # it was replaced between opening and locking

    def _read_records(self) -> tuple[list[bytes], int]:
        data = _read_all(self._file)
        begun = data.rstrip(b"\0")  # a power failure leaves zeros where nothing was written
        if len(begun) < len(self._magic) and self._magic.startswith(begun):
            self._truncate(0)  # new, or its creation was interrupted
            _write_all(self._file, self._magic)
            return [], len(self._magic)
        self.is_earlier = self._earlier_magic is not None and data.startswith(self._earlier_magic)
        if not self.is_earlier and not data.startswith(self._magic):
            raise StoreError(f"{self._path} {_other_kind(data, self._magic)}")
        records: list[bytes] = []
        position = len(self._magic)
        while (end := _record_end(data, position)) is not None:
            records.append(data[position + _HEAD.size : end])
            position = end
        if position < len(data):
            if _has_record_behind(data, position):
                raise StoreError(
                    f"{self._path} is damaged at byte {position}, with intact records behind it;"
                    " move it aside to begin with an empty store"
                )
            self._truncate(position)
        return records, position

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._file, size)

    def _undo_partial_write(self) -> None:
        """Remove a partial write, or close the file: nothing may be appended to a partial write."""
        try:
            self._truncate(self.size)
        except OSError:
            self.close()

    def _check_usable(self) -> None:
        if self._file < 0:
            raise StoreError(f"{self._path}: the store is closed")
        if os.getpid() != self._process_id:
            raise StoreError(f"{self._path}: the store belongs to the process that opened it")

    def _store_error(self, error: OSError) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError(f"{self._path}: {error.strerror or error}")


def _framed(content: bytes) -> bytes:
    length = _LENGTH.pack(len(content))
    return _HEAD.pack(_MAGIC, len(content), zlib.crc32(content, zlib.crc32(length))) + content


def _record_end(data: bytes, position: int) -> int | None:
    """Return the end of the record at a position; None if there is no intact record."""
    start = position + _HEAD.size
    if start > len(data):
        return None
    magic, length, checksum = _HEAD.unpack_from(data, position)
    end = start + length
    if magic != _MAGIC or not 0 < length <= _MAX_RECORD_SIZE or end > len(data):
        return None
    computed_checksum = zlib.crc32(data[start:end], zlib.crc32(_LENGTH.pack(length)))
    return end if computed_checksum == checksum else None


def _has_record_behind(data: bytes, position: int) -> bool:
    """Return whether there is an intact record anywhere after a position."""
    position_found = data.find(_MAGIC, position + 1)
    while position_found >= 0:
        if _record_end(data, position_found) is not None:
            return True
        position_found = data.find(_MAGIC, position_found + 1)
    return False


def _read_all(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    parts: list[bytes] = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _other_kind(data: bytes, magic: bytes) -> str:
    """Describe a file with another magic text, whose last character is the format's version."""
    version, known_version = data[len(magic) - 1 : len(magic)], magic[-1:]
    if data.startswith(magic[:-1]) and version > known_version:
        return (
            f"has version {version.decode('ascii', 'replace')} of its format, and this program"
            f" reads {known_version.decode()}: a later Amperage has written it, and it is left as"
            " it is"
        )
    return "is no file of this kind of store"


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
