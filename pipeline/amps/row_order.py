"""Sorts rows that have no deterministic order.

After a shuffle the rows of a partition have another order each time that they are computed. The
numbers of rows, by which the server detects duplicates, have to be the same each time. So the
messages of a task are sorted before they are numbered. The encoded messages are sorted and not the
columns: bytes always have an order, and equal ones are identical.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pipeline.bodies import OutgoingMessages

_BODY: Final = ""
"""The column of the bodies, a name that no header has."""
_BATCH_SIZE: Final = 10_000


def sorted_messages(batches: Iterator[OutgoingMessages]) -> Iterator[OutgoingMessages]:
    """Yield all messages of a task in sorted order; keeps them in memory."""
    held = [_packed(batch) for batch in batches]
    if not held:
        return
    table = pa.Table.from_batches(held)
    ordered = table.sort_by([(name, "ascending") for name in table.column_names])
    for batch in ordered.to_batches(_BATCH_SIZE):
        columns = batch.to_pydict()
        yield OutgoingMessages(columns.pop(_BODY), columns)


def _packed(batch: OutgoingMessages) -> pa.RecordBatch:
    """Convert messages to Arrow, which takes a fraction of the memory of Python objects."""
    headers = {
        name: pa.array(values, pa.int64() if name == "expiration" else pa.large_string())
        for name, values in batch.headers.items()
    }
    return pa.RecordBatch.from_pydict({_BODY: pa.array(batch.bodies, pa.large_binary()), **headers})
