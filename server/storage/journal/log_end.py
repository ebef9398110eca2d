"""Finds the end of the log after a crash.

A commit is written and synced, and only then is the next one written. After a crash everything up
to some commit is therefore intact, and any part of the unfinished commit may be on the disk:
sectors reach it in any order. The log ends before the first entry that fails its checksum.

Unless that entry had been on stable storage, and has been damaged since: then cutting the log there
would discard entries that were acknowledged. The log keeps two proofs of durability. Every
record has its lag, the distance to the entry that was the last durable one when it was made, so an
intact record further on is proof. And before a commit is acknowledged, a mark is written after its
last record, in the place of the next one. If either proves it, the damaged entry is reported and
the log goes on after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.checksum import damaged
from server.storage.journal.format.layout import (
    BODY_LENGTH,
    BODY_START,
    EXTRAS_LENGTH,
    LAG,
    LAG_UNKNOWN,
    MARK_MAGIC,
    MARK_SIZE,
    PAGE,
    RECORD_SIZE,
    TIMESTAMP,
    CommitMark,
    EntryRow,
    unpack_mark,
)
from server.storage.journal.format.records import read_bodies, read_intact_records, read_rows, slots
from server.storage.journal.storage import ByteSource

if TYPE_CHECKING:
    from server.storage.journal.recovery.log_recovery import LiveFileVisitor

MAX_COMMIT_ENTRIES: Final = 32_768
"""Limit of entries in one commit. The search for intact entries goes so far beyond the last one."""

SCAN_BATCH_SIZE = 512  # records; not Final: tests set other block sizes
_READ_BATCH_BYTES: Final = 4 << 20  # bytes of bodies


@dataclass(slots=True)
class FileExtent:
    """The written part of a file.

    Attributes:
        count: number of entries in it, damaged ones included.
        damaged_numbers: numbers of entries that cannot be read although they had been acknowledged.
        torn_slots: number of slots after the end that held a part of an unfinished commit.
        has_watermark: the first slot after the end has the mark that everything before it is
            durable.
        bodies_end: offset in bytes after the last body.
        first_timestamp: time of the first entry that can be read, 0 without entries.
        last_timestamp: time of the last one.
        extras_count: number of entries that have extras.
    """

    count: int = 0
    damaged_numbers: list[int] = field(default_factory=list)
    torn_slots: int = 0
    has_watermark: bool = False
    bodies_end: int = PAGE
    first_timestamp: int = 0
    last_timestamp: int = 0
    extras_count: int = 0


class _RecordSlot(NamedTuple):
    """The place of a record, and its contents.

    Attributes:
        number: number of the place.
        row: its record, None if the checksum fails.
        data: the entry's body with extras, None if the checksum fails.
        watermark: the mark in the place of the record, if there is one.
    """

    number: int
    row: EntryRow | None = None
    data: bytes | None = None
    watermark: CommitMark | None = None

    @property
    def proven_durable(self) -> int:
        """The number of the last entry that this slot proves to have been durable."""
        if self.watermark is not None:
            return self.number - 1
        if self.row is None or self.row[LAG] == LAG_UNKNOWN:
            return -1
        return self.number - self.row[LAG]


class _IntactSlots:
    """Consecutive slots with intact entries.

    Args:
        source: the file.
        first: the number of the first slot.
        records: their records.
        starts: offsets in the file of their bodies.
        ends: offsets after the bodies with extras.
    """

    def __init__(
        self,
        source: ByteSource,
        first: int,
        records: npt.NDArray[np.void],
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
    ) -> None:
        self._source = source
        self.first = first
        self.records = records
        self._starts = starts
        self._ends = ends

    @property
    def end(self) -> int:
        """The number of the slot after them."""
        return self.first + len(self.records)

    @property
    def bodies_end(self) -> int:
        """The offset in bytes after the last body."""
        return int(self._ends[-1])

    def read_body(self, index: int) -> bytes:
        """Read the body with extras of one of the entries."""
        start, end = int(self._starts[index]), int(self._ends[index])
        return self._source.read(start, end - start)

    def slots(self) -> Iterator[_RecordSlot]:
        """Yield the slots one by one."""
        for index, row in enumerate(self.records.tolist()):
            yield _RecordSlot(self.first + index, row, self.read_body(index))


def find_file_extent(
    source: ByteSource,
    first_txid: int,
    durable_txid: int = 0,
    visitor: LiveFileVisitor | None = None,
) -> FileExtent:
    """Find the end of the entries in a file.

    Args:
        source: the file.
        first_txid: txid of its first entry.
        durable_txid: the txid up to which the log is known to have been on stable storage.
        visitor: receives every intact entry that belongs to the log.
    """
    extent = FileExtent()
    undecided: deque[_RecordSlot] = deque()  # begins with a slot that fails its checksum
    proven_number = (
        durable_txid - first_txid
    )  # the number of the last entry that is known to have been durable
    watermark: CommitMark | None = None
    for scanned in _walk(source, first_txid):
        if (
            isinstance(scanned, _IntactSlots) and not undecided
        ):  # these prove nothing about later slots
            _accept_all(extent, scanned, visitor)
            continue
        for slot in scanned.slots() if isinstance(scanned, _IntactSlots) else (scanned,):
            proven_number = max(proven_number, slot.proven_durable)
            watermark = slot.watermark or watermark
            undecided.append(slot)
            while undecided and (
                undecided[0].data is not None or undecided[0].number <= proven_number
            ):
                _accept(extent, undecided.popleft(), visitor)
    if watermark is not None and watermark.next_txid == first_txid + extent.count:
        extent.has_watermark = True
        extent.bodies_end = max(
            extent.bodies_end, watermark.bodies_end
        )  # if the last record is damaged
    intact = [slot.number for slot in undecided if slot.data is not None]
    extent.torn_slots = intact[-1] + 1 - extent.count if intact else 0
    return extent


def _accept_all(
    extent: FileExtent, intact_slots: _IntactSlots, visitor: LiveFileVisitor | None
) -> None:
    records = intact_slots.records
    extent.count = intact_slots.end
    extent.bodies_end = intact_slots.bodies_end
    timestamps = records["timestamp"]
    if not extent.first_timestamp and timestamps.any():
        extent.first_timestamp = int(timestamps[np.flatnonzero(timestamps)[0]])
    extent.last_timestamp = int(timestamps[-1])
    extent.extras_count += int(np.count_nonzero(records["extras_length"]))
    if visitor is not None:
        visitor.visit_entries(records, intact_slots.read_body)


def _accept(extent: FileExtent, slot: _RecordSlot, visitor: LiveFileVisitor | None) -> None:
    number, row, data, _ = slot
    extent.count = number + 1
    if row is not None:
        extent.bodies_end = row[BODY_START] + _length(row)
    if row is None or data is None:
        extent.damaged_numbers.append(number)
        return
    extent.first_timestamp = extent.first_timestamp or row[TIMESTAMP]
    extent.last_timestamp = row[TIMESTAMP]
    extent.extras_count += row[EXTRAS_LENGTH] > 0
    if visitor is not None:
        visitor.visit_entry(row, data)


def _walk(source: ByteSource, first_txid: int) -> Iterator[_RecordSlot | _IntactSlots]:
    """Yield every slot in order, until there can be no more entries."""
    limit = slots(source.size)
    bodies_end, last_intact = PAGE, -1
    blank_start = 0  # slots from here on have only zeros, and matter only if others follow
    for start in range(0, limit, SCAN_BATCH_SIZE):
        if start > last_intact + MAX_COMMIT_ENTRIES:
            return
        stop = min(start + SCAN_BATCH_SIZE, limit)
        if _is_blank(source, stop, bodies_end):
            continue
        yield from map(_RecordSlot, range(blank_start, start))
        blank_start = stop
        intact_slots = _read_intact_slots(source, first_txid, start, stop, bodies_end)
        if intact_slots is not None:
            bodies_end, last_intact = intact_slots.bodies_end, stop - 1
            yield intact_slots
            continue
        rows = read_rows(source, first_txid, start, stop)
        watermark = None if None not in rows else find_mark(source, first_txid, start, len(rows))
        for number, (row, body) in enumerate(zip(rows, _bodies(source, rows), strict=True), start):
            record_offset = source.size - RECORD_SIZE * (number + 1)
            if record_offset < bodies_end:
                return  # bodies begin here: no more records
            if row is None or not bodies_end <= row[BODY_START] <= record_offset - _length(row):
                has_watermark = watermark is not None and watermark.next_txid == first_txid + number
                yield _RecordSlot(number, watermark=watermark if has_watermark else None)
                continue
            bodies_end = row[BODY_START] + _length(row)
            last_intact = number if body is not None else last_intact
            yield _RecordSlot(number, row, body)


def _is_blank(source: ByteSource, stop: int, bodies_end: int) -> bool:
    """Return whether the batch of slots before `stop` has only zeros, and no bodies are there."""
    offset = source.size - RECORD_SIZE * stop
    size = RECORD_SIZE * ((stop - 1) % SCAN_BATCH_SIZE + 1)
    return offset >= bodies_end and source.read(offset, size) == bytes(size)


def _read_intact_slots(
    source: ByteSource, first_txid: int, start: int, stop: int, bodies_end: int
) -> _IntactSlots | None:
    """Return some slots if all have intact entries, else None. A shortcut with the same result.

    Args:
        source: the file.
        first_txid: txid of its first entry.
        start: the number of the first slot.
        stop: the number of the slot after the last one.
        bodies_end: offset after the bodies of the entries before.
    """
    records = read_intact_records(source, first_txid, start, stop)
    if records is None:
        return None
    starts = records["body_start"].astype(np.int64)
    lengths = records["body_length"].astype(np.int64) + records["extras_length"]
    ends = starts + lengths
    record_offsets = source.size - RECORD_SIZE * np.arange(start + 1, stop + 1)
    before = np.concatenate(([bodies_end], ends[:-1]))
    if not ((before <= starts) & (starts <= record_offsets - lengths)).all():
        return None
    checksums = np.ascontiguousarray(records["body_crc"])
    first = 0
    while first < len(records):
        last = int(np.searchsorted(ends, starts[first] + _READ_BATCH_BYTES, "right"))
        part = slice(first, max(first + 1, last))
        offset = starts[first]
        data = source.read(int(offset), int(ends[part][-1] - offset))
        if damaged(data, starts[part] - offset, ends[part] - offset, checksums[part]):
            return None
        first = part.stop
    return _IntactSlots(source, start, records, starts, ends)


def find_mark(source: ByteSource, first_txid: int, start: int, count: int) -> CommitMark | None:
    """Find the mark in a range of slots; a file has one at most.

    Args:
        source: the file.
        first_txid: txid of its first entry.
        start: the number of the first of the slots.
        count: number of slots.
    """
    bottom = source.size - RECORD_SIZE * (start + count)
    block = source.read(bottom, RECORD_SIZE * count)
    position = block.find(MARK_MAGIC)
    while position >= 0:
        watermark = unpack_mark(block[position : position + MARK_SIZE])
        number = start + count - 1 - position // RECORD_SIZE
        if watermark is not None and watermark.next_txid == first_txid + number:
            return watermark
        position = block.find(MARK_MAGIC, position + 1)
    return None


def _length(row: EntryRow) -> int:
    return row[BODY_LENGTH] + row[EXTRAS_LENGTH]


def _bodies(source: ByteSource, rows: Sequence[EntryRow | None]) -> Iterator[bytes | None]:
    """Yield the bodies of records, reading a bounded number of bytes at a time."""
    batch: list[EntryRow | None] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += 0 if row is None else _length(row)
        if size >= _READ_BATCH_BYTES:
            yield from _bodies_of(source, batch)
            batch, size = [], 0
    yield from _bodies_of(source, batch)


def _bodies_of(source: ByteSource, rows: Sequence[EntryRow | None]) -> Iterator[bytes | None]:
    bodies = iter(read_bodies(source, [row for row in rows if row is not None]))
    for row in rows:
        yield None if row is None else next(bodies)
