"""Reads the log of a SOW file from its oldest slab to its end: at a start, and for the dump tool.

The log is a chain of slabs, each of which names its predecessor and the end of the predecessor's
entries. An unreadable entry is *damage* if it lies before the commit point, for then it was on
stable storage. After the commit point, it is where a crash ended the log: nothing after it was
acknowledged as stable, and all of it is left out, so that the records are those of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.slab_file import DamagedFileError, SlabFile
from server.storage.sow.slab.slab_format import ENTRY, ENTRY_HEAD, FIRST_ENTRY, SlabHeader, padded


class SlabExtent(NamedTuple):
    """One slab of the log.

    Attributes:
        slab_index: the slab's index in the file.
        header: its header.
        end: the end of its entries, None if it is the last slab and its end has to be found.
    """

    slab_index: int
    header: SlabHeader
    end: int | None


class SlabLogEnd(NamedTuple):
    """The end of a log.

    Attributes:
        extents: the slabs that belong to it, oldest first, all with their ends.
        highest_epoch: the highest epoch of any slab of the file.
        lost_bytes: bytes after the end that were written, but cannot be read or reached.
    """

    extents: list[SlabExtent]
    highest_epoch: int
    lost_bytes: int


def chain(file: SlabFile) -> tuple[list[SlabExtent], int]:
    """Find the slabs of the log, oldest first, and the highest epoch in the file.

    Raises:
        DamagedFileError: a slab that was committed is missing.
    """
    commit_point = file.commit_point
    by_epoch: dict[int, tuple[int, SlabHeader]] = {}
    successors: dict[int, SlabHeader] = {}
    for index in range(len(file.slabs)):
        header = file.read_slab_header(index)
        if header is None or header.previous_epoch >= header.epoch:
            continue
        by_epoch[header.epoch] = (index, header)
        other = successors.get(header.previous_epoch)
        if other is None or other.epoch < header.epoch:
            successors[header.previous_epoch] = header
    if not by_epoch:
        if commit_point.epoch:
            raise DamagedFileError(f"all slabs of {file.path} have lost their headers")
        return [], 0
    first = commit_point.tail_epoch or min(by_epoch)
    extents: list[SlabExtent] = []
    epoch: int | None = first
    while epoch is not None:
        if epoch not in by_epoch:
            raise DamagedFileError(f"the header of slab {epoch} of {file.path} is not readable")
        index, header = by_epoch[epoch]
        successor = successors.get(epoch)
        extents.append(SlabExtent(index, header, successor.previous_end if successor else None))
        epoch = successor.epoch if successor else None
    if extents[-1].header.epoch < commit_point.epoch:
        raise DamagedFileError(
            f"the slab after {extents[-1].header.epoch} of {file.path} has lost its header"
        )
    return extents, max(by_epoch)


def scan(file: SlabFile, on_entry: Callable[[int, bytes], None]) -> SlabLogEnd:
    """Read the whole log, entry by entry.

    Args:
        file: the file.
        on_entry: called with the location and the bytes of each entry, in the order of writing.

    Raises:
        DamagedFileError: an entry that was committed cannot be read.
    """

    def read(extent: SlabExtent) -> int:
        end = FIRST_ENTRY
        for position, data in entries(file, extent):
            on_entry(extent.slab_index * file.slab_size + position, data)
            end = position + padded(len(data))
        return end

    return scan_slabs(file, read)


def scan_slabs(file: SlabFile, read: Callable[[SlabExtent], int]) -> SlabLogEnd:
    """Read the whole log, slab by slab.

    Args:
        file: the file.
        read: reads the entries of a slab, in the order they were written, up to the first
            invalid one, and returns their end.

    Raises:
        DamagedFileError: an entry that was committed cannot be read.
    """
    extents, highest_epoch = chain(file)
    commit_point = file.commit_point
    read_extents: list[SlabExtent] = []
    for extent in extents:
        position = read(extent)
        read_extents.append(extent._replace(end=position))
        if extent.end is None or position < extent.end:
            epoch = extent.header.epoch
            if (epoch, position) < (commit_point.epoch, commit_point.position):
                offset = form.PAGE + extent.slab_index * file.slab_size + position
                raise DamagedFileError(
                    f"{file.path} fails its checksum at byte {offset}, which had been written"
                    " completely"
                )
            end = _last_trace(file, extent, position) if extent.end is None else extent.end
            return SlabLogEnd(read_extents, highest_epoch, end - position)
    return SlabLogEnd(read_extents, highest_epoch, 0)


def _last_trace(file: SlabFile, extent: SlabExtent, position: int) -> int:
    """Return where the entries of the newest slab once ended, as far as traces show it.

    Args:
        file: the file.
        extent: the slab.
        position: the end of the readable entries.

    Returns:
        The end of the last intact entry after the position, or of the rest of an entry that a crash
        or damage left at the position; the position itself if there is nothing of this slab.
    """
    slab, epoch = file.slabs[extent.slab_index], extent.header.epoch & 0xFFFFFFFF
    end = candidate = position
    while (candidate := form.next_mark(slab, epoch, candidate)) != -1:
        if candidate + ENTRY.size > file.slab_size:
            break
        checksum, length, entry_epoch = ENTRY_HEAD.unpack_from(slab, candidate)
        is_one = entry_epoch == epoch and ENTRY.size <= length <= file.slab_size - candidate
        if is_one and (
            candidate == position
            or checksum == form.crc32c(slab[candidate + 4 : candidate + length])
        ):
            end = candidate + length
            candidate += padded(length)
        else:
            candidate += form.ALIGNMENT
    return end


def entries(file: SlabFile, extent: SlabExtent) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a slab up to the first invalid one, with their positions."""
    slab = file.slabs[extent.slab_index]
    epoch = extent.header.epoch & 0xFFFFFFFF
    end = file.slab_size if extent.end is None else extent.end
    position = FIRST_ENTRY
    unpack_from, crc32c, header_size = ENTRY_HEAD.unpack_from, form.crc32c, ENTRY.size
    while position + header_size <= end:
        checksum, length, entry_epoch = unpack_from(slab, position)
        if entry_epoch != epoch or length < header_size or position + length > end:
            return
        data = slab[position : position + length]
        if checksum != crc32c(data[4:]):
            return
        yield position, data
        position += (length + 7) & -8
