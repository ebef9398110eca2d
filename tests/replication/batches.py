"""Batches as they are sent, from batches as they come, and the other way round."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from server.journal import Origin, Topic
from server.replication import Batch, FrameReader, Owed, Packed, encode


def received(sent: Packed | Owed) -> Batch:
    """A batch as the other end gets it."""
    reader = FrameReader(1 << 24)
    reader.feed(encode(sent))
    batch = reader.next()
    assert isinstance(batch, Batch)
    return batch


def packed(batch: Batch) -> Packed:
    """A batch as docs/formats/replication.md says that it is sent."""
    names: dict[tuple[Topic, Origin], int] = {}
    columns: list[list[int]] = [[] for _ in range(11)]
    data: list[bytes] = []
    for run in batch.runs:
        count = len(run.data)
        number = names.setdefault((run.topic, run.origin), len(names))
        fields: list[Sequence[int]] = [[number] * count, run.txids, run.clients, run.sequences]
        fields += [run.source_txids, run.kinds, run.sow_keys, run.expirations]
        fields += [[run.extras_length] * count, list(map(len, run.data)), run.checksums]
        for column, field in zip(columns, fields, strict=True):
            column += field
        data += run.data
    return Packed(
        batch.after,
        batch.upto,
        len(data),
        list(names),
        b"".join(map(_column, columns)) if data else b"",
        b"".join(data),
        [(txid, txid) for txid in columns[1]],
    )


def _column(values: Sequence[int]) -> bytes:
    first, count = values[0], len(values)
    if values.count(first) == count:
        return struct.pack("<BQ", 0, first)
    if values == list(range(first, first + count)):
        return struct.pack("<BQ", 1, first)
    form, letter = (
        (2, "B") if max(values) < 1 << 8 else (3, "I") if max(values) < 1 << 32 else (4, "Q")
    )
    return struct.pack(f"<B{count}{letter}", form, *values)
