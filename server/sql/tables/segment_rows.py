"""Selects rows of segments as Arrow arrays, on the worker thread of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import check_types
from server.sql.tables.errors import records_too_large
from server.sql.tables.segment_filter import SegmentFilter

if TYPE_CHECKING:
    from server.message_types.paths import Path
    from server.sql.tables.column_segments import SegmentField
    from server.sql.tables.columns import FieldColumn
    from server.sql.tables.row_chunk import SegmentRows
    from server.sql.tables.scan import ScanPlan

VALUE_BYTES: Final = 16
"""Approximate memory of a value in a column."""

_MAX_ENCODED_ROWS: Final = 4096
"""Rows that are made a dictionary, if the other rows of the column are one."""


_Rows: TypeAlias = NDArray[np.intp] | None
"""Rows of a segment; None for all."""


class SelectedRows(NamedTuple):
    """Rows of segments.

    Attributes:
        row_count: the number of rows.
        arrays: the values of each field.
    """

    row_count: int
    arrays: dict[Path, list[pa.Array]]


def select_rows(
    plan: ScanPlan, fields: Sequence[FieldColumn], segments: Sequence[SegmentRows], max_bytes: int
) -> SelectedRows:
    """Return the rows of segments that match the filter.

    Args:
        plan: the plan of the scan.
        fields: the columns to return.
        segments: the segments.
        max_bytes: the maximum memory of the rows that a filter selects.

    Raises:
        MisfitError: a value does not fit the type of its column.
        ScanTooLargeError: the rows take too much memory.
    """
    found = _find_fields(plan, segments)
    checked = product((*fields, *plan.tested), found)
    check_types((field, columns[field.path].type) for field, columns in checked)
    filter_ = None
    if plan.filter is not None:
        filter_ = SegmentFilter(plan.filter, plan.source.table.message_type)
    rows_of: list[_Rows] = []
    count = 0
    for segment, columns in zip(segments, found, strict=True):
        mask = segment.mask
        if filter_ is not None:
            matches = filter_.mask(columns)
            mask = matches if mask is None else matches & mask
        rows = None if mask is None else np.flatnonzero(mask)
        rows_of.append(rows)
        count += segment.length if rows is None else len(rows)
        if filter_ is not None and count * len(fields) * VALUE_BYTES > max_bytes:
            raise records_too_large(max_bytes)
    arrays = {
        field.path: _take([columns[field.path] for columns in found], field.column.type, rows_of)
        for field in fields
    }
    return SelectedRows(count, arrays)


def _find_fields(
    plan: ScanPlan, segments: Sequence[SegmentRows]
) -> list[Mapping[Path, SegmentField]]:
    """Return the fields of each segment."""
    assert plan.segments is not None  # noqa: S101 - the segments are from there
    paths, topic = plan.fields, plan.segments
    topic.note_use(paths)
    return [
        {
            path: topic.find_field(path, segment.number, blocks)
            for path, blocks in zip(paths, segment.columns, strict=True)
        }
        for segment in segments
    ]


def _take(
    segments: Sequence[SegmentField], sql_type: SqlType, rows_of: Sequence[_Rows]
) -> list[pa.Array]:
    """Return the selected values of a field: numbers as one array, others as some of each segment.

    Args:
        segments: the field in each segment.
        sql_type: the type of the column.
        rows_of: the rows of each segment.
    """
    numbers: list[NDArray[np.generic]] = []
    for segment, rows in zip(segments, rows_of, strict=True):
        values = None if rows is None else segment.numbers(sql_type)
        if values is None:
            break
        numbers.append(values[rows])
    else:
        return [pa.array(np.concatenate(numbers))]
    return [
        _take_some(segment, sql_type, rows)
        for segment, rows in zip(segments, rows_of, strict=True)
        if rows is None or len(rows)
    ]


def _take_some(segment: SegmentField, sql_type: SqlType, rows: _Rows) -> pa.Array:
    if rows is None:
        return segment.array(sql_type)
    length = sum(map(len, segment.blocks))
    if len(rows) == length:
        return segment.array(sql_type)
    if 2 * len(rows) < length:
        return segment.take(sql_type, rows)
    return segment.array(sql_type).take(pa.array(rows))


def with_one_type(parts: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """Return the parts of a column as dictionaries, or all of them without."""
    others = [part for part in parts if not isinstance(part, pa.DictionaryArray)]
    if not others or len(others) == len(parts):
        return parts
    if all(len(part) <= _MAX_ENCODED_ROWS for part in others):
        return [part if isinstance(part, pa.DictionaryArray) else _encoded(part) for part in parts]
    return [
        part.dictionary_decode() if isinstance(part, pa.DictionaryArray) else part for part in parts
    ]


def _encoded(texts: pa.Array) -> pa.DictionaryArray:
    encoded = texts.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.int16()), encoded.dictionary)
