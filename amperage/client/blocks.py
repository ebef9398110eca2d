"""Blocks: many messages as columns, for callers that read hundreds of thousands of messages.

Creating a `Message` with a decoded header for each message costs several times as much as
converting it to a row. Therefore a block has all bodies in one buffer, and only those texts of the
headers that rows need. Blocks support neither queues nor bookmark stores.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

from amperage.client.message import Message, split_batch
from amperage.wire.framing import Frame
from amperage.wire.header import Header
from amperage.wire.message_blocks import FIELDS, read_publications, read_records

REASON: Final = "reason"
"""The reason for the removal of a record. Not in FIELDS: such messages are read one by one."""

_SIZE_OF_PLACE: Final = 8


class BlockTexts(NamedTuple):
    """A header field of each message of a block.

    Attributes:
        valid: a byte for each message: 1 if it has the field, 0 otherwise.
        offsets: the offset of each text, and the end of the last one, as 32-bit integers.
        text: the concatenated texts.
    """

    valid: bytes | bytearray
    offsets: bytes | bytearray
    text: bytes


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """Consecutive messages, records or marks.

    Attributes:
        data: the buffer that contains the bodies.
        starts: the offset of each body, as 64-bit integers.
        ends: the end of each body, as 64-bit integers.
        texts: header fields, by their names in `Message.header`: topic, sow_key, bookmark,
            timestamp, correlation_id, user_id, expiration (its digits), and reason, which only
            messages about the removal of a record have. Fields that no message has are omitted.
        common: the values of fields for the messages that lack them.
    """

    data: bytes
    starts: bytes | bytearray
    ends: bytes | bytearray
    texts: Mapping[str, BlockTexts]
    common: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts) // _SIZE_OF_PLACE


def block_of(messages: Sequence[Message]) -> MessageBlock:
    """Return a block of messages."""
    sizes = [len(message.body) for message in messages]
    borders = array("q", accumulate(sizes, initial=0))
    texts = {}
    for name in (*FIELDS, REASON):
        values = [getattr(message.header, name) for message in messages]
        if any(value is not None for value in values):
            encoded = [
                ("" if value is None else str(value)).encode("utf-8", "replace") for value in values
            ]
            offsets = array("i", accumulate(map(len, encoded), initial=0))
            valid = bytes(value is not None for value in values)
            texts[name] = BlockTexts(valid, offsets.tobytes(), b"".join(encoded))
    data = b"".join(message.body for message in messages)
    return MessageBlock(data, borders[:-1].tobytes(), borders[1:].tobytes(), texts)


def block_of_records(batch: Header, content: bytes) -> MessageBlock:
    """Return the records of a `sow` frame as a block; see `split_batch`.

    Raises:
        ProtocolError: the content is not a sequence of records.
    """
    columns = read_records(content)
    if columns is None:
        return block_of(list(split_batch(batch, content)))
    starts, ends, texts = columns
    common = {"topic": batch.topic, "timestamp": batch.timestamp}
    return MessageBlock(
        content,
        starts,
        ends,
        {name: BlockTexts(*text_columns) for name, text_columns in texts.items()},
        {name: text for name, text in common.items() if text is not None},
    )


def block_of_publications(frames: list[Frame], first: int) -> tuple[str, MessageBlock] | None:
    """Return publications from a frame on, as a block.

    Args:
        frames: the received frames.
        first: the index of the first frame to read.

    Returns:
        The subscription ids of the first publications, and a block of those with the same ids; None
        if the first frame must be processed separately.
    """
    columns = read_publications(frames, first)
    if columns is None:
        return None
    ids, data, starts, ends, texts = columns
    return ids.decode(), MessageBlock(
        data,
        starts,
        ends,
        {name: BlockTexts(*text_columns) for name, text_columns in texts.items()},
    )
