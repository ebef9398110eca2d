"""Records of many entries at once.

A run of publishes to one topic by one publisher differs in sequence numbers and bodies only. Its
records are made as columns, which costs a fraction of what packing them one by one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from server.journal.errors import JournalUnavailable
from server.journal.layout import CHECKSUM, LAG_UNKNOWN, RECORD_SIZE, crc32c
from server.journal.records import RECORD_TYPE

_HEAD: Final = Struct(f"{RECORD_SIZE - CHECKSUM.size}s{CHECKSUM.size}x")


@dataclass(frozen=True, slots=True)
class Common:
    """What the entries of a run have in common.

    Attributes:
        first_txid: of the first entry.
        timestamp: of all of them, in microseconds since the Unix epoch.
        client: as the records have it.
        source_txid: likewise.
        bodies_end: offset in bytes of the first body in the file.
        topic: the topic's number in the file.
        origin: the origin's number in the file.
        kind: what the entries stand for.
        expiration: lifetime in seconds, 0 for none.
        durable: the last txid on stable storage.
    """

    first_txid: int
    timestamp: int
    client: int
    source_txid: int
    bodies_end: int
    topic: int
    origin: int
    kind: int
    expiration: int
    durable: int


class AppendedRun(NamedTuple):
    """How far a run has been appended in one step: its entries have one moment.

    Attributes:
        end: the position of the first publish that has not been appended; their number if all have.
        txids: of those that have been.
        timestamp: of these, in microseconds since the Unix epoch.
        problem: why that first one cannot be appended; None if it has not been tried.
    """

    end: int
    txids: Sequence[int]
    timestamp: int
    problem: JournalUnavailable | None


def make_records(
    common: Common, sequences: Sequence[int], sow_keys: Sequence[int], bodies: Sequence[bytes]
) -> tuple[bytes, int]:
    """The records of a run.

    Args:
        common: see above.
        sequences: the publisher's numbers; empty if it gives none: then they are the txids.
        sow_keys: SOW keys as numbers; empty if there are none.
        bodies: the messages.

    Returns:
        The records as they lie in the file, the last one first; the offset behind the last body.
    """
    count = len(bodies)
    ends = list(accumulate(map(len, bodies), initial=common.bodies_end))
    rows = np.zeros(count, RECORD_TYPE)
    txids = np.arange(common.first_txid, common.first_txid + count, dtype=np.uint64)
    offsets = np.array(ends, np.uint64)
    rows["txid"] = txids
    rows["timestamp"] = common.timestamp
    rows["client"] = common.client
    rows["sequence"] = np.array(sequences, np.uint64) if sequences else txids
    rows["source_txid"] = common.source_txid
    if sow_keys:
        rows["sow_key"] = np.array(sow_keys, np.uint64)
    rows["body_start"] = offsets[:-1]
    rows["body_length"] = np.diff(offsets)
    rows["topic"] = common.topic
    rows["origin"] = common.origin
    rows["expiration"] = common.expiration
    rows["body_crc"] = np.array(list(map(crc32c, bodies)), np.uint32)
    rows["kind"] = common.kind
    lag = common.first_txid - common.durable
    rows["lag"] = np.minimum(np.arange(lag, lag + count), LAG_UNKNOWN)
    rows["crc"] = np.array([crc32c(head) for (head,) in _HEAD.iter_unpack(rows.tobytes())])
    return rows[::-1].tobytes(), ends[-1]
