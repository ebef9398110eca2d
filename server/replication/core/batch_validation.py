"""Validates received batches."""

from __future__ import annotations

from server.replication.core.columns import ReplicationBatch, distinct_values, is_ascending
from server.replication.core.frames import ReplicationProtocolError
from server.storage.journal import EVENTS
from server.storage.journal.format.layout import crc32c


def validate_batch(batch: ReplicationBatch) -> None:
    """Validate a batch and its checksums.

    Raises:
        ReplicationProtocolError: it is invalid or damaged.
    """
    entries = batch.columns
    if entries is None:
        return
    first, last = entries.txids[0], entries.txids[-1]
    if not first > batch.after or not (
        isinstance(entries.txids, range) or is_ascending(entries.txids)
    ):
        raise ReplicationProtocolError("batch with entries out of order")
    if not EVENTS.issuperset(set(entries.kinds)):
        raise ReplicationProtocolError("batch with entries of a kind that is not replicated")
    if min(distinct_values(entries.sequences)) < 1:
        raise ReplicationProtocolError("batch with entries without a sequence number")
    if list(map(crc32c, entries.data)) != list(entries.checksums):
        raise ReplicationProtocolError(f"batch with damaged entries between {first} and {last}")
    if last > batch.upto:
        raise ReplicationProtocolError("batch with entries beyond its end")
