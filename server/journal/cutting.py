"""What lies behind the end of the log is cut off, so that it is never taken for entries.

Whether that is the rest of an unfinished commit, or has been damaged since, cannot always be told.
So what is cut off is kept beside the journal: in a file of the journal's size, where everything
else is a hole, and which nothing reads or removes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.journal.errors import reason
from server.journal.naming import CUT
from server.journal.storage import Disk, FileSource

_PIECE: Final = 1 << 20
_ZEROS: Final = bytes(_PIECE)

Part = tuple[int, int]
"""From where to where, as offsets in bytes."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What has been cut off.

    Attributes:
        size: bytes that were not zero.
        kept: where that is kept, or why it is not, for people.
    """

    size: int
    kept: str


def cut_off(disk: Disk, path: Path, descriptor: int, parts: Sequence[Part]) -> Cut | None:
    """Overwrite parts of a file with zeros, and keep what was there.

    Args:
        disk: how to get at it.
        path: of the file.
        descriptor: for writing to it.
        parts: what to cut off.

    Returns:
        What was there; None if that was nothing but zeros.

    Raises:
        OSError: the file cannot be read or written.
    """
    source = FileSource(path)
    pieces = [part for part in _pieces(parts) if source.read(*part) != _ZEROS[: part[1]]]
    if not pieces:
        return None
    size = 0
    try:
        kept = f"is kept in {_keep(disk, path, source, pieces)}"
    except OSError as problem:  # no space, perhaps: the log must go on all the same
        kept = f"could not be kept: {reason(problem)}"
    for offset, length in pieces:
        size += length - source.read(offset, length).count(0)
        disk.write(descriptor, _ZEROS[:length], offset)
    disk.sync(descriptor)
    return Cut(size, kept)


def _pieces(parts: Sequence[Part]) -> Iterator[Part]:
    """Parts in pieces, as offsets and lengths."""
    for start, end in parts:
        for offset in range(start, end, _PIECE):
            yield offset, min(_PIECE, end - offset)


def _keep(disk: Disk, path: Path, source: FileSource, pieces: Sequence[Part]) -> Path:
    """Copy pieces of a file to the same places of a new file."""
    number = 1
    while (aside := path.with_name(f"{path.name}{CUT}{number}")).exists():
        number += 1
    descriptor = disk.create(aside)
    try:
        for offset, length in pieces:
            disk.write(descriptor, source.read(offset, length), offset)
        disk.truncate(descriptor, source.size)
        disk.sync(descriptor)
    except OSError:
        disk.remove(aside)
        raise
    finally:
        disk.close(descriptor)
    disk.sync_directory(aside.parent)
    return aside
