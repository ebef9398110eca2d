"""Queries of the record store that return columns instead of records.

    fields, no filter      memo indexes; missing ones are made
    fields, with a filter  memo indexes if all fields have them: the worker thread tests the rows;
                           else those of blocks in which many records match, bodies of others
    metadata               records, read as for `sow`, and converted at once: very many objects that
                           stay for a while would make garbage collection long

Columns of memo indexes are passed on in segments of several blocks (`column_segments`), which are
kept for further queries (`segment_cache`). Users with a permitted filter, queries of the past, and
those with a limit read block by block.

Memo indexes stay in memory, so a table with very many fields does not get them: each scan parses
its bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import check_types, type_of_column
from server.sql.tables.column_segments import SEGMENT_BLOCKS
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.metadata_arrays import BODY_METADATA, to_metadata_arrays
from server.sql.tables.row_chunk import RowChunk, SegmentRows
from server.sql.tables.segment_cache import state_of
from server.sql.tables.segment_filter import is_supported
from server.storage.sow.indexes.memo_index import MEMO_BLOCK_ROWS
from server.storage.sow.query.candidates import CandidateLookup
from server.storage.sow.query.query import CANDIDATE_ROWS, Query, QuerySpec

if TYPE_CHECKING:
    from server.expressions.backends.columns import Column
    from server.expressions.backends.compile_columns import ColumnFilter
    from server.message_types.paths import Path
    from server.sql.tables.scan import ScanPlan
    from server.storage.sow.records import Record

_MAX_MEMO_FIELDS: Final = 64
"""Fields of a topic that scans make memo indexes of."""

_WARM_UP_FIELDS: Final = 16
"""Fields of a block for which memo indexes are made in a time slice."""

_DENSE_ROWS: Final = 256
"""Rows of a block from which on its memo indexes are made; below, bodies are parsed."""

_WARM_BLOCKS: Final = 2
"""Blocks that are tested in a time slice before its time is looked at."""

_RECORD_BATCH_SIZE: Final = 500
"""Records that are read in a time slice."""


class ColumnQuery(Query):
    """A query that returns columns instead of records.

    Args:
        plan: the plan of the scan.
        metadata: the metadata to return.
        now: the time, in nanoseconds since 1970.
    """

    def __init__(self, plan: ScanPlan, metadata: Sequence[Metadata], now: int) -> None:
        table, fields, limit = plan.source.table, plan.read_fields, plan.limit
        known = table.memo_indexes.fields
        self._uses_memo: Final = len({*known, *fields}) <= _MAX_MEMO_FIELDS or all(
            path in known for path in fields
        )
        self._paths: Final = tuple(fields)
        self._metadata: Final = tuple(dict.fromkeys(metadata))
        capacity = max(len(table.row_states), table.store.row_capacity)
        self._rows_left: int = capacity if limit is None else limit
        self._segment_fields: Final = plan.fields
        self._segments: Final = plan.segments
        self._checked: Final = () if plan.hides_count else _number_columns(plan.tested)
        self._is_whole: Final = limit is None and plan.as_of is None and not metadata
        self._uses_segments = False
        self._state: Final = state_of(table)
        super().__init__(table, QuerySpec(filter=plan.filter, as_of=plan.as_of), now)

    def _tests_all_rows(self, lookup: CandidateLookup | None, fields: Sequence[Path]) -> bool:
        """See `Query`. A query that reads segments lists no candidates: there may be very many."""
        may_use = self._is_whole and self._uses_memo and self._partition is None
        self._uses_segments = may_use and self._may_use_segments(lookup)
        return self._uses_segments or super()._tests_all_rows(lookup, fields)

    def _may_use_segments(self, lookup: CandidateLookup | None) -> bool:
        """Return whether the rows are selected from segments: see the module."""
        table, segments, rows = self._table, self._segments, len(self._table.row_states)
        if segments is None or not self._segment_fields:
            return False
        if len(table) * MEMO_BLOCK_ROWS < rows * _DENSE_ROWS or len(table) < _DENSE_ROWS:
            return False
        if self._expr is None:
            return True
        if not is_supported(self._expr):
            return False
        if lookup is not None and lookup.max_rows * CANDIDATE_ROWS < rows:
            return False
        needed = self._paths if lookup is None else self._segment_fields
        return self._has_columns(needed) or segments.is_worth(needed, len(table))

    @property
    def candidate_count(self) -> int:
        """The number of records that may match."""
        return self.topic_matches if self._candidates is None else len(self._candidates)

    @property
    def _is_single_slice(self) -> bool:
        """False: the rows of a single slice would be returned as records."""
        return False

    @property
    def _max_slice_blocks(self) -> int:
        """A few: a step of a `TopicScan` ends by the time that it has taken."""
        return _WARM_BLOCKS

    def chunks(self) -> Iterator[Sequence[RowChunk]]:
        """Yield the rows found in each slice of the work, perhaps none."""
        try:
            if self._uses_segments:
                yield from self._scan_segments()
                return
            if self._candidates is None and self._spec.filter is None:
                if self._paths or self._metadata:
                    yield from self._scan_all()
                else:
                    self.matches = min(self.topic_matches, self._rows_left)
                    yield [RowChunk(self.matches)]
                return
            if self._candidates is not None:
                self._count_parsed(self._segment_fields, len(self._candidates))
            slice_results = (
                self._scan_blocks()
                if self._candidates is None
                else self._test_candidates(self._candidates)
            )
            for rows, saved in slice_results:
                self.matches += len(rows) + len(saved)
                found: list[RowChunk] = []
                may_warm_up = True
                for block, block_rows in groupby(rows, lambda row: row // MEMO_BLOCK_ROWS):
                    offsets = np.fromiter(block_rows, np.intp) - block * MEMO_BLOCK_ROWS
                    chunk, is_warm = self._take_rows(block, offsets, may_warm_up=may_warm_up)
                    found += chunk
                    may_warm_up = may_warm_up and is_warm
                found += self._take_records([record for _, record in saved])
                yield found
                if not self._rows_left:
                    return
        finally:
            self.close()

    def _scan_segments(self) -> Iterator[Sequence[RowChunk]]:
        """Return the rows of segments, to be tested by the filter later."""
        assert self._segments is not None  # noqa: S101 - see `_may_use_segments`
        assert self._row_mask is not None  # noqa: S101 - no candidates are listed
        fields, state, mask = self._segment_fields, self._state, self._row_mask
        if state_of(self._table) == state:
            known = self._segments.find_columns(state, mask, fields)
            if known is not None:
                columns_by_segment = zip(*known, strict=True)
                yield [
                    self._segment_chunk(number, columns, mask)
                    for number, columns in enumerate(columns_by_segment)
                ]
                return
        selected = mask.copy()
        found: list[Sequence[Sequence[Column]]] = []
        block_count = -(-len(mask) // MEMO_BLOCK_ROWS)
        for number, start in enumerate(range(0, block_count, SEGMENT_BLOCKS)):
            blocks: list[Sequence[Column]] = []
            saved: list[Record] = []
            for block in range(start, min(start + SEGMENT_BLOCKS, block_count)):
                first = block * MEMO_BLOCK_ROWS
                end = min(first + MEMO_BLOCK_ROWS, len(mask))
                rows = int(np.count_nonzero(selected[first:end]))
                for _ in self._warm_up(block, rows, fields):
                    yield ()
                blocks.append(self._table.memo_indexes.load_columns(block, fields))
                saved += self._take_saved(block, selected)
                self._snapshot.mark_read(end)
                if block % _WARM_BLOCKS:
                    yield ()
            found.append(tuple(zip(*blocks, strict=True)))
            chunk = self._segment_chunk(number, found[-1], selected)
            yield [chunk, *self._take_records(saved)]
        if state_of(self._table) == state:
            self._segments.note_columns(state, mask, fields, tuple(zip(*found, strict=True)))

    def _take_saved(self, block: int, selected: NDArray[np.bool_]) -> Iterator[Record]:
        """Remove the rows of a block that have changed; yield those of their records that match."""
        for row, record in self._snapshot.saved_records(block).items():
            if row < len(selected) and selected[row]:
                selected[row] = False
                if record is not None and self._is_wanted(record):
                    yield record

    def _segment_chunk(
        self, number: int, columns: Sequence[Sequence[Column]], selected: NDArray[np.bool_]
    ) -> RowChunk:
        """Return the selected rows of a segment."""
        first = number * SEGMENT_BLOCKS * MEMO_BLOCK_ROWS
        length = sum(map(len, columns[0]))
        mask = selected[first : first + length]
        rows = int(np.count_nonzero(mask))
        self.matches += rows
        if rows == length:
            return RowChunk(rows, segment=SegmentRows(number, length, columns, None))
        if len(mask) < length:  # rows were added meanwhile
            mask = np.append(mask, np.zeros(length - len(mask), np.bool_))
        return RowChunk(rows, segment=SegmentRows(number, length, columns, mask))

    def _filter_columns(
        self, block: int, first: int, mask: NDArray[np.bool_], column_filter: ColumnFilter
    ) -> NDArray[np.bool_]:
        """Return which rows match; check the types of the columns that are tested.

        Raises:
            MisfitError: a value does not fit the type of its column.
        """
        columns = self._table.memo_indexes.load_columns(block, [one.path for one in self._checked])
        check_types(zip(self._checked, map(type_of_column, columns), strict=True))
        return super()._filter_columns(block, first, mask, column_filter)

    def _scan_all(self) -> Iterator[Sequence[RowChunk]]:
        """Return all records, block by block."""
        assert self._row_mask is not None  # noqa: S101 - for the type checker
        batch_size = _RECORD_BATCH_SIZE if self._metadata else MEMO_BLOCK_ROWS
        for first in range(0, len(self._row_mask), MEMO_BLOCK_ROWS):
            block_end = min(first + MEMO_BLOCK_ROWS, len(self._row_mask))
            block = first // MEMO_BLOCK_ROWS
            rows = int(np.count_nonzero(self._row_mask[first:block_end]))
            for _ in self._warm_up(block, min(rows, self._rows_left), self._paths):
                yield ()
            for start in range(first, block_end, batch_size):
                end = min(start + batch_size, block_end)
                found = self._take_batch(block, start, end)
                self._snapshot.mark_read(end)
                yield found
                if not self._rows_left:
                    return

    def _warm_up(self, block: int, rows: int, fields: Sequence[Path]) -> Iterator[None]:
        """Make the memo indexes of a block, some in each step."""
        if not self._uses_memo or rows < _DENSE_ROWS:
            return
        for start in range(0, len(fields), _WARM_UP_FIELDS):
            part = fields[start : start + _WARM_UP_FIELDS]
            if self._table.memo_indexes.count_unread(block, part) >= _DENSE_ROWS:
                self._table.memo_indexes.load_columns(block, part)
                yield

    def _count_parsed(self, fields: Sequence[Path], records: int) -> None:
        if self._segments is not None:
            self._segments.count_parsed(fields, records)

    def _take_batch(self, block: int, start: int, end: int) -> Sequence[RowChunk]:
        """Return the rows of a range within a block."""
        assert self._row_mask is not None  # noqa: S101 - for the type checker
        mask = self._row_mask[start:end].copy()
        saved = []
        for row, record in self._snapshot.saved_records(block).items():
            if start <= row < end and mask[row - start]:
                mask[row - start] = False
                if record is not None:
                    saved.append(record)
        offsets = np.flatnonzero(mask) + (start - block * MEMO_BLOCK_ROWS)
        self.matches += len(offsets) + len(saved)
        chunks, _ = self._take_rows(block, offsets, may_warm_up=True)
        return [*chunks, *self._take_records(saved)]

    def _take_rows(
        self, block: int, offsets: NDArray[np.intp], *, may_warm_up: bool
    ) -> tuple[Sequence[RowChunk], bool]:
        """Return rows of a block as they are now, and whether its memo indexes were up to date."""
        offsets = offsets[: self._rows_left]
        count = len(offsets)
        if not count:
            return (), True
        self._rows_left -= count
        table = self._table
        rows = (offsets + block * MEMO_BLOCK_ROWS).tolist() if self._metadata else []
        metadata = self._read_metadata(rows) if self._metadata else None
        if not self._paths:
            return (RowChunk(count, metadata=metadata),), True
        unread = table.memo_indexes.count_unread(block, self._paths) if self._uses_memo else count
        is_warm = self._uses_memo and unread <= count // 8
        if is_warm or (self._uses_memo and may_warm_up and count >= _DENSE_ROWS):
            columns = table.memo_indexes.load_columns(block, self._paths)
            is_whole = count == len(columns[0])
            chunk = RowChunk(count, columns, None if is_whole else offsets, None, metadata)
            return (chunk,), is_warm
        self._count_parsed(self._paths, count)
        bodies = table.store.read_bodies(rows or (offsets + block * MEMO_BLOCK_ROWS).tolist())
        return (RowChunk(count, None, None, bodies, metadata),), True

    def _read_metadata(self, rows: Sequence[int]) -> Mapping[Metadata, pa.Array]:
        """Return the metadata of rows as they are now."""
        store = self._table.store
        if len(self._metadata) == 1 and self._metadata[0] in BODY_METADATA:
            return {self._metadata[0]: pa.array(store.read_bodies(rows), pa.binary())}
        return to_metadata_arrays(store.read_records(rows), self._metadata)

    def _take_records(self, records: Sequence[Record]) -> Sequence[RowChunk]:
        """Return records that were read one by one."""
        records = records[: self._rows_left]
        if not records:
            return ()
        self._rows_left -= len(records)
        bodies = [record.body for record in records] if self._paths else None
        metadata = to_metadata_arrays(records, self._metadata) if self._metadata else None
        return (RowChunk(len(records), None, None, bodies, metadata),)


def _number_columns(fields: Sequence[FieldColumn]) -> Sequence[FieldColumn]:
    """Return columns of numbers: filters compare other values in these in another way than SQL."""
    return [field for field in fields if field.column.type in (SqlType.BIGINT, SqlType.DOUBLE)]
