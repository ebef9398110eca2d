"""Rows whose order is left to chance, in one order of their own.

Behind a shuffle the rows of a partition come in another order each time that they are computed. The
numbers of rows, by which the server tells what it has already, have to be the same each time. So
the messages of a task are sorted by what they are, before they are numbered. Sorted are the encoded
messages and not the columns: bytes always have an order, and those that are equal are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pipeline.bodies import Outgoing

_BODY: Final = ""
"""The column of the bodies, a name that no header has."""
_ROWS_A_BATCH: Final = 10_000


def sorted_messages(batches: Iterator[Outgoing]) -> Iterator[Outgoing]:
    """All messages of a task, which are kept in memory for it, in an order of their own."""
    held = [_packed(batch) for batch in batches]
    if not held:
        return
    table = pa.Table.from_batches(held)
    ordered = table.sort_by([(name, "ascending") for name in table.column_names])
    for batch in ordered.to_batches(_ROWS_A_BATCH):
        columns = batch.to_pydict()
        yield Outgoing(columns.pop(_BODY), columns)


def _packed(batch: Outgoing) -> pa.RecordBatch:
    """Messages as Arrow has them, at a fraction of the memory that Python objects take."""
    headers = {
        name: pa.array(values, pa.int64() if name == "expiration" else pa.large_string())
        for name, values in batch.headers.items()
    }
    return pa.RecordBatch.from_pydict({_BODY: pa.array(batch.bodies, pa.large_binary()), **headers})
