"""Where the log ends after a crash.

A commit is written, made safe, and only then is the next one written. After a crash everything up
to some commit is therefore whole, and of the one that was under way any part may be there: sectors
reach the disk in any order. The log ends before the first entry that does not check.

Unless that entry had been on stable storage, and has been damaged since: then cutting the log there
would throw away entries that were acknowledged. How far the log was safe is noted twice: every
record says how far when it was made, so an intact record further on proves it; and before a commit
is acknowledged, a mark that says so is written behind its last record, where the next one will be.
If either proves it, the damaged entry is named and the log goes on behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from server.journal.layout import (
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
    Mark,
    Row,
    unpack_mark,
)
from server.journal.records import read_bodies, read_rows, slots
from server.journal.storage import Source

MOST_IN_COMMIT: Final = 32_768
"""Entries in one commit at most: so far behind the last intact one has to be looked for others."""

_TOGETHER: Final = 512  # records
_BYTES_TOGETHER: Final = 4 << 20  # bodies

Visit = Callable[[Row, bytes], None]
"""Is given each entry that holds: its record, and body with extras."""


@dataclass(slots=True)
class Extent:
    """How far a file has been written.

    Attributes:
        count: entries in it, damaged ones included.
        damaged: numbers of those that cannot be read although they had been acknowledged.
        torn: slots behind the end that held something of an unfinished commit.
        is_marked: the first slot behind the end has the mark that everything before it is safe.
        bodies_end: offset in bytes behind the last body.
        first_timestamp: of the first entry that can be read, 0 without entries.
        last_timestamp: of the last one.
        with_extras: entries that have extras.
    """

    count: int = 0
    damaged: list[int] = field(default_factory=list)
    torn: int = 0
    is_marked: bool = False
    bodies_end: int = PAGE
    first_timestamp: int = 0
    last_timestamp: int = 0
    with_extras: int = 0


class _Slot(NamedTuple):
    """The place of a record, and what is there.

    Attributes:
        number: of the place.
        row: its record, None if that does not check.
        data: the entry's body with extras, None if it does not check.
        mark: what stands in the place of the record, if that is a mark.
    """

    number: int
    row: Row | None = None
    data: bytes | None = None
    mark: Mark | None = None

    @property
    def proves(self) -> int:
        """The number of the last entry that this slot proves to have been safe."""
        if self.mark is not None:
            return self.number - 1
        if self.row is None or self.row[LAG] == LAG_UNKNOWN:
            return -1
        return self.number - self.row[LAG]


def find_extent(
    source: Source, first_txid: int, safe: int = 0, visit: Visit | None = None
) -> Extent:
    """Find the end of a file.

    Args:
        source: the file.
        first_txid: of its first entry.
        safe: the txid up to which the log is known to have been on stable storage.
        visit: given every entry that belongs to the log, in order.
    """
    extent = Extent()
    undecided: deque[_Slot] = deque()  # begins with a slot that does not check
    proven = safe - first_txid  # the number of the last entry that is known to have been safe
    mark: Mark | None = None
    for slot in _walk(source, first_txid):
        proven = max(proven, slot.proves)
        mark = slot.mark or mark
        undecided.append(slot)
        while undecided and (undecided[0].data is not None or undecided[0].number <= proven):
            _accept(extent, undecided.popleft(), visit)
    if mark is not None and mark.next_txid == first_txid + extent.count:
        extent.is_marked = True
        extent.bodies_end = max(extent.bodies_end, mark.bodies_end)  # if the last record is damaged
    intact = [slot.number for slot in undecided if slot.data is not None]
    extent.torn = intact[-1] + 1 - extent.count if intact else 0
    return extent


def _accept(extent: Extent, slot: _Slot, visit: Visit | None) -> None:
    number, row, data, _ = slot
    extent.count = number + 1
    if row is not None:
        extent.bodies_end = row[BODY_START] + _length(row)
    if row is None or data is None:
        extent.damaged.append(number)
        return
    extent.first_timestamp = extent.first_timestamp or row[TIMESTAMP]
    extent.last_timestamp = row[TIMESTAMP]
    extent.with_extras += row[EXTRAS_LENGTH] > 0
    if visit is not None:
        visit(row, data)


def _walk(source: Source, first_txid: int) -> Iterator[_Slot]:
    """Look at every slot in order, until there can be nothing more."""
    limit = slots(source.size)
    bodies_end, last_intact = PAGE, -1
    for start in range(0, limit, _TOGETHER):
        if start > last_intact + MOST_IN_COMMIT:
            return
        rows = read_rows(source, first_txid, start, min(start + _TOGETHER, limit))
        mark = None if None not in rows else find_mark(source, first_txid, start, len(rows))
        for number, (row, body) in enumerate(zip(rows, _bodies(source, rows), strict=True), start):
            place = source.size - RECORD_SIZE * (number + 1)
            if place < bodies_end:
                return  # here are bodies, whatever they look like
            if row is None or not bodies_end <= row[BODY_START] <= place - _length(row):
                is_here = mark is not None and mark.next_txid == first_txid + number
                yield _Slot(number, mark=mark if is_here else None)
                continue
            bodies_end = row[BODY_START] + _length(row)
            last_intact = number if body is not None else last_intact
            yield _Slot(number, row, body)


def find_mark(source: Source, first_txid: int, start: int, count: int) -> Mark | None:
    """The mark in one of some slots; there is one in a file at most.

    Args:
        source: the file.
        first_txid: of its first entry.
        start: the number of the first of the slots.
        count: how many there are.
    """
    bottom = source.size - RECORD_SIZE * (start + count)
    block = source.read(bottom, RECORD_SIZE * count)
    place = block.find(MARK_MAGIC)
    while place >= 0:
        mark = unpack_mark(block[place : place + MARK_SIZE])
        number = start + count - 1 - place // RECORD_SIZE
        if mark is not None and mark.next_txid == first_txid + number:
            return mark
        place = block.find(MARK_MAGIC, place + 1)
    return None


def _length(row: Row) -> int:
    return row[BODY_LENGTH] + row[EXTRAS_LENGTH]


def _bodies(source: Source, rows: Sequence[Row | None]) -> Iterator[bytes | None]:
    """The bodies of records, a bounded number of bytes at a time."""
    group: list[Row | None] = []
    size = 0
    for row in rows:
        group.append(row)
        size += 0 if row is None else _length(row)
        if size >= _BYTES_TOGETHER:
            yield from _bodies_of(source, group)
            group, size = [], 0
    yield from _bodies_of(source, group)


def _bodies_of(source: Source, rows: Sequence[Row | None]) -> Iterator[bytes | None]:
    bodies = iter(read_bodies(source, [row for row in rows if row is not None]))
    for row in rows:
        yield None if row is None else next(bodies)
