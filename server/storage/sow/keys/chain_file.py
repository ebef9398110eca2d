"""The file of the chaining key generator: maps ids to chains.

The file begins with a 16-byte header: the text `AMPCHAIN`, the version of the format (1) as a
32-bit integer, and four zero bytes. Entries follow, each 8-byte header and an id:

    offset  size  content
    0       4     CRC-32C of everything after it
    4       4     length of the id in bytes
    8       8     the chain's SOW key, an unsigned integer
    16            the id, UTF-8

All integers are little-endian. Entries are only appended. An invalid entry at the end of
the file, also one followed only by zeros, is the rest of an append that a crash interrupted, and is
cut off. So the rest of an append to a full disk is cut off before anything is appended to it. An
invalid entry elsewhere is damage: the file is kept under another name, and a new one begins with
the entries before the damage. In both cases chain_recovery.py adds the ids that are lost.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

from config_schema.spec.common import FILE_MODE
from server.storage.sow.group_commit import CommitJob, SowCommitter
from server.storage.sow.store import RecordStoreError
from server.util.encoding import bytes_to_text, text_to_bytes
from server.util.file_lock import FileInUseError, free_name, lock, version_mismatch

VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sII")
HEADER_SIZE: Final = _HEADER.size
MAGIC: Final = b"AMPCHAIN"
_CHECKSUM: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<IIQ")
_TAIL: Final = struct.Struct("<IQ")


class DamagedChainFileError(Exception):
    """The file's content differs from the bytes written. The text names the place."""


class ChainFileDamage(NamedTuple):
    """Damage of a file that an interrupted append does not explain.

    Attributes:
        offset: its beginning, in bytes.
        damaged_path: the path of the damaged file now.
    """

    offset: int
    damaged_path: Path


class ChainFile:
    """Appends ids to a file, and reads them at a start.

    Args:
        path: the file; it is created if it does not exist, with its directory.

    Attributes:
        lost_bytes: bytes that were cut off because they are no complete entries.
        damage: see `ChainFileDamage`; None if there is none.
        is_intact: whether nothing was cut off, and the file existed.

    Raises:
        DamagedChainFileError: the file is no chain file, or has another version.
        FileInUseError: another process has the file open.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor: Final = os.open(path, flags, FILE_MODE)
        try:
            self._lock()
            content = path.read_bytes()
            size_before = len(content)
            if size_before < _HEADER.size or not any(content):  # a torn first write
                content = _HEADER.pack(MAGIC, VERSION, 0)
                os.ftruncate(self._descriptor, 0)
                os.write(self._descriptor, content)
                self.lost_bytes = size_before
            else:
                self.lost_bytes = 0
            self._entries, self._end = _read(path, content)
            self.damage = _set_aside(path, content, self._end)
            self.lost_bytes += len(content) - self._end
            self.is_intact: Final = size_before > 0 and not self.lost_bytes
            self._is_torn = True  # there may be bytes after the last complete entry
            self._truncate_torn()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self) -> None:
        try:
            lock(self._descriptor)
        except FileInUseError as holder:
            raise FileInUseError(
                f"{self.path} is in use by {holder}: a file of chained ids is for one topic"
            ) from None

    @property
    def size(self) -> int:
        """Bytes of its complete entries, with the header."""
        return self._end

    def load(self) -> Iterator[tuple[str, int]]:
        """Return the ids and keys that the file had when it was opened; call it once."""
        entries, self._entries = self._entries, []
        return iter(entries)

    def append(self, ids: Sequence[str], key: int) -> None:
        """Append ids of a chain, all or none.

        Raises:
            RecordStoreError: the ids cannot be written.
        """
        entries = b"".join([_entry(text_to_bytes(id_), key) for id_ in ids])
        try:
            self._truncate_torn()
            self._is_torn = True
            written = 0
            while written < len(entries):  # a short write does not report the error yet
                written += os.write(self._descriptor, entries[written:])
        except OSError as error:
            with suppress(OSError):  # the next append tries again
                self._truncate_torn()
            raise RecordStoreError(f"{self.path} cannot grow: {error.strerror or error}") from error
        self._end += written
        self._is_torn = False

    def _truncate_torn(self) -> None:
        """Truncate the file to its complete entries."""
        if self._is_torn:
            os.ftruncate(self._descriptor, self._end)
            self._is_torn = False

    def commit(
        self,
        committer: SowCommitter,
        callback: Callable[[OSError | None], None],
    ) -> None:
        """Request that all entries so far are put on stable storage, like a topic's file.

        Args:
            committer: the thread that synchronises files.
            callback: called on the engine's thread once they are, or with the error if they cannot
                be.
        """
        committer.submit(
            CommitJob(self._descriptor, lambda: None, lambda _: callback(None), callback)
        )

    def synchronise(self) -> None:
        """Put the file on stable storage.

        Raises:
            OSError: it cannot be put there.
        """
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _entry(octets: bytes, key: int) -> bytes:
    content = _TAIL.pack(len(octets), key) + octets
    return _CHECKSUM.pack(google_crc32c.value(content)) + content


def other_version(content: bytes) -> str | None:
    """Return why a file of chained ids of another version cannot be read; None for others.

    Args:
        content: the content of the file; the header suffices.
    """
    if len(content) < _HEADER.size:
        return None
    magic, version, _ = _HEADER.unpack_from(content)
    return version_mismatch(version, VERSION) if magic == MAGIC and version != VERSION else None


def _set_aside(path: Path, content: bytes, end: int) -> ChainFileDamage | None:
    """Keep a copy of a damaged file.

    Args:
        path: the file.
        content: its content.
        end: the end of its complete entries.

    Returns:
        The damage; None if an interrupted append explains all bytes after these entries.
    """
    written = len(content.rstrip(b"\0"))
    if written < end + _ENTRY.size:
        return None
    _, length, _ = _ENTRY.unpack_from(content.ljust(end + _ENTRY.size, b"\0"), end)
    if written <= end + _ENTRY.size + length:
        return None
    copy_path = free_name(path)
    copy_path.write_bytes(content)
    return ChainFileDamage(end, copy_path)


def _read(path: Path, content: bytes) -> tuple[list[tuple[str, int]], int]:
    if not content.startswith(MAGIC):
        raise DamagedChainFileError(f"{path} does not begin as a file of chained ids does")
    if cause := other_version(content):
        raise DamagedChainFileError(f"{path}: {cause}")
    entries: list[tuple[str, int]] = []
    position = _HEADER.size
    while position + _ENTRY.size <= len(content):
        checksum, length, key = _ENTRY.unpack_from(content, position)
        end = position + _ENTRY.size + length
        if end > len(content):
            break
        if checksum != google_crc32c.value(content[position + _CHECKSUM.size : end]):
            break
        entries.append((bytes_to_text(content[position + _ENTRY.size : end]), key))
        position = end
    return entries, position
