"""Records of topics as rows of a DataFrame, which views have as input and output.

    key, body, topic, timestamp, sequence, correlation_id, bookmark

as in `server.storage.sow.records.Record`. The order of `sequence` is the order of the updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from server.storage.sow.records import Record

ARROW: Final = pa.schema(
    [
        ("key", pa.string()),
        ("body", pa.binary()),
        ("topic", pa.string()),
        ("timestamp", pa.int64()),
        ("sequence", pa.int64()),
        ("correlation_id", pa.string()),
        ("bookmark", pa.string()),
    ]
)
SCHEMA: Final = (
    "key string, body binary, topic string, timestamp long, sequence long,"
    " correlation_id string, bookmark string"
)
"""The same schema for Spark."""


def records_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """Yield the records of some batches."""
    for batch in batches:
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ARROW.names]
        for key, body, topic, timestamp, sequence, correlation_id, bookmark in zip(
            *columns, strict=True
        ):
            yield Record(
                key or "",
                body or b"",
                topic or "",
                timestamp or 0,
                0,
                sequence or 0,
                correlation_id or "",
                bookmark or "",
            )


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Return a batch of records."""
    columns = {name: [getattr(record, name) for record in records] for name in ARROW.names}
    return pa.RecordBatch.from_pydict(columns, schema=ARROW)
