"""Recovers all intact entries of a damaged SOW file, wherever they are.

A start does not read past damage, since later entries may depend on lost ones: a record that was
deleted there would be back. A tool that inspects a file shows all of it, and the parts that are
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.slab_file import SlabFile
from server.storage.sow.slab.slab_format import (
    ENTRY,
    ENTRY_HEAD,
    FIRST_ENTRY,
    CommitPoint,
    SlabHeader,
    padded,
)


class SlabGap(NamedTuple):
    """A part of a file that cannot be read.

    Attributes:
        offset: its beginning, in bytes of the file; None for a slab of which nothing is left.
        size: its size in bytes.
    """

    offset: int | None
    size: int


def salvage(file: SlabFile, on_entry: Callable[[int, bytes], None]) -> list[SlabGap]:
    """Read all intact entries.

    Args:
        file: the file.
        on_entry: called with the location and the bytes of each entry, in the order of writing.

    Returns:
        The gaps between them, as far as bytes are known to have been there.
    """
    commit_point = file.commit_point
    gaps: list[SlabGap] = []
    headers: list[tuple[int, SlabHeader]] = []
    for slab_index, slab in enumerate(file.slabs):
        header = file.read_slab_header(slab_index)
        if header is not None and header.epoch >= commit_point.tail_epoch:
            headers.append((slab_index, header))
        elif header is None and slab[:].strip(b"\0"):
            gaps.append(SlabGap(form.PAGE + slab_index * file.slab_size, file.slab_size))
    headers.sort(key=lambda item: item[1].epoch)
    missing_count = len(_missing_epochs([header for _, header in headers], commit_point)) - len(
        gaps
    )
    gaps += [SlabGap(None, file.slab_size)] * max(missing_count, 0)
    ends = {header.previous_epoch: header.previous_end for _, header in headers}
    ends.setdefault(commit_point.epoch, commit_point.position)
    for slab_index, header in headers:
        base = slab_index * file.slab_size
        for position, size, data in _entries_and_gaps(
            file, slab_index, header.epoch, ends.get(header.epoch, 0)
        ):
            if data is None:
                gaps.append(SlabGap(form.PAGE + base + position, size))
            else:
                on_entry(base + position, data)
    return gaps


def _missing_epochs(headers: Sequence[SlabHeader], point: CommitPoint) -> set[int]:
    """Return the epochs of missing slabs that other slabs or the commit point name."""
    named_epochs = {
        header.previous_epoch
        for header in headers
        if header.previous_epoch >= max(point.tail_epoch, 1)
    }
    named_epochs |= {epoch for epoch in (point.tail_epoch, point.epoch) if epoch}
    return named_epochs - {header.epoch for header in headers}


def _entries_and_gaps(
    file: SlabFile, slab_index: int, epoch: int, written: int
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield the entries of a slab and the gaps between them: position, size, bytes of an entry.

    Args:
        file: the file.
        slab_index: the slab's index.
        epoch: the epoch of the slab.
        written: the position up to which it is known to have had entries.
    """
    position = FIRST_ENTRY
    while position < file.slab_size:
        start = position
        data = _entry_at(file, slab_index, epoch, position)
        while data is None:
            position = form.next_mark(file.slabs[slab_index], epoch, position + form.ALIGNMENT)
            if position < 0:
                if start < written:
                    yield start, written - start, None
                return
            data = _entry_at(file, slab_index, epoch, position)
        if position > start:
            yield start, position - start, None
        yield position, len(data), data
        position += padded(len(data))


def _entry_at(file: SlabFile, slab_index: int, epoch: int, position: int) -> bytes | None:
    slab = file.slabs[slab_index]
    if position + ENTRY.size > file.slab_size:
        return None
    checksum, length, entry_epoch = ENTRY_HEAD.unpack_from(slab, position)
    if entry_epoch != epoch & 0xFFFFFFFF or not ENTRY.size <= length <= file.slab_size - position:
        return None
    data = slab[position : position + length]
    return data if checksum == form.crc32c(data[4:]) else None
