"""Batches of results, as a query process sends them: of types that clients know, and bounded.

DuckDB makes batches of a number of rows, whatever their size. The server holds a batch two or three
times while it is encoded for the client, so that large ones are split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from server.sql.query.processes.protocol import MAX_BATCH_BYTES, MAX_ROW_BYTES


class RowTooLargeError(Exception):
    """A row of a result is too large to be sent."""


def result_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that can be sent.

    Raises:
        RowTooLargeError: a row is larger than `MAX_ROW_BYTES`.
    """
    size = batch.nbytes
    if size > MAX_BATCH_BYTES and batch.num_rows > 1:
        middle = batch.num_rows // 2
        yield from result_batches(batch.slice(0, middle))
        yield from result_batches(batch.slice(middle))
        return
    if size > MAX_ROW_BYTES:
        raise RowTooLargeError(f"a row of the result takes {size} bytes")
    yield _normalized(batch)


def to_stream(batch: pa.RecordBatch) -> pa.Buffer:
    """Return an Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _normalized(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of the types that clients are told: no enumerations, structures and maps."""
    if not any(_is_unusual(field.type) for field in batch.schema):
        return batch
    arrays = [_usual(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _is_unusual(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_dictionary(kind)
        or types.is_null(kind)
        or types.is_nested(kind)
        or (types.is_timestamp(kind) and kind.unit != "us")
        or isinstance(kind, pa.BaseExtensionType)
    )


def _is_array(kind: pa.DataType) -> bool:
    """Return whether values are lists, of any number of dimensions, of plain values."""
    types = pa.types
    if not types.is_list(kind):
        return False
    return not types.is_nested(kind.value_type) or _is_array(kind.value_type)


def _usual(column: pa.Array) -> pa.Array:
    kind = column.type
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _usual(column.storage)
    if types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if types.is_null(kind):
        return column.cast(pa.string())
    if types.is_timestamp(kind) and kind.unit != "us":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if _is_array(kind):
        return column.cast(pa.list_(_usual(column.values[:0]).type))
    if types.is_nested(kind):
        texts = [
            None if value is None else json.dumps(value, default=str, ensure_ascii=False)
            for value in column.to_pylist(maps_as_pydicts="lossy")
        ]
        return pa.array(texts, pa.string())
    return column
