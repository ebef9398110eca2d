"""What the files beside the journals have in common: indexes, and caches of what the log says.

They begin with a magic word and the version of their format, and end with a checksum of all that.
Each can be made anew from the log: whoever finds one damaged does that.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from server.base.data_files import version_mismatch
from server.journal.errors import JournalError, reason
from server.journal.layout import CHECKSUM, FormatError, VersionError, has_checksum
from server.journal.storage import Disk

REPLICATION_MAGIC: Final = b"AMPGRACK"
"""Of the file in which replication keeps what it remembers; see `server.replication.state`."""

REPLICATION_VERSION: Final = 1

_START: Final = struct.Struct("<8sH")  # magic, version


def check_side_file(data: bytes, magic: bytes, version: int, header_size: int, kind: str) -> None:
    """Check that a file is whole, and what it should be.

    Args:
        data: its bytes.
        magic: how it should begin.
        version: of the format that it should have.
        header_size: bytes of its header, with magic word and version.
        kind: what it should be, with its article.

    Raises:
        VersionError: it is whole, and of another version.
        FormatError: it is damaged, or something else.
    """
    if len(data) < _START.size + CHECKSUM.size or data[: len(magic)] != magic:
        raise FormatError(f"it does not begin like {kind}")
    if not has_checksum(data):
        raise FormatError("its checksum is wrong")
    _, found = _START.unpack_from(data)
    if found != version:
        raise VersionError(version_mismatch(found, version))
    if len(data) < header_size + CHECKSUM.size:
        raise FormatError(f"it is too short for {kind}")


class SideFile:
    """A file that is always replaced as a whole.

    Args:
        path: where it is.
        disk: what it is on.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path: Final = path
        self._disk: Final = disk
        self._left: bytes | None = None

    def read(self) -> bytes | None:
        """What has been stored; None if nothing has.

        Raises:
            OSError: it cannot be read.
        """
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def store(self, data: bytes) -> None:
        """Replace what has been stored; what it takes into account is on stable storage.

        It may be called on any thread, one call after the other.

        Raises:
            JournalError: it cannot be stored.
        """
        try:
            self._disk.store(self.path, data)
        except OSError as problem:
            raise JournalError(reason(problem)) from problem

    def leave(self, data: bytes) -> None:
        """Keep what is to be stored last."""
        self._left = data

    def store_what_is_left(self) -> None:
        """Store what has been kept for the end, if anything has.

        Raises:
            OSError: it cannot be stored.
        """
        if self._left is not None:
            self._disk.store(self.path, self._left)
