"""The protocol between instances: frames.

    u32 length of what follows | u8 type | u8 flags | payload

The payload of control frames is a MessagePack array; that of a batch has columns, see `_pack_run`.
Flag 1: the payload is compressed with zlib. Sizes are bounded before anything is read; a type, a
flag or a form of a column that is not known is refused, and ends the link: what an instance does
not understand it must not take for something else. The format is described in
docs/formats/replication.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from server.base.malformed import MALFORMED
from server.journal.layout import pack_origin, pack_topic, unpack_origin, unpack_topic
from server.replication.columns import Batch, Column, Columns, Same
from server.replication.known import Had

VERSION: Final = 1
"""Of the protocol; both ends have to have the same."""

MOST_BEFORE_HELLO: Final = 1 << 20
"""Bytes of a frame of somebody who has not said who they are."""

_MOST_INFLATED: Final = 16
"""How many times as long a hello may be, which is compressed: it describes thousands of topics."""

MOST_IN_FRAME: Final = 1 << 30
"""Bytes of any other frame, as long as a message may be that is in the log."""

_HEAD: Final = struct.Struct("<IBB")
_BATCH: Final = struct.Struct("<QQI")  # after, up to, runs
_RUN: Final = struct.Struct("<IIII")  # entries, lengths of topic and origin, length of extras
_VALUE: Final = struct.Struct("<BQ")
_COLUMNS: Final = 7
_VALUES: Final = [struct.Struct("<" + "BQ" * count) for count in range(_COLUMNS + 1)]
"""The beginnings of so many columns, of which no entry has a value of its own."""
_ONE_U32: Final = struct.Struct("<I")
_ONE_U64: Final = struct.Struct("<Q")
_COMPRESSED: Final = 1
_LEAST_COMPRESSED: Final = 1024
_SAME, _CONSECUTIVE, _EACH = range(3)
_LARGEST: Final = (1 << 64) - 1
_U64: Final = np.dtype("<u8")
_U32: Final = np.dtype("<u4")
_LONGEST_KEPT: Final = 1000
"""Bytes of topics and origins that are read once as long as they come again and again."""

_packed_topic: Final = lru_cache(maxsize=1024)(pack_topic)
_packed_origin: Final = lru_cache(maxsize=1024)(pack_origin)
_topic_of: Final = lru_cache(maxsize=1024)(unpack_topic)
_origin_of: Final = lru_cache(maxsize=1024)(unpack_origin)


class FrameError(Exception):
    """What came is no frame of this protocol; the text says how."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first frame on a link, both ways.

    Attributes:
        version: of the protocol.
        instance: the instance's Name.
        group: its Group.
        log: identity of its transaction log.
        began: the first txid that this log ever had.
        sends: whether it has a destination that the other instance may be.
        takes: whether it takes what the other instance sends.
        user: whom it is to be authenticated as.
        password: what proves that.
        description: what both have to agree on, for the validation; in a form that is read when
            it is known who is there.
        nonce: a number of this run of the instance.
    """

    version: int
    instance: str
    group: str
    log: str
    began: int
    sends: bool = True
    takes: bool = True
    user: str = ""
    password: str = ""
    description: bytes = b""
    nonce: int = 0


class Refused(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The link is not to be; nothing follows.

    Attributes:
        reason: for people; both ends log it.
    """

    reason: str


class Beat(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The other end is still there."""


class Begin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A source asks how far its destination has got.

    Attributes:
        stream: stands for the source's log and what is replicated of it: a cursor is of one stream.
        first: the first txid in its log.
        last: the last txid in its log.
        client: what both ends call this direction of the link, in the log.
        ack_interval: how often it wants to be told what is stored, in microseconds.
    """

    stream: str
    first: int
    last: int
    client: str = ""
    ack_interval: int = 0


class Ack(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a destination has got, in the numbers of the source's log.

    Attributes:
        stored: everything up to this is on stable storage, or was not for this destination.
        settled: everything up to this is, too, at the instances that acknowledge to it.
        ranges: the first and the last number of each range above that of which the same is true.
    """

    stored: int
    settled: int
    ranges: list[tuple[int, int]] = []


class Owed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that a source has left out, because it could not be read; see `arrears`.

    Attributes:
        ranges: the first and the last txid of each range.
    """

    ranges: list[tuple[int, int]]


class Resume(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a source is to go on.

    Attributes:
        after: the txid behind which it goes on; None if the destination does not know the stream:
            what it knows follows, in frames of `Knowledge`.
        ack: what it has of that.
        owed: what it has been told that it is owed.
    """

    after: int | None
    ack: Ack | None = None
    owed: list[tuple[int, int]] = []


class Knowledge(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a destination has, some publishers of it.

    Attributes:
        had: see `known`.
        is_last: nothing of that follows.
    """

    had: list[Had]
    is_last: bool


class Word(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Something that one instance says to another, which need not be the next one; see `courier`.

    Attributes:
        to: the name of the instance that it is for.
        path: the names of those that it has been through, the one that says it first.
        number: of this word of that instance; no two have the same for a long time.
        subject: what it is about.
        body: what it says.
    """

    to: str
    path: list[str]
    number: int
    subject: str
    body: bytes


Control: TypeAlias = Hello | Refused | Beat | Begin | Resume | Knowledge | Ack | Word | Owed
Frame: TypeAlias = Control | Batch

_TYPES: Final[dict[int, type[Control]]] = {
    1: Hello,
    2: Refused,
    3: Beat,
    4: Begin,
    5: Resume,
    6: Knowledge,
    7: Ack,
    9: Word,
    10: Owed,
}
_NUMBERS: Final = {kind: number for number, kind in _TYPES.items()}
_BATCH_TYPE: Final = 8
_LATE_TYPE: Final = 11
_DECODERS: Final = {number: msgspec.msgpack.Decoder(kind) for number, kind in _TYPES.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(frame: Frame, *, compress: bool = False) -> bytes:
    """A frame as bytes.

    Args:
        frame: the frame.
        compress: whether it may be compressed; small ones are not.
    """
    if isinstance(frame, Batch):
        number = _LATE_TYPE if frame.is_late else _BATCH_TYPE
        payload = _pack_batch(frame)
    else:
        number, payload = _NUMBERS[type(frame)], _ENCODER.encode(frame)
    flags = 0
    if compress and len(payload) >= _LEAST_COMPRESSED:
        flags, payload = _COMPRESSED, zlib.compress(payload, 1)
    return _HEAD.pack(len(payload) + 2, number, flags) + payload


class FrameReader:
    """Cuts what comes over a link into frames.

    Args:
        most: bytes of a frame, whether compressed or not.

    Attributes:
        most: see above; raised when it is known who is there.
    """

    def __init__(self, most: int = MOST_BEFORE_HELLO) -> None:
        self.most = most
        self._buffer = bytearray()

    @property
    def held(self) -> int:
        """Bytes that have come and that no frame has been made of."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        self._buffer += data

    def next(self) -> Frame | None:
        """The next frame, None if it has not come as a whole.

        Raises:
            FrameError: it is none.
        """
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        length, number, flags = _HEAD.unpack_from(buffer)
        if not 2 <= length <= self.most:
            raise FrameError(f"a frame of {length} bytes; expected 2 to {self.most}")
        end = _HEAD.size - 2 + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[_HEAD.size : end])
        del buffer[:end]
        if flags & ~_COMPRESSED:
            raise FrameError(f"a frame with the flags {flags}; this program knows {_COMPRESSED}")
        if flags:
            payload = _inflate(payload, max(self.most, _MOST_INFLATED * MOST_BEFORE_HELLO))
        return _decode(number, payload)


def _inflate(payload: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, most)
    except zlib.error as problem:
        raise FrameError(f"a frame that cannot be decompressed: {problem}") from problem
    if not inflater.eof or inflater.unused_data:
        raise FrameError(f"a compressed frame that is cut off, or longer than {most} bytes")
    return data


def _decode(number: int, payload: bytes) -> Frame:
    if number in (_BATCH_TYPE, _LATE_TYPE):
        return _unpack_batch(payload, is_late=number == _LATE_TYPE)
    decoder = _DECODERS.get(number)
    if decoder is None:
        raise FrameError(f"a frame of type {number}, which this program does not know")
    try:
        return decoder.decode(payload)
    except MALFORMED as problem:
        if decoder.type is Hello and (version := _version(payload)) not in (None, VERSION):
            raise FrameError(
                f"version {version} of the replication protocol; this program speaks {VERSION}"
            ) from problem
        raise FrameError(f"a frame of type {number} that is none: {problem}") from problem


def _version(payload: bytes) -> int | None:
    """What a hello begins with whose form is not known, as that of another version may be."""
    try:
        fields = msgspec.msgpack.decode(payload)
    except MALFORMED:
        return None
    match fields:
        case [int(version), *_]:
            return version
    return None


def _pack_batch(batch: Batch) -> bytes:
    parts = [_BATCH.pack(batch.after, batch.upto, len(batch.runs))]
    for run in batch.runs:
        _pack_run(run, parts)
    return b"".join(parts)


def _pack_run(run: Columns, parts: list[bytes]) -> None:
    """Add a run: its head, topic and origin as in the log, seven columns, lengths, checksums, data.

    A column is a u8 that says its form, and a u64 that all values are, or that is the first of
    consecutive ones; or else a u64 for each of them.
    """
    topic, origin = _packed_topic(run.topic), _packed_origin(run.origin)
    parts += (_RUN.pack(len(run.data), len(topic), len(origin), run.extras_length), topic, origin)
    heads: list[int] = []
    for column in (
        run.txids,
        run.clients,
        run.sequences,
        run.source_txids,
        run.kinds,
        run.sow_keys,
        run.expirations,
    ):
        if isinstance(column, Same):
            heads += (_SAME, column.value)
        elif isinstance(column, range):
            heads += (_CONSECUTIVE, column[0])
        else:
            heads += (_EACH, 0)
            parts.append(_VALUES[len(heads) // 2].pack(*heads))
            parts.append(np.array(column, _U64).tobytes())
            heads.clear()
    parts.append(_VALUES[len(heads) // 2].pack(*heads))
    parts += (_packed_u32(list(map(len, run.data))), _packed_u32(run.checksums))
    parts += run.data


def _packed_u32(numbers: Sequence[int]) -> bytes:
    if len(numbers) == 1:
        return _ONE_U32.pack(numbers[0])
    return np.array(numbers, _U32).tobytes()


def _unpack_batch(payload: bytes, *, is_late: bool) -> Batch:
    reader = _Reader(payload)
    after, upto, count = reader.unpack(_BATCH)
    if upto < after:
        raise FrameError(f"a batch from {after} to {upto}")
    runs = [_unpack_run(reader) for _ in range(count)]
    reader.finish()
    return Batch(after, upto, runs, is_late)


def _unpack_run(reader: _Reader) -> Columns:
    count, topic_length, origin_length, extras_length = reader.unpack(_RUN)
    if not count:
        raise FrameError("a run without entries")
    read_topic = _topic_of if topic_length <= _LONGEST_KEPT else unpack_topic
    read_origin = _origin_of if origin_length <= _LONGEST_KEPT else unpack_origin
    topic = read_topic(reader.take(topic_length))
    origin = read_origin(reader.take(origin_length))
    if topic is None or origin is None:
        raise FrameError("a run whose topic or origin cannot be read")
    txids, clients, sequences, source_txids, kinds, sow_keys, expirations = reader.columns(count)
    lengths = reader.array(_U32, count)
    checksums = reader.array(_U32, count)
    if min(lengths) < extras_length:
        raise FrameError(f"a body of {min(lengths)} bytes with extras of {extras_length}")
    return Columns(
        topic,
        origin,
        txids,
        clients,
        sequences,
        source_txids,
        kinds,
        sow_keys,
        expirations,
        extras_length,
        checksums,
        reader.pieces(lengths),
    )


class _Reader:
    """Reads a payload from front to back, believing nothing."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0

    def take(self, size: int) -> bytes:
        start = self._advance(size)
        return self._payload[start : start + size]

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack_from(self._payload, self._advance(form.size))

    def array(self, kind: np.dtype[Any], count: int) -> list[int]:
        if count == 1:
            return list(self.unpack(_ONE_U32 if kind is _U32 else _ONE_U64))
        start = self._advance(kind.itemsize * count)
        numbers: list[int] = np.frombuffer(self._payload, kind, count, start).tolist()
        return numbers

    def columns(self, count: int) -> list[Column]:
        """The columns of a run, most of which are all alike if there is one entry."""
        form = _VALUES[_COLUMNS]
        if count == 1 and self._position + form.size <= len(self._payload):
            heads = form.unpack_from(self._payload, self._position)
            if not any(heads[::2]):  # all have the form `_SAME`
                self._position += form.size
                return [Same(value, 1) for value in heads[1::2]]
        return [self.column(count) for _ in range(_COLUMNS)]

    def column(self, count: int) -> Column:
        form, value = self.unpack(_VALUE)
        if form == _SAME:
            return Same(value, count)
        if form == _CONSECUTIVE and value + count - 1 <= _LARGEST:
            return range(value, value + count)
        if form == _EACH:
            return self.array(_U64, count)
        raise FrameError(f"a column of the form {form}")

    def pieces(self, lengths: Sequence[int]) -> list[bytes]:
        ends = list(accumulate(lengths, initial=self._position))
        self._advance(ends[-1] - ends[0])
        payload = self._payload
        return [payload[start:end] for start, end in pairwise(ends)]

    def finish(self) -> None:
        if self._position != len(self._payload):
            raise FrameError("a batch with something behind its end")

    def _advance(self, size: int) -> int:
        start = self._position
        if start + size > len(self._payload):
            raise FrameError("a batch that is cut off")
        self._position = start + size
        return start
