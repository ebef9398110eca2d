"""Recovery points of queues, so that a start does not have to read all of the log.

The state of queues is a projection of the log. A cache (`.queues.ack`) has for each queue the place
from which on the log is needed, because everything before has left the queue. The cache also has
the state that cannot be recovered from there on: acknowledgements of messages that have not
arrived.

Source: AMPS User Guide, Startup and Recovery for Queues; Reference to File Types.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from server.storage.journal.format.layout import decode_text, encode_text, with_checksum
from server.storage.journal.format.side_files import check_side_file

MAGIC: Final = b"AMPGQACK"
VERSION: Final = 1

_HEADER: Final = struct.Struct("<8sHHIQQQ")  # magic, version, reserved (2), txid, time, queues
_POINT: Final = struct.Struct("<HHHHIQQ")  # lengths of three texts, reserved, acks, begin, needed
_ROW: Final = np.dtype([("client", "<u8"), ("sequence", "<u8"), ("came", "<i8")])

EarlyAck = tuple[tuple[int, int], int]
"""The bookmark of a message that has not arrived, as numbers, and when it was acknowledged."""


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """The recovery point of one queue.

    Attributes:
        message_type: the queue's message type.
        name: its name.
        recovery_point: its RecoveryPoint, as it was configured.
        begin_txid: the txid before which no message is for this queue.
        needed_from_txid: the txid before which every message has left it.
        early_acks: acknowledgements of messages that have not arrived.
    """

    message_type: str
    name: str
    recovery_point: str
    begin_txid: int
    needed_from_txid: int
    early_acks: Sequence[EarlyAck] = ()


@dataclass(frozen=True, slots=True)
class QueuePointTable:
    """A stored cache.

    Attributes:
        txid: txid of the last entry that it covers.
        points: the recovery points of all queues.
    """

    txid: int
    points: Sequence[QueuePoint]


def pack_queues(cache: QueuePointTable, now: int) -> bytes:
    """Encode a cache as the bytes of its file; `now` in microseconds since the Unix epoch."""
    data = _HEADER.pack(MAGIC, VERSION, 0, 0, cache.txid, now, len(cache.points))
    data += b"".join(map(_pack_point, cache.points))
    return with_checksum(data)


def _pack_point(point: QueuePoint) -> bytes:
    texts = [encode_text(one) for one in (point.message_type, point.name, point.recovery_point)]
    lengths = [len(text) for text in texts]
    acks = [(*bookmark, came) for bookmark, came in point.early_acks]
    head = _POINT.pack(*lengths, 0, len(acks), point.begin_txid, point.needed_from_txid)
    return head + b"".join(texts) + np.array(acks, _ROW).tobytes()


def unpack_queues(data: bytes) -> QueuePointTable:
    """Decode a stored cache.

    Raises:
        JournalFormatError: it is damaged, or of another kind.
    """
    check_side_file(data, MAGIC, VERSION, _HEADER.size, "a queues.ack file")
    _, _, _, _, txid, _, count = _HEADER.unpack_from(data)
    points: list[QueuePoint] = []
    position = _HEADER.size
    for _ in range(count):
        *lengths, _, acks, begin, needed_from = _POINT.unpack_from(data, position)
        position += _POINT.size
        texts: list[str] = []
        for length in lengths:
            texts.append(decode_text(data[position : position + length]))
            position += length
        rows = np.frombuffer(data, _ROW, acks, position).tolist()
        position += acks * _ROW.itemsize
        early_acks = [((client, sequence), came) for client, sequence, came in rows]
        points.append(QueuePoint(texts[0], texts[1], texts[2], begin, needed_from, early_acks))
    return QueuePointTable(txid, points)
