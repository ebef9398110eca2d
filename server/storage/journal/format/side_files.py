"""The common format of the files beside the journals: indexes, and caches derived from the log.

They begin with a magic word and the version of their format, and end with a checksum of everything
before it. Each can be rebuilt from the log, and is rebuilt by a reader that finds it damaged.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from server.storage.journal.errors import JournalError, reason
from server.storage.journal.format.layout import (
    CHECKSUM,
    JournalFormatError,
    JournalVersionError,
    has_checksum,
)
from server.storage.journal.storage import Disk
from server.util.file_lock import version_mismatch

REPLICATION_MAGIC: Final = b"AMPGRACK"
"""Magic word of the file of `server.replication.core.persistent_state`."""

REPLICATION_VERSION: Final = 1

_START: Final = struct.Struct("<8sH")  # magic, version


def check_side_file(data: bytes, magic: bytes, version: int, header_size: int, kind: str) -> None:
    """Check that a file is intact, and of the expected kind and version.

    Args:
        data: its bytes.
        magic: the expected magic word.
        version: the expected version of the format.
        header_size: bytes of its header, with magic word and version.
        kind: name of the expected kind of file, with its article.

    Raises:
        JournalVersionError: it is intact, and of another version.
        JournalFormatError: it is damaged, or of another kind.
    """
    if len(data) < _START.size + CHECKSUM.size or data[: len(magic)] != magic:
        raise JournalFormatError(f"it does not begin like {kind}")
    if not has_checksum(data):
        raise JournalFormatError("its checksum is wrong")
    _, file_version = _START.unpack_from(data)
    if file_version != version:
        raise JournalVersionError(version_mismatch(file_version, version))
    if len(data) < header_size + CHECKSUM.size:
        raise JournalFormatError(f"it is too short for {kind}")


class SidecarFile:
    """A file that is always replaced as a whole.

    Args:
        path: path of the file.
        disk: the disk that it is on.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path: Final = path
        self._disk: Final = disk
        self._deferred: bytes | None = None

    def read(self) -> bytes | None:
        """Read the stored bytes; None if the file does not exist.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def store(self, data: bytes) -> None:
        """Replace the stored bytes. The log entries that they cover are on stable storage.

        It may be called on any thread, one call at a time.

        Raises:
            JournalError: it cannot be stored.
        """
        try:
            self._disk.store_atomically(self.path, data)
        except OSError as problem:
            raise JournalError(reason(problem)) from problem

    def defer_store(self, data: bytes) -> None:
        """Keep bytes in memory, to be stored at the close."""
        self._deferred = data

    def store_deferred(self) -> None:
        """Store the bytes kept by `defer_store`, if there are any.

        Raises:
            OSError: it cannot be stored.
        """
        if self._deferred is not None:
            self._disk.store_atomically(self.path, self._deferred)
