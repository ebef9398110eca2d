"""Many messages as columns: for whoever reads them by the hundred thousand.

A `Message` for each of them, with a header that has been decoded, costs several times what is done
with it where rows are made of messages. So a block has the bodies in one piece of memory, and of
the headers the few texts that rows are made of. It knows neither queues nor bookmark stores.
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
"""Why a record is gone. Such messages are read one by one, so that it is not in FIELDS."""

_SIZE_OF_PLACE: Final = 8


class Texts(NamedTuple):
    """A header field of each message of a block.

    Attributes:
        valid: a byte for each message: whether it has the field.
        offsets: where each text begins, and where the last one ends, as numbers of 32 bits.
        text: the texts, one behind the other.
    """

    valid: bytes | bytearray
    offsets: bytes | bytearray
    text: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Messages, records or marks that arrived one behind the other.

    Attributes:
        data: bytes among which the bodies are.
        starts: where each body begins, as numbers of 64 bits.
        ends: and ends.
        texts: header fields, by their names in `Message.header`: topic, sow_key, bookmark,
            timestamp, correlation_id, user_id, expiration (its digits), and reason, which only
            messages have that say of records that they are gone. One that no message has is not
            there.
        common: of messages that do not have a field, what it is nevertheless.
    """

    data: bytes
    starts: bytes | bytearray
    ends: bytes | bytearray
    texts: Mapping[str, Texts]
    common: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts) // _SIZE_OF_PLACE


def block_of(messages: Sequence[Message]) -> Block:
    """Put messages into a block."""
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
            texts[name] = Texts(valid, offsets.tobytes(), b"".join(encoded))
    data = b"".join(message.body for message in messages)
    return Block(data, borders[:-1].tobytes(), borders[1:].tobytes(), texts)


def block_of_records(batch: Header, content: bytes) -> Block:
    """Divide the content of a `sow` frame; see `split_batch`.

    Raises:
        ProtocolError: the content is no sequence of records.
    """
    found = read_records(content)
    if found is None:
        return block_of(list(split_batch(batch, content)))
    starts, ends, texts = found
    common = {"topic": batch.topic, "timestamp": batch.timestamp}
    return Block(
        content,
        starts,
        ends,
        {name: Texts(*columns) for name, columns in texts.items()},
        {name: text for name, text in common.items() if text is not None},
    )


def block_of_publications(frames: list[Frame], first: int) -> tuple[str, Block] | None:
    """Gather publications from a frame on.

    Args:
        frames: what has arrived.
        first: where to begin.

    Returns:
        The ids of the subscriptions that the first ones are for, and these; None if the first one
        has to be looked at by itself.
    """
    found = read_publications(frames, first)
    if found is None:
        return None
    ids, data, starts, ends, texts = found
    return ids.decode(), Block(
        data, starts, ends, {name: Texts(*columns) for name, columns in texts.items()}
    )
