"""Which files `amps-grep` searches, and as what."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final

from server.journal.naming import COMPRESSED, JOURNAL
from server.tools.amps_file import identify

_BEGINNING: Final = 4096
_GZIP: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_JOURNALS: Final = ("journal", "AMPS journal, not yet used")


class FileKind(Enum):
    """What a file is."""

    JOURNAL = auto()
    LOG = auto()
    OTHER = auto()
    """Nothing that people read, or another file of a server."""


def kind_of_file(path: Path) -> FileKind:
    """Find out what a file is.

    A pipe is taken for a log: what is read of it would be missing later.

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


def files_below(directory: Path, complain: Callable[[OSError], None]) -> Iterator[Path]:
    """The files in a directory, and in those below, in the order of their names."""
    for where, directories, names in os.walk(directory, onerror=complain):
        directories.sort()
        for name in sorted(names):
            path = Path(where, name)
            if not _is_something_else(path):
                yield path


def _is_something_else(path: Path) -> bool:
    """Whether there is no file, but a pipe for instance; what cannot be seen is told later."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _is_text(path: Path) -> bool:
    """Whether there are no zeros at the beginning, which are found in binary files only."""
    with path.open("rb") as file:
        start = file.read(_BEGINNING)
    if start.startswith(_GZIP_MAGIC):
        try:
            start = zlib.decompressobj(_GZIP).decompress(start, _BEGINNING)
        except zlib.error:
            return True  # what is damaged is told when it is read
    return b"\0" not in start
