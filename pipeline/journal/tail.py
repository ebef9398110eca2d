"""Finds the end of a journal file that a running server is still writing to.

`server.storage.journal.log_end` finds the end by checking every entry, as recovery must. Here the
file is only read, perhaps often, so the end is found by bisection. Each record contains how far the
log was on stable storage when it was written, and so does the mark after the last one. The entries
up to there are complete. Only the few entries after that have to be checked, because the server may
be writing them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from server.storage.journal.format.layout import LAG, LAG_UNKNOWN
from server.storage.journal.format.records import columns, read_bodies, read_body, read_rows, slots
from server.storage.journal.log_end import MAX_COMMIT_ENTRIES, find_file_extent, find_mark
from server.storage.journal.storage import ByteSource

_WALK_BACK: Final = 64
"""Records that are examined for the position up to which the log was durable."""

_BATCH_SIZE: Final = 64
"""Entries after that position which are read and checked together."""


def entries_written(source: ByteSource, first_txid: int) -> int:
    """Return the number of complete entries in a file without a seal.

    Args:
        source: the file.
        first_txid: the txid of its first entry.
    """
    limit = slots(source.size)
    records = bisect_left(range(limit), True, key=lambda n: not _is_there(source, first_txid, n))
    behind = min(MAX_COMMIT_ENTRIES, limit - records)
    mark = find_mark(source, first_txid, records, behind)
    if mark is not None and mark.next_txid == first_txid + records:
        return records
    safe = _known_safe(source, first_txid, records)
    if safe is None or mark is not None or _goes_on(source, first_txid, records, behind):
        return find_file_extent(source, first_txid).count
    for start in range(safe + 1, records, _BATCH_SIZE):
        rows = read_rows(source, first_txid, start, min(start + _BATCH_SIZE, records))
        intact = [row for row in rows if row is not None]
        if len(intact) < len(rows):
            intact = intact[: rows.index(None)]
        bodies = read_bodies(source, intact)
        whole = bodies.index(None) if None in bodies else len(bodies)
        if whole < len(rows):
            return start + whole
    return records


def _is_there(source: ByteSource, first_txid: int, number: int) -> bool:
    return read_rows(source, first_txid, number, number + 1)[0] is not None


def _known_safe(source: ByteSource, first_txid: int, records: int) -> int | None:
    """Return the number of the last entry known to be durable, -1 if none of this file is."""
    start = max(records - _WALK_BACK, 0)
    rows = read_rows(source, first_txid, start, records)
    proofs = [
        max(number - row[LAG], -1)  # the previous file may not be durable yet
        for number, row in enumerate(rows, start)
        if row is not None and row[LAG] != LAG_UNKNOWN and read_body(source, row) is not None
    ]
    return max(proofs, default=None)


def _goes_on(source: ByteSource, first_txid: int, records: int, behind: int) -> bool:
    """Return whether there are records after the apparent end: then a record is damaged."""
    txids = columns(source, records, records + behind)["txid"]
    expected = np.arange(first_txid + records, first_txid + records + len(txids), dtype=np.uint64)
    return bool(np.any(txids == expected))
