"""Reads a partition of a journal: records in chunks, and the wanted bodies in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.errors import JournalDamageError
from pipeline.journal.log import open_journal
from pipeline.journal.partitions import JournalBlock, JournalNames, JournalPartition, RecordArray
from server.storage.journal.format.checksum import damaged
from server.storage.journal.format.file_names import TOPIC_INDEX, sibling
from server.storage.journal.format.layout import PAGE, RECORD_SIZE, JournalFormatError
from server.storage.journal.format.records import CHUNK, RECORD_TYPE, read_rows, records_check
from server.storage.journal.index import ANY_TOPIC, unpack_topic_index
from server.storage.journal.storage import ByteSource

_MAX_GAP_SIZE: Final = 8192
"""Gaps between wanted bodies up to this size in bytes are read: a call costs more than a copy."""

_MAX_BLOCK_SIZE: Final = 1 << 20
"""Bytes of bodies that are decoded together, so that they stay in the processor's cache."""

_NOTHING: Final = np.zeros(0, np.int64)

RecordSelector = Callable[[RecordArray, JournalNames], RecordArray]
"""Returns the wanted ones of some records."""

Int64Column = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """The parts of entries to read.

    Attributes:
        select_records: selects the entries.
        with_bodies: whether to read bodies.
        skips_damaged: whether to skip damaged entries; otherwise they are an error.
    """

    select_records: RecordSelector
    with_bodies: bool
    skips_damaged: bool


def read_blocks(partition: JournalPartition, request: BlockRequest) -> Iterator[JournalBlock]:
    """Read a partition.

    Raises:
        PipelineError: the file is gone, or an entry is damaged; the text names file and entry.
    """
    reader = _BlockReader(partition, request, open_journal(partition.path, partition.archive))
    for start in _windows(partition):
        records = reader.records(start, min(start + CHUNK, partition.stop))
        if len(records):
            yield from reader.blocks(records)


def _windows(partition: JournalPartition) -> Iterator[int]:
    """Yield the starts of chunks: all, or those where the topic index has wanted entries."""
    numbers = _indexed(partition)
    if numbers is None:
        yield from range(partition.start, partition.stop, CHUNK)
        return
    position = 0
    while position < len(numbers):
        yield int(numbers[position])
        position = int(np.searchsorted(numbers, numbers[position] + CHUNK))


def _indexed(partition: JournalPartition) -> npt.NDArray[np.int64] | None:
    """Return the numbers of the selected entries of a partition; None without a topic index."""
    try:
        data = sibling(partition.path, TOPIC_INDEX).read_bytes()
        topics = unpack_topic_index(data, partition.count)
    except (OSError, JournalFormatError):
        return None
    entry_numbers = [
        topics[topic] for topic in (*partition.names.topics, ANY_TOPIC) if topic in topics
    ]
    numbers = np.sort(np.concatenate(entry_numbers)) if entry_numbers else np.zeros(0, np.uint32)
    first, last = np.searchsorted(numbers, [partition.start, partition.stop])
    return numbers[first:last].astype(np.int64)


class _BlockReader:
    """Reads records and bodies of one file."""

    def __init__(
        self, partition: JournalPartition, request: BlockRequest, source: ByteSource
    ) -> None:
        self._partition = partition
        self._request = request
        self._source = source

    def records(self, start: int, stop: int) -> RecordArray:
        """Return the wanted records with numbers from `start` to before `stop`."""
        length = RECORD_SIZE * (stop - start)
        data = self._source.read(self._partition.size - RECORD_SIZE * stop, length)
        if len(data) < length:
            raise self._damage_error(start, "truncated: the file ends before it")
        records = np.frombuffer(data, RECORD_TYPE)[::-1]
        expected = np.arange(self._partition.first_txid + start, self._partition.first_txid + stop)
        if not (records_check(data) and np.array_equal(records["txid"], expected)):
            records = records[self._intact_records(start, stop)]
        return self._request.select_records(records, self._partition.names)

    def blocks(self, records: RecordArray) -> Iterator[JournalBlock]:
        """Yield the entries of some records, with their bodies if requested."""
        if not self._request.with_bodies:
            yield JournalBlock(
                self._partition.path, records, self._partition.names, b"", _NOTHING, _NOTHING
            )
            return
        begins = records["body_start"].astype(np.int64)
        lengths = records["body_length"].astype(np.int64)
        ends = begins + lengths + records["extras_length"]
        if len(ends) and (int(begins.min()) < PAGE or int(ends.max()) > self._partition.size):
            raise self._damage_error(
                self._entry_number(records[0]), "a body is outside of the file"
            )
        sizes = np.cumsum(ends - begins)
        first = size = 0
        while first < len(records):
            last = int(np.searchsorted(sizes, size + _MAX_BLOCK_SIZE, "right"))
            block_range = slice(first, max(last, first + 1))
            first = block_range.stop
            size = int(sizes[first - 1])
            data, starts = self._read_bodies(begins[block_range], ends[block_range])
            block = JournalBlock(
                self._partition.path,
                records[block_range],
                self._partition.names,
                data,
                starts,
                lengths[block_range],
            )
            yield self._without_damaged(block)

    def _read_bodies(self, begins: Int64Column, ends: Int64Column) -> tuple[bytes, Int64Column]:
        """Return bodies with their extras, read in runs, and the offset of each."""
        cuts = np.flatnonzero(begins[1:] - ends[:-1] > _MAX_GAP_SIZE) + 1
        firsts = np.append(0, cuts)
        run_begins = begins[firsts]
        run_lengths = ends[np.append(cuts - 1, -1)] - run_begins
        data = b"".join(map(self._source.read, run_begins.tolist(), run_lengths.tolist()))
        shifts = np.cumsum(run_lengths) - run_lengths - run_begins
        return data, begins + np.repeat(shifts, np.diff(np.append(firsts, len(begins))))

    def _without_damaged(self, block: JournalBlock) -> JournalBlock:
        """Return a block without the entries with damaged bodies."""
        records = block.records
        ends = block.starts + block.lengths + records["extras_length"]
        bad = damaged(block.data, block.starts, ends, records["body_crc"])
        if not bad:
            return block
        if not self._request.skips_damaged:
            raise self._damage_error(self._entry_number(records[bad[0]]), "its message is damaged")
        intact = np.ones(len(records), np.bool_)
        intact[bad] = False
        return block.select(intact)

    def _intact_records(self, start: int, stop: int) -> list[int]:
        rows = read_rows(self._source, self._partition.first_txid, start, stop)
        if None in rows and not self._request.skips_damaged:
            raise self._damage_error(start + rows.index(None), "its record is damaged")
        return [number for number, row in enumerate(rows) if row is not None]

    def _entry_number(self, record: np.void) -> int:
        return int(record["txid"]) - self._partition.first_txid

    def _damage_error(self, number: int, cause: str) -> JournalDamageError:
        partition = self._partition
        record_start = partition.size - RECORD_SIZE * (number + 1)
        return JournalDamageError(
            f"{partition.path}: entry {partition.first_txid + number} (number {number} of the file,"
            f" record at byte {record_start}): {cause}; set the option damaged=skip to skip such"
            " entries"
        )
