"""Reads a piece of a journal: records in chunks, and the wanted bodies in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.journal.log import open_journal
from pipeline.journal.pieces import JournalBlock, JournalNames, JournalPartition, RecordArray
from server.storage.journal.format.checksum import damaged
from server.storage.journal.format.file_names import TOPIC_INDEX, sibling
from server.storage.journal.format.layout import PAGE, RECORD_SIZE, JournalFormatError
from server.storage.journal.format.records import CHUNK, RECORD_TYPE, read_rows, records_check
from server.storage.journal.index import ANY_TOPIC, unpack_topic_index
from server.storage.journal.storage import ByteSource

_GAP: Final = 16_384
"""Gaps between wanted bodies up to this size in bytes are read rather than skipped."""

_MAX_BLOCK_SIZE: Final = 1 << 20
"""Bytes that are read and decoded together, so that they stay in the processor's cache."""

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


def read_blocks(piece: JournalPartition, request: BlockRequest) -> Iterator[JournalBlock]:
    """Read a piece.

    Raises:
        PipelineError: the file is gone, or an entry is damaged; the text names file and entry.
    """
    reader = _BlockReader(piece, request, open_journal(piece.path, piece.archive))
    for start in _windows(piece):
        records = reader.records(start, min(start + CHUNK, piece.stop))
        if len(records):
            yield from reader.blocks(records)


def _windows(piece: JournalPartition) -> Iterator[int]:
    """Yield the starts of chunks: all, or those where the topic index has wanted entries."""
    numbers = _indexed(piece)
    if numbers is None:
        yield from range(piece.start, piece.stop, CHUNK)
        return
    position = 0
    while position < len(numbers):
        yield int(numbers[position])
        position = int(np.searchsorted(numbers, numbers[position] + CHUNK))


def _indexed(piece: JournalPartition) -> npt.NDArray[np.int64] | None:
    """Return the numbers of the wanted entries in the piece; None if there is no topic index."""
    try:
        data = sibling(piece.path, TOPIC_INDEX).read_bytes()
        topics = unpack_topic_index(data, piece.count)
    except (OSError, JournalFormatError):
        return None
    found = [topics[one] for one in (*piece.names.topics, ANY_TOPIC) if one in topics]
    numbers = np.sort(np.concatenate(found)) if found else np.zeros(0, np.uint32)
    first, last = np.searchsorted(numbers, [piece.start, piece.stop])
    return numbers[first:last].astype(np.int64)


class _BlockReader:
    """Reads records and bodies of one file."""

    def __init__(self, piece: JournalPartition, request: BlockRequest, source: ByteSource) -> None:
        self._piece = piece
        self._request = request
        self._source = source

    def records(self, start: int, stop: int) -> RecordArray:
        """Return the wanted records with numbers from `start` to before `stop`."""
        length = RECORD_SIZE * (stop - start)
        data = self._source.read(self._piece.size - RECORD_SIZE * stop, length)
        if len(data) < length:
            raise self._damage_error(start, "torn: the file ends before it")
        records = np.frombuffer(data, RECORD_TYPE)[::-1]
        expected = np.arange(self._piece.first_txid + start, self._piece.first_txid + stop)
        if not (records_check(data) and np.array_equal(records["txid"], expected)):
            records = records[self._intact_records(start, stop)]
        return self._request.select_records(records, self._piece.names)

    def blocks(self, records: RecordArray) -> Iterator[JournalBlock]:
        """Yield the entries of some records, with their bodies if requested."""
        if not self._request.with_bodies:
            yield JournalBlock(
                self._piece.path, records, self._piece.names, b"", _NOTHING, _NOTHING
            )
            return
        begins = records["body_start"].astype(np.int64)
        lengths = records["body_length"].astype(np.int64)
        ends = begins + lengths + records["extras_length"]
        if len(ends) and (int(begins.min()) < PAGE or int(ends.max()) > self._piece.size):
            raise self._damage_error(
                self._entry_number(records[0]), "a body lies outside of the file"
            )
        first = 0
        while first < len(records):
            last = int(np.searchsorted(ends, begins[first] + _MAX_BLOCK_SIZE, "right"))
            chosen = slice(first, max(last, first + 1))
            first = chosen.stop
            data, starts = self._read_bodies(begins[chosen], ends[chosen])
            block = JournalBlock(
                self._piece.path, records[chosen], self._piece.names, data, starts, lengths[chosen]
            )
            yield self._without_damaged(block)

    def _read_bodies(self, begins: Int64Column, ends: Int64Column) -> tuple[bytes, Int64Column]:
        """Return bodies with their extras, and the offset of each."""
        span, wanted = int(ends[-1] - begins[0]), int((ends - begins).sum())
        if span <= 2 * wanted + _GAP:
            return self._source.read(int(begins[0]), span), begins - begins[0]
        pieces = zip(begins.tolist(), (ends - begins).tolist(), strict=True)
        data = b"".join([self._source.read(begin, length) for begin, length in pieces])
        lengths = ends - begins
        return data, np.cumsum(lengths) - lengths

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
        rows = read_rows(self._source, self._piece.first_txid, start, stop)
        if None in rows and not self._request.skips_damaged:
            raise self._damage_error(start + rows.index(None), "its record is damaged")
        return [number for number, row in enumerate(rows) if row is not None]

    def _entry_number(self, record: np.void) -> int:
        return int(record["txid"]) - self._piece.first_txid

    def _damage_error(self, number: int, cause: str) -> PipelineError:
        place = self._piece.size - RECORD_SIZE * (number + 1)
        return PipelineError(
            f"{self._piece.path}: entry {self._piece.first_txid + number} (number {number} of the "
            f"file, record at byte {place}): {cause}; the option damaged=skip leaves such entries "
            "out"
        )
