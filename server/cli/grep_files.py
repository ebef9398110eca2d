"""Selects the files that `amps-grep` searches, and detects their kinds."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final

from server.cli.amps_file import identify
from server.storage.journal.format.file_names import COMPRESSED, JOURNAL

_BEGINNING: Final = 4096
_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_JOURNALS: Final = ("journal", "AMPS journal, not yet used")


class FileKind(Enum):
    """The kind of a file."""

    JOURNAL = auto()
    LOG = auto()
    OTHER = auto()
    """Binary data, or another file of a server."""


def kind_of_file(path: Path) -> FileKind:
    """Return the kind of a file.

    A pipe counts as a log unseen: bytes that are read here would be missing later.

    Raises:
        OSError: it cannot be read.
    """
    if path.name.endswith((JOURNAL, COMPRESSED)):
        return FileKind.JOURNAL
    if path.exists() and not path.is_file():
        return FileKind.LOG
    identity = identify(path)
    if identity.kind in _JOURNALS:
        return FileKind.JOURNAL
    return FileKind.LOG if identity.version is None and _is_text(path) else FileKind.OTHER


def files_below(directory: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield the files in a directory, recursively, in the order of their names."""
    for where, directories, names in os.walk(directory, onerror=on_error):
        directories.sort()
        for name in sorted(names):
            path = Path(where, name)
            if not _is_special_file(path):
                yield path


def _is_special_file(path: Path) -> bool:
    """Return True for a pipe or another special file; errors are reported when it is read."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _is_text(path: Path) -> bool:
    """Return True if the beginning has no zero bytes, which only binary files have."""
    with path.open("rb") as file:
        start = file.read(_BEGINNING)
    if start.startswith(_GZIP_MAGIC):
        try:
            start = zlib.decompressobj(_GZIP).decompress(start, _BEGINNING)
        except zlib.error:
            return True  # damage is reported when the file is read
    return b"\0" not in start
