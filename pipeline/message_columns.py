"""Messages that have arrived: their headers as Arrow columns, and their bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from amperage.client import Message
from amperage.client.blocks import MessageBlock, block_of
from pipeline.packed_bodies import PackedBodies

_MIN_BATCH_BYTES: Final = 32 << 20
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

_BOOKMARK: Final = r"^(?P<client>[0-9]+)\|(?P<sequence>[0-9]+)\|$"
_MAX_LONG: Final = 2**63 - 1

_COMPACT: Final = "YYYYMMDDThhmmss.ffffffZ"
_EXTENDED: Final = "YYYY-MM-DDThh:mm:ss.ffffffZ"
_PLACES: Final = [place for place, buffer in enumerate(_EXTENDED) if buffer not in "-:"]
"""The indexes in `_EXTENDED` of the characters of `_COMPACT`."""


class MessageColumns:
    """Messages as columns.

    Args:
        blocks: the messages.

    Attributes:
        bodies: their bodies.
    """

    def __init__(self, blocks: Sequence[MessageBlock]) -> None:
        self._blocks = blocks
        self.bodies = PackedBodies.concatenate(
            [
                PackedBodies(
                    block.data,
                    np.frombuffer(block.starts, np.int64),
                    np.frombuffer(block.ends, np.int64),
                )
                for block in blocks
            ]
        )
        self._headers: dict[str, pa.Array] = {}

    @classmethod
    def from_messages(cls, messages: Sequence[Message]) -> Self:
        """Return columns of messages that arrived one by one."""
        return cls([block_of(messages)])

    def __len__(self) -> int:
        return len(self.bodies)

    def header_column(self, name: str) -> pa.Array:
        """Return a header field as a column of texts."""
        column = self._headers.get(name)
        if column is None:
            column = pa.concat_arrays([_header(block, name) for block in self._blocks])
            self._headers[name] = column
        return column

    @cached_property
    def timestamps(self) -> pa.Array:
        """The times when the server received the messages."""
        texts = self.header_column("timestamp")
        moments = _moments(texts.drop_null())
        if not texts.null_count:
            return moments
        valid = texts.is_valid().to_numpy(zero_copy_only=False)
        return moments.take(pa.array(np.cumsum(valid) - 1, mask=~valid))

    @cached_property
    def lengths(self) -> pa.Array:
        """The sizes of the bodies in bytes."""
        return pa.array(self.bodies.ends - self.bodies.starts)

    @cached_property
    def publishers(self) -> pa.StructArray:
        """The publisher of each message and its sequence number, from the bookmarks.

        A sequence number above signed 64 bits is NULL, as in journals.
        """
        parts = pc.extract_regex(self.header_column("bookmark"), _BOOKMARK)
        numbers = pc.struct_field(parts, "sequence").cast(pa.uint64())
        fits = pc.less_equal(numbers, pa.scalar(_MAX_LONG, pa.uint64()))
        sequence = pc.if_else(fits, numbers, None).cast(pa.int64())
        clients = pc.struct_field(parts, "client")
        return pa.StructArray.from_arrays([clients, sequence], ["client", "sequence"])


def gathered(arriving: Iterable[Sequence[MessageBlock]], rows: int) -> Iterator[MessageColumns]:
    """Collect arriving blocks, until there are enough messages to convert them to rows.

    Args:
        arriving: blocks, in batches as they arrive.
        rows: the number of messages that is enough.
    """
    pending: list[MessageBlock] = []
    count = size = 0
    for blocks in arriving:
        pending += blocks
        count += sum(map(len, blocks))
        size += sum(len(block.data) for block in blocks)
        if count >= rows or size >= _MIN_BATCH_BYTES:
            yield MessageColumns(pending)
            pending, count, size = [], 0, 0
    if pending:
        yield MessageColumns(pending)


def _header(block: MessageBlock, name: str) -> pa.Array:
    texts, common = block.texts.get(name), block.common.get(name)
    if texts is None:
        return pa.repeat(pa.scalar(common, pa.string()), len(block))
    count = len(block)
    is_there = np.frombuffer(texts.valid, np.bool_)
    mask = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    buffers = [mask, pa.py_buffer(texts.offsets), pa.py_buffer(texts.text)]
    column = pa.Array.from_buffers(pa.string(), count, buffers)
    return column if common is None else pc.fill_null(column, common)


def _moments(texts: pa.Array) -> pa.Array:
    """Return the timestamps in some texts, of which none is NULL."""
    moments = _compact_moments(texts)
    if moments is None:
        moments = pa.array([datetime.fromisoformat(text.as_py()) for text in texts], TIMESTAMP)
    return moments


def _compact_moments(texts: pa.Array) -> pa.Array | None:
    """Return the timestamps of texts in the form that servers write; None if one is not."""
    size, (_, offsets, data) = len(_COMPACT), texts.buffers()
    borders = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or (np.diff(borders) != size).any():
        return None
    characters = np.frombuffer(data, np.uint8)[borders[0] : borders[-1]].reshape(-1, size)
    extended = np.tile(np.frombuffer(_EXTENDED.encode(), np.uint8), (len(texts), 1))
    extended[:, _PLACES] = characters
    buffers = [np.arange(len(texts) + 1, dtype=np.int32) * len(_EXTENDED), extended]
    strings = pa.Array.from_buffers(
        pa.string(), len(texts), [None, *(pa.py_buffer(buffer) for buffer in buffers)]
    )
    try:
        return strings.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return None
