"""Records of many entries at once.

A run of publishes to one topic by one publisher differs in sequence numbers and bodies only. What
its records have in common is packed once and repeated, and the rest is filled in as columns, which
costs a fraction of what packing them one by one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from server.journal.errors import JournalUnavailable
from server.journal.layout import CHECKSUM, HEAD, LAG_UNKNOWN, crc32c
from server.journal.records import RECORD_TYPE

_HEAD: Final = Struct(f"{HEAD.size}s{CHECKSUM.size}x")
_NO_CHECKSUM: Final = bytes(CHECKSUM.size)


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
    data = bytearray((_pack_common(common) + _NO_CHECKSUM) * count)
    rows = np.frombuffer(data, RECORD_TYPE)[::-1]
    numbers = np.arange(count, dtype=np.uint64)
    lengths = np.fromiter(map(len, bodies), np.uint64, count)
    ends = lengths.cumsum() + np.uint64(common.bodies_end)
    rows["txid"] = txids = numbers + np.uint64(common.first_txid)
    rows["sequence"] = np.array(sequences, np.uint64) if sequences else txids
    if sow_keys:
        rows["sow_key"] = np.array(sow_keys, np.uint64)
    rows["body_start"] = ends - lengths
    rows["body_length"] = lengths
    rows["body_crc"] = np.fromiter(map(crc32c, bodies), np.uint32, count)
    lag = np.uint64(common.first_txid - common.durable)
    rows["lag"] = np.minimum(numbers + lag, LAG_UNKNOWN)
    checksums = np.fromiter(starmap(crc32c, _HEAD.iter_unpack(data)), np.uint32, count)
    rows["crc"] = checksums[::-1]
    return bytes(data), int(ends[-1])


def _pack_common(common: Common) -> bytes:
    """What is the same in all records, and nothing where they differ."""
    return HEAD.pack(
        0,
        common.timestamp,
        common.client,
        0,
        common.source_txid,
        0,
        0,
        0,
        0,
        0,
        common.topic,
        common.origin,
        common.expiration,
        0,
        common.kind,
        0,
        0,
    )
