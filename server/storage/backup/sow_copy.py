"""Copies a SOW file that is being written to, up to its commit point.

The log of a SOW file is appended to. As long as no slab is cleaned and reused, the entries before
its commit point do not change. The copy has these alone: slabs that are not part of that log are
holes. `FileStore.keeps_slabs` prevents cleaning; where an operation cleans nevertheless, a later
commit point shows it, and the copy fails.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from server.storage.backup.file_copy import CopiedFile, CopyWriter
from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.slab_format import FIRST_ENTRY, PAGE, CommitPoint, SlabHeader

if TYPE_CHECKING:
    from pathlib import Path

    from server.storage.backup.file_copy import AbortCheck

_SLOT_SIZE = 512


class SlabsReusedError(OSError):
    """Slabs may have been reused while they were copied. Another attempt may succeed."""


class _SlabPart(NamedTuple):
    """A part of a slab: its number in the file, and the end of its entries."""

    slab_index: int
    end: int


def copy_sow_file(source: Path, target: Path, check: AbortCheck) -> CopiedFile:
    """Copy the records of a SOW file, as they are at its commit point.

    Args:
        source: the file.
        target: the copy.
        check: called between two pieces.

    Raises:
        SlabsReusedError: slabs may have been reused meanwhile.
        OSError: the file cannot be copied, or is damaged.
    """
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        page = os.pread(descriptor, PAGE, 0)
        file_header = form.unpack_file_header(page[:64])
        if file_header is None:
            raise OSError(errno.EBADMSG, "the first page is not that of a SOW file", str(source))
        _, slab_size = file_header
        point = _commit_point(page)
        slab_count = (os.fstat(descriptor).st_size - PAGE) // slab_size
        with CopyWriter(target, check) as writer:
            writer.write(_with_commit_point(page, point))
            for part in sorted(_find_log(descriptor, point, slab_size, slab_count)):
                begin = PAGE + part.slab_index * slab_size
                writer.skip_to(begin)
                writer.copy(descriptor, begin, begin + part.end)
            writer.skip_to(PAGE + slab_count * slab_size)
            copied = writer.finish()
        if _commit_point(os.pread(descriptor, PAGE, 0)).tail_epoch != point.tail_epoch:
            raise SlabsReusedError(
                errno.EAGAIN, "its slabs were cleaned while it was copied", str(source)
            )
    finally:
        os.close(descriptor)
    return copied


def _commit_point(page: bytes) -> CommitPoint:
    return max(
        form.unpack_commit_slot(page[slot : slot + _SLOT_SIZE]) for slot in form.COMMIT_SLOTS
    )


def _with_commit_point(page: bytes, point: CommitPoint) -> bytes:
    """Return a first page with one commit point alone."""
    copy = bytearray(page)
    for slot in form.COMMIT_SLOTS:
        copy[slot : slot + _SLOT_SIZE] = bytes(_SLOT_SIZE)
    content = form.pack_commit(point)
    copy[form.COMMIT_SLOTS[0] : form.COMMIT_SLOTS[0] + len(content)] = content
    return bytes(copy)


def _find_log(
    descriptor: int, point: CommitPoint, slab_size: int, slab_count: int
) -> Iterator[_SlabPart]:
    """Yield the parts of the slabs that make up the log up to a commit point, newest first.

    Raises:
        OSError: one of them has no intact header.
    """
    headers: dict[int, tuple[int, SlabHeader]] = {}
    for index in range(slab_count):
        data = os.pread(descriptor, FIRST_ENTRY, PAGE + index * slab_size)
        header = form.unpack_slab_header(data)
        if header is not None:
            headers[header.epoch] = index, header
    epoch, end = point.epoch, point.position
    while epoch:
        if epoch not in headers:
            raise OSError(errno.EBADMSG, f"the header of slab {epoch} is not readable")
        index, header = headers[epoch]
        yield _SlabPart(index, end)
        if epoch == point.tail_epoch:
            return
        epoch, end = header.previous_epoch, header.previous_end
