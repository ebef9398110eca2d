"""Cuts off the bytes after the end of the log, so that they are never taken for entries.

They may be the rest of an unfinished commit, or have been damaged later; the two cannot always be
distinguished. So the bytes are kept beside the journal, in a sparse file of the journal's size, at
the same offsets. Nothing reads or removes that file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from server.storage.journal.errors import reason
from server.storage.journal.format.file_names import TRUNCATED_SUFFIX
from server.storage.journal.storage import Disk, FileSource

_CHUNK_SIZE: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_SIZE)

ByteRange = tuple[int, int]
"""Start and end, as offsets in bytes."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """The bytes that have been cut off.

    Attributes:
        size: number of bytes that were not zero.
        copy_status: text for operators: where the bytes are kept, or why they are not.
    """

    size: int
    copy_status: str


def cut_off(
    disk: Disk, path: Path, descriptor: int, parts: Sequence[ByteRange]
) -> Truncation | None:
    """Overwrite parts of a file with zeros, and keep their bytes in another file.

    Args:
        disk: gives access to the file.
        path: path of the file.
        descriptor: descriptor for writing to it.
        parts: the parts to cut off.

    Returns:
        A summary of the bytes; None if they were all zeros.

    Raises:
        OSError: the file cannot be read or written.
    """
    source = FileSource(path)
    chunks = [part for part in _chunks(parts) if source.read(*part) != _ZEROS[: part[1]]]
    if not chunks:
        return None
    size = 0
    try:
        copy_status = f"are kept in {_save_chunks(disk, path, source, chunks)}"
    except OSError as problem:  # perhaps no space: the log must go on even so
        copy_status = f"could not be kept: {reason(problem)}"
    for offset, length in chunks:
        size += length - source.read(offset, length).count(0)
        disk.write(descriptor, _ZEROS[:length], offset)
    disk.sync(descriptor)
    return Truncation(size, copy_status)


def _chunks(parts: Sequence[ByteRange]) -> Iterator[ByteRange]:
    """Split parts into chunks, as offsets and lengths."""
    for start, end in parts:
        for offset in range(start, end, _CHUNK_SIZE):
            yield offset, min(_CHUNK_SIZE, end - offset)


def _save_chunks(disk: Disk, path: Path, source: FileSource, chunks: Sequence[ByteRange]) -> Path:
    """Copy chunks of a file to the same offsets of a new file, and return its path."""
    number = 1
    while (copy_path := path.with_name(f"{path.name}{TRUNCATED_SUFFIX}{number}")).exists():
        number += 1
    descriptor = disk.create(copy_path)
    try:
        for offset, length in chunks:
            disk.write(descriptor, source.read(offset, length), offset)
        disk.truncate(descriptor, source.size)
        disk.sync(descriptor)
    except OSError:
        disk.remove(copy_path)
        raise
    finally:
        disk.close(descriptor)
    disk.sync_directory(copy_path.parent)
    return copy_path
