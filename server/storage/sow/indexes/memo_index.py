"""Memo indexes: columns of field values, so that a query need not parse any record.

Rows are divided into blocks. A block has a column for each field that was ever queried, created
when it is first needed. A change of a record only adds its row to the block's list of changes; the
next query that needs the block updates its columns, by reading the rows that changed since. So the
cost of a publish does not depend on the number of indexed fields.

Source: AMPS User Guide, Indexing SOW Topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from server.expressions.backends.columns import (
    Column,
    NumberColumn,
    TextColumn,
    column_of,
    column_of_raw,
    text_array,
)
from server.message_types.base import MessageType, Value
from server.message_types.bulk import BulkExtractor, BulkMessageType, ColumnReader, bulk_extractor
from server.message_types.paths import Path
from server.storage.sow.store import RecordStore

MEMO_BLOCK_ROWS = (
    2048  # not Final, which is compiled into whatever uses it: tests have small blocks
)
"""Rows of a block: few enough to be parsed without delaying other tasks (6 ms, if of 1 KB)."""
_JOIN_BATCH_SIZE: Final = 256
"""Bodies that are joined at once: few enough to fit the processor's cache."""
_NO_ROW: Final = -1


class _ColumnBlock:
    """The columns of some rows.

    Attributes:
        changes: rows (offsets in the block) in the order in which they changed.
        columns: field -> column, and the number of changes that it includes.
    """

    def __init__(self) -> None:
        self.changes: list[int] = []
        self.columns: dict[Path, tuple[Column, int]] = {}


class MemoIndexes:
    """All memo indexes of a topic.

    Args:
        store: the store of the records.
        row_states: for each row, 0 if it has no record.
        message_type: the topic's message type.
    """

    def __init__(
        self, store: RecordStore, row_states: bytearray, message_type: MessageType
    ) -> None:
        self._store = store
        self._row_states = row_states
        self._type = message_type
        self._blocks: list[_ColumnBlock] = []
        self._readers: dict[tuple[Path, ...], ColumnReader | None] = {}
        self._extractors: dict[tuple[Path, ...], BulkExtractor] = {}
        self.fields: dict[Path, None] = {}

    def mark_changed(self, row: int) -> None:
        """Note that a row got another record, or lost the one it had."""
        index, offset = divmod(row, MEMO_BLOCK_ROWS)
        if index < len(self._blocks):
            block = self._blocks[index]
            if block.columns:
                block.changes.append(offset)
                if len(block.changes) > 2 * MEMO_BLOCK_ROWS:
                    block.changes.clear()
                    block.columns.clear()

    def mark_all_changed(self, rows: Sequence[int]) -> None:
        """Note that rows got other records."""
        if self._blocks:
            for row in rows:
                self.mark_changed(row)

    def count_unread(self, index: int, fields: Sequence[Path]) -> int:
        """Return the maximum number of rows of a block to parse for an update of its columns."""
        length = min(MEMO_BLOCK_ROWS, self._store.row_capacity - index * MEMO_BLOCK_ROWS)
        if not fields:
            return 0
        if index >= len(self._blocks):
            return length
        block = self._blocks[index]
        if any(field not in block.columns for field in fields):
            return length
        columns = [block.columns[field] for field in fields]
        changes = len(block.changes) - min(seen for _, seen in columns)
        return min(length, changes + length - min(len(column) for column, _ in columns))

    def load_columns(self, index: int, fields: Sequence[Path]) -> list[Column]:
        """Return the updated columns of a block; NULL in rows without a record.

        Args:
            index: the number of the block.
            fields: the fields to read.

        Returns:
            A column for each field, with the length of the block.
        """
        while len(self._blocks) <= index:
            self._blocks.append(_ColumnBlock())
        block = self._blocks[index]
        first = index * MEMO_BLOCK_ROWS
        length = min(MEMO_BLOCK_ROWS, self._store.row_capacity - first)
        if not block.changes:  # warm scans do little else
            known = [block.columns.get(field) for field in fields]
            columns = [entry[0] for entry in known if entry is not None]
            if len(columns) == len(fields) and all(len(column) == length for column in columns):
                return columns
        self.fields.update(dict.fromkeys(fields))
        missing = tuple(field for field in dict.fromkeys(fields) if field not in block.columns)
        if missing:
            new_columns = self._read_columns(first, range(length), missing)
            for field, column in zip(missing, new_columns, strict=True):
                block.columns[field] = column, len(block.changes)
        stale: dict[tuple[int, int], list[Path]] = {}
        for field in dict.fromkeys(fields):
            column, included_changes = block.columns[field]
            if included_changes < len(block.changes) or len(column) < length:
                stale.setdefault((included_changes, len(column)), []).append(field)
        for (included_changes, old_length), stale_fields in stale.items():
            self._update_columns(
                block, first, tuple(stale_fields), included_changes, range(old_length, length)
            )
        if block.changes and all(
            included_changes == len(block.changes) for _, included_changes in block.columns.values()
        ):
            block.changes.clear()
            block.columns = {field: (column, 0) for field, (column, _) in block.columns.items()}
        return [block.columns[field][0] for field in fields]

    def _update_columns(
        self,
        block: _ColumnBlock,
        first: int,
        fields: tuple[Path, ...],
        included_changes: int,
        added: range,
    ) -> None:
        """Update columns that include the same changes, parsing each row once."""
        replaced = sorted(
            {offset for offset in block.changes[included_changes:] if offset < added.start}
        )
        new_columns = self._read_columns(first, [*replaced, *added], fields)
        for field, new_column in zip(fields, new_columns, strict=True):
            values = new_column.to_values()
            column, _ = block.columns[field]
            if replaced:
                column = _replace_values(column, replaced, values[: len(replaced)])
            if added:
                column = _append_values(column, values[len(replaced) :])
            block.columns[field] = column, len(block.changes)

    def _read_columns(
        self, first: int, offsets: Sequence[int], fields: tuple[Path, ...]
    ) -> Sequence[Column]:
        """Read fields of rows; return for each field a column, NULL in rows without a record."""
        if fields not in self._readers:
            self._readers[fields] = _column_reader(self._type, fields)
        row_states = self._row_states
        read_column = self._readers[fields]
        if read_column is None:
            return self._extract_columns(first, offsets, fields)
        rows = [first + offset if row_states[first + offset] else _NO_ROW for offset in offsets]
        joined = (
            self._store.read_joined_bodies(rows[start : start + _JOIN_BATCH_SIZE])
            for start in range(0, len(rows), _JOIN_BATCH_SIZE)
        )
        return list(map(column_of_raw, read_column(joined, len(rows))))

    def _extract_columns(
        self, first: int, offsets: Sequence[int], fields: tuple[Path, ...]
    ) -> Sequence[Column]:
        """Read fields of rows of a message type that does not support columns."""
        extract = self._extractors.get(fields)
        if extract is None:
            extract = self._extractors[fields] = bulk_extractor(self._type, fields)
        used_rows = [first + offset for offset in offsets if self._row_states[first + offset]]
        if not used_rows:
            return [column_of((None,) * len(offsets))] * len(fields)
        row_states = [self._row_states[first + offset] for offset in offsets]
        values_by_field = extract(self._store.read_bodies(used_rows))
        return [column_of(_insert_nulls(values, row_states)) for values in values_by_field]


def _column_reader(message_type: MessageType, fields: Sequence[Path]) -> ColumnReader | None:
    return message_type.column_reader(fields) if isinstance(message_type, BulkMessageType) else None


def _insert_nulls(values: Sequence[Value], presence: Sequence[int]) -> list[Value]:
    """Return values with NULLs inserted, where nothing is present."""
    rest = iter(values)
    return [next(rest) if there else None for there in presence]


def _replace_values(column: Column, offsets: Sequence[int], values: Sequence[Value]) -> Column:
    """Return a column with other values at some indexes."""
    if isinstance(column, TextColumn) and set(map(type, values)) <= {str, type(None)}:
        mask = np.zeros(len(column), np.bool_)
        mask[offsets] = True
        return TextColumn(pc.replace_with_mask(column.values, pa.array(mask), text_array(values)))
    if isinstance(column, NumberColumn):
        part = column_of(values)
        if isinstance(part, NumberColumn) and part.values.dtype == column.values.dtype:
            return _replace_numbers(column, offsets, part)
    all_values = column.to_values()
    for offset, value in zip(offsets, values, strict=True):
        all_values[offset] = value
    return column_of(all_values)


def _replace_numbers(
    column: NumberColumn, offsets: Sequence[int], part: NumberColumn
) -> NumberColumn:
    numbers = column.values.copy()
    numbers[offsets] = part.values
    valid = integers = None
    if column.valid is not None or part.valid is not None:
        valid = column.valid_mask().copy()
        valid[offsets] = part.valid_mask()
    if column.integers is not None or part.integers is not None:
        no_integers = np.zeros(len(column), np.bool_)
        integers = no_integers if column.integers is None else column.integers.copy()
        integers[offsets] = False if part.integers is None else part.integers
    return NumberColumn(numbers, valid, integers)


def _append_values(column: Column, values: Sequence[Value]) -> Column:
    """Return a column with further values at its end."""
    part = column_of(values)
    if isinstance(column, TextColumn) and isinstance(part, TextColumn):
        return TextColumn(pa.concat_arrays([column.values, part.values]))
    if (
        isinstance(column, NumberColumn)
        and isinstance(part, NumberColumn)
        and column.values.dtype == part.values.dtype
        and column.integers is part.integers is None
    ):
        valid = None
        if column.valid is not None or part.valid is not None:
            valid = np.concatenate([column.valid_mask(), part.valid_mask()])
        return NumberColumn(np.concatenate([column.values, part.values]), valid)
    return column_of([*column.to_values(), *values])
