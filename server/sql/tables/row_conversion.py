"""Converts the rows of a scan to Arrow tables, on the worker thread that waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from server.expressions.backends.columns import NumberColumn, column_of, column_of_raw
from server.message_types.bulk import BulkMessageType, bulk_extractor, join
from server.sql.query.tables import SqlType
from server.sql.tables.arrow_columns import common_type, to_arrow, to_text, type_of_column
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.errors import MisfitError
from server.sql.tables.row_chunk import RowChunk
from server.sql.tables.segment_rows import select_rows, with_one_type

if TYPE_CHECKING:
    from server.expressions.backends.columns import Column
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.sql.tables.scan import ScanPlan

_BODY_BATCH_SIZE: Final = 256
"""Bodies that are read at once: few enough to fit the processor's cache."""


_MIN_CHUNK_ROWS: Final = 1024
"""Rows of a chunk, on average, below which they are copied together: each chunk costs the
readers of the table."""


def to_arrow_table(plan: ScanPlan, chunks: Sequence[RowChunk], max_bytes: int) -> pa.Table:
    """Return the rows of one table; columns of texts may be dictionaries.

    Args:
        plan: the plan of the scan.
        chunks: the rows.
        max_bytes: the maximum memory of rows that are selected here.

    Raises:
        MisfitError: a value does not fit the type of its column.
        ScanTooLargeError: the rows take too much memory.
    """
    fields = [output for output in plan.outputs if isinstance(output, FieldColumn)]
    segments = [chunk.segment for chunk in chunks if chunk.segment is not None]
    chunks = [chunk for chunk in chunks if chunk.segment is None]
    count = sum(chunk.row_count for chunk in chunks)
    field_arrays: dict[Path, list[pa.Array]] = {field.path: [] for field in fields}
    if segments:
        selected = select_rows(plan, fields, segments, max_bytes)
        count += selected.row_count
        field_arrays = selected.arrays
    tested = [field for field in plan.tested if field.path not in field_arrays]
    message_type = plan.source.table.message_type
    for path, parts in _field_arrays(message_type, [*fields, *tested], chunks).items():
        field_arrays.setdefault(path, []).extend(parts)
    if not plan.outputs:
        return pa.table({"": pa.nulls(count)}).select([])
    arrays: list[pa.ChunkedArray] = []
    names: list[str] = []
    for output in plan.outputs:
        if isinstance(output, FieldColumn):
            names.append(output.column.name)
            values = with_one_type(field_arrays[output.path])
            arrow_type = values[0].type if values else output.column.type.arrow_type
            arrays.append(pa.chunked_array(values, arrow_type))
        else:
            names.append(output.value.name)
            arrow_type = output.value.type.arrow_type
            parts = [_metadata_array(chunk, output) for chunk in chunks]
            arrays.append(pa.chunked_array(parts, arrow_type))
    table = pa.table(arrays, names=names)
    is_sparse = count < _MIN_CHUNK_ROWS * (len(segments) + len(chunks))
    return table.combine_chunks() if is_sparse else table


def _field_arrays(
    message_type: MessageType, fields: Sequence[FieldColumn], chunks: Sequence[RowChunk]
) -> Mapping[Path, list[pa.Array]]:
    """Return the values of fields, by path; of each chunk one array or several."""
    paths = tuple(dict.fromkeys(field.path for field in fields))
    types = {field.path: field.column.type for field in fields}
    arrays: dict[Path, list[pa.Array]] = {path: [] for path in paths}
    misfits: dict[Path, SqlType] = {}
    read_bodies: Callable[[Sequence[bytes]], Sequence[Column]] | None = None
    order = [field.path for field in fields]
    columns: dict[Path, list[Column]] = {path: [] for path in paths}
    for chunk in _merged(chunks) if fields else ():
        if chunk.columns is not None:
            for path, column in zip(order, chunk.columns, strict=True):
                columns[path].append(
                    column if chunk.offsets is None else column.take(chunk.offsets)
                )
        elif chunk.bodies is not None:
            read_bodies = read_bodies or body_reader(message_type, order)
            for start in range(0, chunk.row_count, _BODY_BATCH_SIZE):
                read = read_bodies(chunk.bodies[start : start + _BODY_BATCH_SIZE])
                for path, column in zip(order, read, strict=True):
                    columns[path].append(column)
    for path, sql_type in types.items():
        for column in _joined(columns.pop(path)):
            kind = None if sql_type is SqlType.TEXT else type_of_column(column)
            if kind is not None and (wider := common_type(sql_type, kind)) is not sql_type:
                misfits[path] = common_type(misfits.get(path), wider) or sql_type
            elif not misfits:
                arrays[path].append(to_arrow(column, sql_type))
    if misfits:
        raise MisfitError(misfits)
    return arrays


def _merged(chunks: Sequence[RowChunk]) -> Iterator[RowChunk]:
    """Yield chunks of fields; consecutive chunks with bodies become one, to be parsed."""
    for has_columns, group in groupby(chunks, lambda chunk: chunk.columns is not None):
        if has_columns:
            yield from group
            continue
        bodies = [body for chunk in group for body in chunk.bodies or ()]
        yield RowChunk(len(bodies), bodies=bodies)


def _joined(columns: Sequence[Column]) -> Iterator[Column]:
    """Yield columns; small ones of numbers of one kind that follow each other are one."""
    for dtype, group in groupby(columns, _dtype_of_small):
        if dtype is None:
            yield from group
            continue
        parts = [column for column in group if isinstance(column, NumberColumn)]
        has_nulls = any(column.valid is not None for column in parts)
        yield NumberColumn(
            np.concatenate([column.values for column in parts]),
            np.concatenate([column.valid_mask() for column in parts]) if has_nulls else None,
        )


def _dtype_of_small(column: Column) -> np.dtype[Any] | None:
    """Return the type of the numbers of a small column; None for all others."""
    if not isinstance(column, NumberColumn) or column.integers is not None:
        return None
    return column.values.dtype if len(column) < _MIN_CHUNK_ROWS else None


def read_fields(
    read_bodies: Callable[[Sequence[bytes]], Sequence[Column]],
    fields: Sequence[FieldColumn],
    bodies: Sequence[bytes],
) -> Sequence[pa.Array]:
    """Return the values of fields in some bodies.

    Args:
        read_bodies: reads these fields; see `body_reader`.
        fields: the columns.
        bodies: the bodies.

    Raises:
        MisfitError: a value does not fit the type of its column.
    """
    columns = read_bodies(bodies) if fields else ()
    misfits: dict[Path, SqlType] = {}
    for field, column in zip(fields, columns, strict=True):
        kind = None if field.column.type is SqlType.TEXT else type_of_column(column)
        wider = common_type(field.column.type, kind)
        if wider is not None and wider is not field.column.type:
            misfits[field.path] = wider
    if misfits:
        raise MisfitError(misfits)
    return [
        to_arrow(column, field.column.type) for field, column in zip(fields, columns, strict=True)
    ]


def body_reader(
    message_type: MessageType, paths: Sequence[Path]
) -> Callable[[Sequence[bytes]], Sequence[Column]]:
    """Return a function that reads fields of bodies; it is for one thread."""
    read_columns = (
        message_type.column_reader(paths) if isinstance(message_type, BulkMessageType) else None
    )
    if read_columns is not None:
        return lambda bodies: [
            column_of_raw(raw) for raw in read_columns([join(bodies)], len(bodies))
        ]
    extract = bulk_extractor(message_type, paths)
    return lambda bodies: [column_of(values) for values in extract(bodies)]


def _metadata_array(chunk: RowChunk, metadata: Metadata) -> pa.Array:
    assert chunk.metadata is not None  # noqa: S101 - they were requested
    array = chunk.metadata[metadata]
    return to_text(array) if metadata is Metadata.BODY else array
