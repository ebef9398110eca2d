"""Batches as they are sent, from batches as they come, and the other way round."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

from server.replication.core import (
    BatchColumns,
    PackedBatch,
    ReplicationBatch,
    ReplicationFrameReader,
    SkippedRanges,
    encode,
)
from server.storage.journal import JournalOrigin, JournalTopic


def received(sent: PackedBatch | SkippedRanges) -> ReplicationBatch:
    """A batch as the other end gets it."""
    reader = ReplicationFrameReader(1 << 24)
    reader.feed(encode(sent))
    batch = reader.next_frame()
    assert isinstance(batch, ReplicationBatch)
    return batch


def together(*parts: BatchColumns) -> BatchColumns | None:
    """Entries one after the other as one; None if there are none."""
    if not parts:
        return None
    named = [part.properties_of(place) for part in parts for place in range(len(part.data))]
    names = list(dict.fromkeys(named))
    columns: list[Any] = [list(chain(*column)) for column in zip(*parts, strict=True)]
    return BatchColumns(names, [names.index(one) for one in named], *columns[2:])


def packed(batch: ReplicationBatch) -> PackedBatch:
    """A batch as docs/formats/replication.md says that it is sent."""
    names: dict[tuple[JournalTopic, JournalOrigin], int] = {}
    columns: list[Sequence[int]] = [()] * 11
    data: Sequence[bytes] = ()
    if batch.columns is not None:
        own, numbers, *fields, checksums, data = batch.columns
        sent = [names.setdefault(own[number][:2], len(names)) for number in numbers]
        extras = [own[number].extras_length for number in numbers]
        columns = list(map(list, (sent, *fields, extras, map(len, data), checksums)))
    return PackedBatch(
        batch.after,
        batch.upto,
        len(data),
        list(names),
        b"".join(map(_column, columns)) if data else b"",
        b"".join(data),
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
