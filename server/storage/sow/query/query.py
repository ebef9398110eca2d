"""Queries: select the records that match, as of the moment at which the query began.

A query runs in slices, each short enough not to delay publishing, and records may change between
them. A `QuerySnapshot` keeps the state that the query sees: a row that has changed since is tested
by the record saved for it.

If SOW keys or a hash index determine the records to test, only those are read. All other queries
scan the memo indexes block by block and test whole columns at once. With regular expressions, they
test smaller batches instead (server/storage/sow/query/adaptive_batch.py). If a filter selects a
part of the keys, that part is separated from it (server/storage/sow/keys/partitions.py).

Sources: AMPS User Guide, Querying the State of the World; Indexing SOW Topics.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from server.expressions.backends.compile_columns import ColumnBatch, ColumnFilter
from server.expressions.inference import with_inferred_types
from server.expressions.tree import Expr, OrderTerm
from server.message_types.paths import Path
from server.storage.sow.history import HistoryPoint
from server.storage.sow.indexes.hash_index import texts_by_field
from server.storage.sow.indexes.memo_index import MEMO_BLOCK_ROWS
from server.storage.sow.keys.partitions import without_part
from server.storage.sow.query.adaptive_batch import AdaptiveBatchSize
from server.storage.sow.query.candidates import CandidateLookup, find_lookup, rows_of_keys
from server.storage.sow.query.record_filter import RecordFilter
from server.storage.sow.query.record_order import RecordOrder, RowSorter, SortRow
from server.storage.sow.record_context import RecordContexts
from server.storage.sow.record_table import RecordTable
from server.storage.sow.records import Record
from server.storage.sow.snapshot import QuerySnapshot

_READ_BATCH_SIZE: Final = 1000
"""Records that are read one by one per slice."""
_SORT_BATCH_SIZE: Final = 250
"""Rows after which a slice ends that prepares rows for sorting, or emits them in order."""
CANDIDATE_ROWS: Final = 200
"""Rows that are tested in the time in which a candidate of a hash index is read."""
_MAX_CANDIDATES: Final = 20_000
"""Candidates that are listed, unless they are few beside the rows: in about 5 ms."""
_SAMPLED_BLOCKS: Final = 16
"""Blocks that are looked at to find out whether fields have memo indexes."""
_WARM_BLOCKS: Final = 16
"""Blocks per slice, if hardly any of their records have to be parsed."""
_NO_SNAPSHOT: Final = QuerySnapshot(0, keep_all=False)
"""The snapshot of queries that have read everything when they begin."""


class QuerySpec(NamedTuple):
    """The parameters of a query.

    Attributes:
        filter: the content filter, None for none.
        keys: SOW keys to which the query is restricted, None for no restriction.
        order_by: the order of the results; none if empty.
        top_n: the maximum number of records to return, None for all.
        skip_n: the number of matching records to skip first.
        topic_predicate: tests whether a logical topic is queried, for a topic with a Pattern; None
            for all.
        as_of: the point in the past to query; None for now. Without history it is ignored.
    """

    filter: Expr | None = None
    keys: tuple[str, ...] | None = None
    order_by: tuple[OrderTerm, ...] = ()
    top_n: int | None = None
    skip_n: int = 0
    topic_predicate: Callable[[str], bool] | None = None
    as_of: HistoryPoint | None = None


class OpenQuery(Protocol):
    """A running query: each step does a slice of the work and returns the records found in it."""

    @property
    def topic_matches(self) -> int:
        """Number of records to be tested."""

    @property
    def matches(self) -> int:
        """Number of matching records so far; of all of them when the query has ended."""

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """Iterate over the remaining steps."""

    def close(self) -> None:
        """End the query; harmless if it has ended."""


class _SliceResult(NamedTuple):
    """The result of a slice of the work.

    Attributes:
        rows: matching rows with records as they were when the query began.
        saved: matching records of rows that have changed since, with their rows.
    """

    rows: list[int]
    saved: list[tuple[int, Record]]


class Query(Iterator[list[Record]]):
    """A running query: each step does a slice of the work and returns the records found in it.

    A step may find nothing, and the next one something. Close a query that is not run to its end.

    Args:
        table: the table to query.
        spec: the query's parameters.
        now: the time, in nanoseconds since 1970.

    Attributes:
        topic_matches: number of records to be tested.
        matches: number of matching records so far; of all of them when the query has ended.
    """

    def __init__(self, table: RecordTable, spec: QuerySpec, now: int) -> None:
        self._table: Final = table
        self._spec: Final = spec
        self._expr, self._partition = without_part(spec.filter)
        self._is_historical: Final = spec.as_of is not None and table.history is not None
        restricted = {} if self._expr is None else texts_by_field(self._expr)
        self._candidates: Final = self._find_candidates(restricted)
        is_unrestricted = spec.topic_predicate is None and not self._is_historical
        self._row_mask: Final = (
            None
            if is_unrestricted and self._candidates is not None
            else table.row_mask(
                spec.topic_predicate, spec.as_of if self._is_historical else None, now
            )
        )
        self._ordering: Final = (
            RecordOrder(spec.order_by, table.message_type) if spec.order_by else None
        )
        block_batch_size = (
            MEMO_BLOCK_ROWS if self._ordering is None else MEMO_BLOCK_ROWS // 4
        )  # sorting is slower than testing
        self._batch_size: Final = AdaptiveBatchSize(
            self._expr, block_batch_size if self._candidates is None else _READ_BATCH_SIZE
        )
        self._record_filter: Final = RecordFilter(
            table, self._expr, restricted, self._batch_size.search_allowance
        )
        self._is_wanted: Final = (
            self._record_filter
            if self._partition is None
            else self._partition.restrict(self._record_filter)
        )
        self._end_index: Final = None if spec.top_n is None else spec.skip_n + spec.top_n
        self.topic_matches: Final = (
            len(table) if self._row_mask is None else int(np.count_nonzero(self._row_mask))
        )
        self.matches = 0
        self._snapshot = _NO_SNAPSHOT
        self._steps: Iterator[list[Record]]
        candidate_rows = self._candidates
        if (
            candidate_rows is not None
            and len(candidate_rows) <= _READ_BATCH_SIZE
            and self._is_single_slice
        ):
            self._steps = iter((self._read_matches(candidate_rows),))
        else:
            self._snapshot = table.open_snapshot(keep_all=self._ordering is not None)
            self._steps = self._run()

    def __next__(self) -> list[Record]:
        """Do a slice of the work.

        Returns:
            Records; the list may be empty.

        Raises:
            StopIteration: all records have been returned.
        """
        return next(self._steps)

    def close(self) -> None:
        """End the query; harmless if it has ended."""
        self._steps = iter(())
        self._table.close_snapshot(self._snapshot)

    def _find_candidates(self, restricted: Mapping[Path, tuple[str, ...]]) -> list[int] | None:
        """Return the rows that may match, in ascending order; None if all rows are tested."""
        spec, past = self._spec, self._is_historical
        if spec.keys is not None:
            return rows_of_keys(self._table, spec.keys, spec.topic_predicate, past=past)
        # past states are in no hash index
        lookup = None if past else find_lookup(self._table, restricted)
        tests_all_rows = self._tests_all_rows(lookup, tuple(restricted))
        return None if tests_all_rows or lookup is None else lookup.list_rows()

    def _tests_all_rows(self, lookup: CandidateLookup | None, fields: Sequence[Path]) -> bool:
        """Return whether columns are tested in less time than candidates are listed and read.

        Very many of a hash index are not listed in any case: it is one step, for which all clients
        wait.

        Args:
            lookup: the candidates; None if there are none.
            fields: the fields by which they were found.
        """
        if lookup is None:
            return True
        count, rows = lookup.max_rows, len(self._table.row_states)
        if lookup.is_by_key or count <= _READ_BATCH_SIZE or count * CANDIDATE_ROWS < rows:
            return False
        return count > _MAX_CANDIDATES or self._has_columns(fields)

    def _has_columns(self, fields: Sequence[Path]) -> bool:
        """Return whether some blocks, and so probably all, have memo indexes of fields."""
        memo_indexes = self._table.memo_indexes
        blocks = -(-len(self._table.row_states) // MEMO_BLOCK_ROWS)
        sampled = range(0, blocks, -(-blocks // _SAMPLED_BLOCKS))
        unread = sum(memo_indexes.count_unread(block, fields) for block in sampled)
        return unread <= len(sampled) * MEMO_BLOCK_ROWS // 8

    @property
    def _is_single_slice(self) -> bool:
        """True if little work is done per record."""
        return self._ordering is None and not self._batch_size.needs_slices

    @property
    def _max_slice_blocks(self) -> int:
        """The number of blocks of a slice, if hardly any of their records have to be parsed."""
        return _WARM_BLOCKS

    def _read_matches(self, rows: Sequence[int]) -> list[Record]:
        """Return all results at once, where few records have to be read."""
        row_mask, read_record, test = self._row_mask, self._table.store.read_record, self._is_wanted
        records = [
            record
            for row in rows
            if (row_mask is None or row_mask[row]) and test(record := read_record(row))
        ]
        self.matches = len(records)
        return records[self._spec.skip_n : self._end_index]

    def _run(self) -> Generator[list[Record], None, None]:
        sorter = RowSorter(self._spec.skip_n, self._end_index)
        try:
            slice_results = (
                self._scan_blocks()
                if self._candidates is None
                else self._test_candidates(self._candidates)
            )
            for slice_result in slice_results:
                self.matches += len(slice_result.rows) + len(slice_result.saved)
                if self._ordering is None:
                    yield self._read_unordered(slice_result)
                else:
                    sorter.add(self._make_sort_rows(slice_result, self._ordering))
                    yield []
            if self._ordering is not None:
                yield from self._read_ordered(sorter)
        finally:
            self._table.close_snapshot(self._snapshot)

    # ---- matching rows

    def _test_candidates(self, rows: Sequence[int]) -> Iterator[_SliceResult]:
        """Test the records of some rows, one by one."""
        start = 0
        while start < len(rows):
            batch = rows[start : start + self._batch_size.size]
            records = self._batch_size.run_batch(partial(self._test_batch, batch))
            if records is not None:
                start += len(batch)
                yield _SliceResult([], records)

    def _test_batch(self, rows: Sequence[int]) -> list[tuple[int, Record]]:
        row_mask = self._row_mask
        return [
            (row, record)
            for row in rows
            if (row_mask is None or row_mask[row])
            and self._is_wanted(record := self._record_at_start(row))
        ]

    def _scan_blocks(self) -> Iterator[_SliceResult]:
        """Test all records, block by block."""
        assert self._row_mask is not None  # noqa: S101 - for the type checker
        column_filter = None
        if self._expr is not None:
            column_filter = ColumnFilter(
                with_inferred_types(self._expr, self._table.message_type),
                self._table.options.functions,
                search_counter=self._batch_size.search_allowance,
            )
        ordering = () if self._ordering is None else self._ordering.fields
        fields = (*self._record_filter.fields, *ordering)
        max_slice_rows = _READ_BATCH_SIZE if self._ordering is None else _SORT_BATCH_SIZE
        blocks = parsed = 0
        rows, saved = list[int](), list[tuple[int, Record]]()
        for block in range((len(self._row_mask) + MEMO_BLOCK_ROWS - 1) // MEMO_BLOCK_ROWS):
            first, end = (
                block * MEMO_BLOCK_ROWS,
                min((block + 1) * MEMO_BLOCK_ROWS, len(self._row_mask)),
            )
            unread = self._table.memo_indexes.count_unread(block, fields)
            if self._partition is not None:
                block_rows = slice(first, end)
                unread += self._table.key_hashes.count_unread(
                    block_rows, self._row_mask[block_rows]
                )
            if blocks and (parsed + unread > MEMO_BLOCK_ROWS or blocks == self._max_slice_blocks):
                yield _SliceResult(rows, saved)
                blocks = parsed = 0
                rows, saved = list[int](), list[tuple[int, Record]]()
            while first < end:
                batch = range(first, min(first + self._batch_size.size, end))
                slice_result = self._batch_size.run_batch(
                    partial(self._test_rows, batch, column_filter)
                )
                if slice_result is None:
                    continue
                first = batch.stop
                self._snapshot.mark_read(first)
                rows += slice_result.rows
                saved += slice_result.saved
                if self._batch_size.needs_slices or len(rows) + len(saved) >= max_slice_rows:
                    yield _SliceResult(rows, saved)
                    blocks = parsed = unread = 0
                    rows, saved = list[int](), list[tuple[int, Record]]()
            blocks += 1
            parsed += unread
        yield _SliceResult(rows, saved)

    def _test_rows(self, rows: range, column_filter: ColumnFilter | None) -> _SliceResult:
        """Return which rows match, of a range within a block."""
        assert self._row_mask is not None  # noqa: S101 - for the type checker
        block, first = divmod(rows.start, MEMO_BLOCK_ROWS)
        mask = self._row_mask[rows.start : rows.stop].copy()
        saved: list[tuple[int, Record]] = []
        for row, record in self._snapshot.saved_records(block).items():
            if row in rows and mask[row - rows.start]:
                mask[row - rows.start] = False
                if record is not None and self._is_wanted(record):
                    saved.append((row, record))
        if self._partition is not None:
            hashes = self._table.key_hashes.read_hashes(slice(rows.start, rows.stop), mask)
            mask &= self._partition.select_hashes(hashes)
        if column_filter is not None and mask.any():
            mask = self._filter_columns(block, first, mask, column_filter)
        return _SliceResult((rows.start + np.flatnonzero(mask)).tolist(), saved)

    def _filter_columns(
        self, block: int, first: int, mask: NDArray[np.bool_], column_filter: ColumnFilter
    ) -> NDArray[np.bool_]:
        """Return which rows of the mask match; it begins with row `first` of the block."""
        columns = self._table.memo_indexes.load_columns(block, self._record_filter.fields)
        block_columns = ColumnBatch(columns, len(columns[0]) if columns else first + len(mask))
        if not self._record_filter.needs_context:
            if len(mask) < block_columns.length:
                block_columns = block_columns.take(np.arange(first, first + len(mask)))
            return column_filter(block_columns) & mask
        offsets = np.flatnonzero(mask) + first
        rows = (offsets + block * MEMO_BLOCK_ROWS).tolist()
        batch = ColumnBatch(
            block_columns.take(offsets).columns,
            len(rows),
            RecordContexts(rows, self._record_at_start),
        )
        mask[offsets - first] = column_filter(batch)
        return mask

    def _record_at_start(self, row: int) -> Record:
        """Return the record that a row had when the query began."""
        saved = self._snapshot.saved_records(row // MEMO_BLOCK_ROWS).get(row)
        return self._table.store.read_record(row) if saved is None else saved

    # ---- returned records

    def _read_unordered(self, slice_result: _SliceResult) -> list[Record]:
        """Return the unordered records between `skip_n` and `top_n`."""
        count_before = self.matches - len(slice_result.rows) - len(slice_result.saved)
        start = max(0, self._spec.skip_n - count_before)
        end = None if self._end_index is None else max(0, self._end_index - count_before)
        saved_start = max(0, start - len(slice_result.rows))
        saved_end = None if end is None else max(0, end - len(slice_result.rows))
        records = self._table.store.read_records(slice_result.rows[start:end])
        return records + [record for _, record in slice_result.saved[saved_start:saved_end]]

    def _make_sort_rows(self, slice_result: _SliceResult, ordering: RecordOrder) -> list[SortRow]:
        """Return matching rows with their sort keys."""
        extract = self._table.extractor(ordering.fields)
        sort_rows = ordering.make_sort_rows(
            (extract(record.body) for _, record in slice_result.saved),
            (row for row, _ in slice_result.saved),
        )
        for block, rows in groupby(slice_result.rows, lambda row: row // MEMO_BLOCK_ROWS):
            block_rows = list(rows)
            offsets = np.array(block_rows) - block * MEMO_BLOCK_ROWS
            columns = self._table.memo_indexes.load_columns(block, ordering.fields)
            values = zip(*(column.take(offsets).to_values() for column in columns), strict=True)
            sort_rows += ordering.make_sort_rows(values, block_rows)
        return sort_rows

    def _read_ordered(self, sorter: RowSorter) -> Iterator[list[Record]]:
        for rows in sorter.slices(_SORT_BATCH_SIZE):
            yield [self._record_at_start(row) for row in rows]
