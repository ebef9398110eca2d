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
        rival = successors.get(header.previous_epoch)
        if rival is None or rival.epoch < header.epoch:
            successors[header.previous_epoch] = header
    if not by_epoch:
        if commit_point.epoch:
            raise DamagedFileError(f"all slabs of {file.path} have lost their headers")
        return [], 0
    first = commit_point.tail_epoch or min(by_epoch)
    links: list[SlabExtent] = []
    epoch: int | None = first
    while epoch is not None:
        if epoch not in by_epoch:
            raise DamagedFileError(f"the header of slab {epoch} of {file.path} is not readable")
        index, header = by_epoch[epoch]
        following = successors.get(epoch)
        links.append(SlabExtent(index, header, following.previous_end if following else None))
        epoch = following.epoch if following else None
    if links[-1].header.epoch < commit_point.epoch:
        raise DamagedFileError(
            f"the slab after {links[-1].header.epoch} of {file.path} has lost its header"
        )
    return links, max(by_epoch)


def scan(file: SlabFile, take: Callable[[int, bytes], None]) -> SlabLogEnd:
    """Read the whole log, entry by entry.

    Args:
        file: the file.
        take: called with the location and the bytes of each entry, in the order they were written.

    Raises:
        DamagedFileError: an entry that was committed cannot be read.
    """

    def read(link: SlabExtent) -> int:
        end = FIRST_ENTRY
        for position, data in entries(file, link):
            take(link.slab_index * file.slab_size + position, data)
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
    links, highest = chain(file)
    commit_point = file.commit_point
    whole: list[SlabExtent] = []
    for link in links:
        position = read(link)
        whole.append(link._replace(end=position))
        if link.end is None or position < link.end:
            epoch = link.header.epoch
            if (epoch, position) < (commit_point.epoch, commit_point.position):
                place = form.PAGE + link.slab_index * file.slab_size + position
                raise DamagedFileError(
                    f"{file.path} fails its checksum at byte {place}, which had been written"
                    " completely"
                )
            end = _last_trace(file, link, position) if link.end is None else link.end
            return SlabLogEnd(whole, highest, end - position)
    return SlabLogEnd(whole, highest, 0)


def _last_trace(file: SlabFile, link: SlabExtent, position: int) -> int:
    """Return where the entries of the newest slab once ended, as far as traces show it.

    Args:
        file: the file.
        link: the slab.
        position: the end of the readable entries.

    Returns:
        The end of the last intact entry after the position, or of the rest of an entry that a crash
        or damage left at the position; the position itself if there is nothing of this slab.
    """
    slab, epoch = file.slabs[link.slab_index], link.header.epoch & 0xFFFFFFFF
    end = place = position
    while (place := form.next_mark(slab, epoch, place)) != -1:
        if place + ENTRY.size > file.slab_size:
            break
        checksum, length, its_epoch = ENTRY_HEAD.unpack_from(slab, place)
        is_one = its_epoch == epoch and ENTRY.size <= length <= file.slab_size - place
        if is_one and (
            place == position or checksum == form.crc32c(slab[place + 4 : place + length])
        ):
            end = place + length
            place += padded(length)
        else:
            place += form.ALIGNMENT
    return end


def entries(file: SlabFile, link: SlabExtent) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of a slab up to the first invalid one, with their positions."""
    slab = file.slabs[link.slab_index]
    epoch = link.header.epoch & 0xFFFFFFFF
    end = file.slab_size if link.end is None else link.end
    position = FIRST_ENTRY
    unpack_from, crc32c, header_size = ENTRY_HEAD.unpack_from, form.crc32c, ENTRY.size
    while position + header_size <= end:
        checksum, length, its_epoch = unpack_from(slab, position)
        if its_epoch != epoch or length < header_size or position + length > end:
            return
        data = slab[position : position + length]
        if checksum != crc32c(data[4:]):
            return
        yield position, data
        position += (length + 7) & -8
