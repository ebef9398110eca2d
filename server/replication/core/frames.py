"""The protocol between instances: frames.

    u32 length of the rest | u8 type | u8 flags | payload

The payload of control frames is a MessagePack array; that of a batch has columns (`_pack_batch`).
Flag 1: the payload is compressed with zlib. Sizes are bounded before anything is read. An unknown
type, flag or form of a column is refused, and ends the link: an instance must not misread a frame
that it does not understand. The format is described in docs/formats/replication.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import lt
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from server.replication.core.columns import (
    BatchColumns,
    ConstantColumn,
    EntryColumn,
    PackedBatch,
    ReplicationBatch,
    SharedProperties,
    compact_column,
)
from server.replication.core.dedup_window import PublisherWindow
from server.storage.journal import JournalOrigin, JournalTopic
from server.storage.journal.format.layout import (
    pack_origin,
    pack_topic,
    unpack_origin,
    unpack_topic,
)
from server.util.peer_struct import MSGPACK_ERRORS

VERSION: Final = 3
"""Protocol version; both ends must have the same."""

MAX_FRAME_SIZE_BEFORE_HELLO: Final = 1 << 20
"""Maximum bytes of a frame before the peer has sent its hello."""

_MAX_INFLATION: Final = 16
"""Factor by which a decompressed hello may exceed that: it describes thousands of topics."""

MAX_FRAME_SIZE: Final = 1 << 30
"""Maximum bytes of any other frame: the limit of a message in the log."""

_HEAD: Final = struct.Struct("<IBB")
_TLS_HANDSHAKE: Final = b"\x16\x03"
_BATCH: Final = struct.Struct("<QQII")  # after, up to, entries, names
_NAME: Final = struct.Struct("<II")  # lengths of topic and origin
_FORM: Final = struct.Struct("<B")
_VALUE: Final = struct.Struct("<Q")
_COLUMNS: Final = 11
_MAX_ENTRIES: Final = 65_536  # of a batch: a column of few bytes can claim very many entries
_COMPRESSED: Final = 1
_MIN_COMPRESSED: Final = 1024
_CONSTANT, _CONSECUTIVE = range(2)
_ITEM_TYPES: Final[dict[int, np.dtype[Any]]] = {
    2: np.dtype("<u1"),
    3: np.dtype("<u4"),
    4: np.dtype("<u8"),
}
_MAX_UINT64: Final = (1 << 64) - 1
_MAX_CACHED_LENGTH: Final = 1000
"""Maximum bytes of topics and origins that are cached in their decoded forms."""

_packed_topic: Final = lru_cache(maxsize=1024)(pack_topic)
_packed_origin: Final = lru_cache(maxsize=1024)(pack_origin)
_topic_of: Final = lru_cache(maxsize=1024)(unpack_topic)
_origin_of: Final = lru_cache(maxsize=1024)(unpack_origin)


class ReplicationFrameError(Exception):
    """The bytes received are no frame of this protocol; the text gives the reason."""


class ReplicationProtocolError(Exception):
    """The peer violates the protocol; the link is to be closed. The text gives the violation."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first frame on a link, both ways.

    Attributes:
        version: of the protocol.
        instance: the instance's Name.
        group: its Group.
        log: identity of its transaction log.
        began: the first txid that this log ever had.
        sends: whether it has a destination that the other instance may be.
        takes: whether it receives from the other instance.
        user: the user that it authenticates as.
        password: the user's credential.
        description: the configuration that both have to agree on, for the validation; encoded, and
            decoded when the peer is known.
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


class HelloRefusal(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The link is refused; no frame follows.

    Attributes:
        reason: for people; both ends log it.
    """

    reason: str


class HeartbeatFrame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A heartbeat: the other end is alive."""


class PositionRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A source requests the position of its destination.

    Attributes:
        stream: identifies the source's log and the part of it that is replicated: a cursor belongs
            to one stream. The identity of the log, a slash, and an identifier of the rest.
        first: the first txid in its log.
        last: the last txid in its log.
        client: the name of this direction of the link in the logs of both ends.
        ack_interval: the interval at which it requests acks, in microseconds.
    """

    stream: str
    first: int
    last: int
    client: str = ""
    ack_interval: int = 0


class Ack(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The destination's progress, in txids of the source's log.

    Attributes:
        stored: everything up to this is on stable storage, or was not for this destination.
        lanes: the lanes that are not settled up to `stored`, each with the txid up to which it is.
            Settled means on stable storage, too, at the instances that acknowledge to the
            destination. See ack_order.py.
    """

    stored: int
    lanes: list[tuple[int, int]] = []

    @property
    def settled_txid(self) -> int:
        """The txid up to which everything is settled."""
        return min((txid for _, txid in self.lanes), default=self.stored)


class SkippedRanges(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All entries that a source has skipped, because they could not be read; see `SkippedEntries`.

    Attributes:
        ranges: the first and the last txid of each range.
        lost: the identities and sequence numbers of the entries added since the last such frame, as
            far as they are known.
        unknown: the number of added entries without a known identity and number.
    """

    ranges: list[tuple[int, int]]
    lost: list[tuple[int, int]] = []
    unknown: int = 0


class PositionResponse(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position from which a source is to resume.

    Attributes:
        after: the txid behind which it continues; None if the destination does not know the stream:
            the messages that it has follow, in frames of `DedupState`.
        ack: the destination's progress up to there.
        owed: the entries that the source has skipped, from its last `SkippedRanges`.
    """

    after: int | None
    ack: Ack | None = None
    owed: list[tuple[int, int]] = []


class DedupState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The messages that a destination has, by publisher.

    Attributes:
        windows: see `PublisherWindow`.
        is_last: no more such frames follow.
    """

    windows: list[PublisherWindow]
    is_last: bool


class PeerMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message from one instance to another, which need not be a neighbour; see `router`.

    Attributes:
        to: the name of the recipient.
        path: the names of the instances that it has passed through, its sender first.
        number: of this message of that sender; not used again for a long time.
        subject: its subject.
        body: its content.
    """

    to: str
    path: list[str]
    number: int
    subject: str
    body: bytes


ControlFrame: TypeAlias = (
    Hello
    | HelloRefusal
    | HeartbeatFrame
    | PositionRequest
    | PositionResponse
    | DedupState
    | Ack
    | PeerMessage
    | SkippedRanges
)
InboundFrame: TypeAlias = ControlFrame | ReplicationBatch
"""A frame that is received."""

OutboundFrame: TypeAlias = ControlFrame | PackedBatch
"""A frame that is sent."""

_TYPES: Final[dict[int, type[ControlFrame]]] = {
    1: Hello,
    2: HelloRefusal,
    3: HeartbeatFrame,
    4: PositionRequest,
    5: PositionResponse,
    6: DedupState,
    7: Ack,
    9: PeerMessage,
    10: SkippedRanges,
}
_NUMBERS: Final = {kind: number for number, kind in _TYPES.items()}
_BATCH_TYPE: Final = 8
_LATE_TYPE: Final = 11
_DECODERS: Final = {number: msgspec.msgpack.Decoder(kind) for number, kind in _TYPES.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(frame: OutboundFrame, *, compress: bool = False) -> bytes:
    """Return a frame as bytes.

    Args:
        frame: the frame.
        compress: whether it may be compressed; small ones are not.
    """
    return b"".join(encode_pieces(frame, compress=compress))


def encode_pieces(frame: OutboundFrame, *, compress: bool = False) -> Sequence[bytes]:
    """Return a frame as pieces; large pieces are not copied."""
    if isinstance(frame, PackedBatch):
        number = _LATE_TYPE if frame.is_late else _BATCH_TYPE
        pieces = _pack_batch(frame)
    else:
        number, pieces = _NUMBERS[type(frame)], [_ENCODER.encode(frame)]
    flags, length = 0, sum(map(len, pieces))
    if compress and length >= _MIN_COMPRESSED:
        flags, pieces = _COMPRESSED, [zlib.compress(b"".join(pieces), 1)]
        length = len(pieces[0])
    return [_HEAD.pack(length + 2, number, flags), *pieces]


class ReplicationFrameReader:
    """Splits the bytes of a link into frames.

    Args:
        max_frame_size: bytes of a frame, whether compressed or not.

    Attributes:
        max_frame_size: see above; raised when the peer is known.
    """

    def __init__(self, max_frame_size: int = MAX_FRAME_SIZE_BEFORE_HELLO) -> None:
        self.max_frame_size = max_frame_size
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes received that are not part of a complete frame yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next_frame(self) -> InboundFrame | None:
        """Return the next frame, None if it is not complete.

        Raises:
            ReplicationFrameError: it is invalid.
        """
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        length, number, flags = _HEAD.unpack_from(buffer)
        if not 2 <= length <= self.max_frame_size:
            if buffer.startswith(_TLS_HANDSHAKE):
                raise ReplicationFrameError("a TLS handshake, but this transport has no TLS")
            raise ReplicationFrameError(
                f"a frame of {length} bytes; expected 2 to {self.max_frame_size}"
            )
        end = _HEAD.size - 2 + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[_HEAD.size : end])
        del buffer[:end]
        if flags & ~_COMPRESSED:
            raise ReplicationFrameError(f"a frame with the flags {flags}; supported: {_COMPRESSED}")
        if flags:
            payload = _inflate(
                payload, max(self.max_frame_size, _MAX_INFLATION * MAX_FRAME_SIZE_BEFORE_HELLO)
            )
        return _decode(number, payload)


def _inflate(payload: bytes, max_size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(payload, max_size)
    except zlib.error as problem:
        raise ReplicationFrameError(f"a frame that cannot be decompressed: {problem}") from problem
    if not inflater.eof or inflater.unused_data:
        raise ReplicationFrameError(
            f"a compressed frame that is truncated, or longer than {max_size} bytes"
        )
    return data


def _decode(number: int, payload: bytes) -> InboundFrame:
    if number in (_BATCH_TYPE, _LATE_TYPE):
        return _unpack_batch(payload, is_late=number == _LATE_TYPE)
    decoder = _DECODERS.get(number)
    if decoder is None:
        raise ReplicationFrameError(f"a frame of unknown type {number}")
    try:
        return decoder.decode(payload)
    except MSGPACK_ERRORS as problem:
        if decoder.type is Hello and (version := _version(payload)) not in (None, VERSION):
            raise ReplicationFrameError(
                f"version {version} of the replication protocol; expected {VERSION}"
            ) from problem
        raise ReplicationFrameError(f"an invalid frame of type {number}: {problem}") from problem


def _version(payload: bytes) -> int | None:
    """Return the version in a hello of an unknown form, as another version's may be."""
    try:
        fields = msgspec.msgpack.decode(payload)
    except MSGPACK_ERRORS:
        return None
    match fields:
        case [int(version), *_]:
            return version
    return None


def _pack_batch(batch: PackedBatch) -> list[bytes]:
    """Return a head, the names that the first column numbers, the columns, and the bodies.

    A column is a u8 for its form, then one u64: the value that all entries share, or the first of
    consecutive values. Otherwise, each value follows with as many bytes as the largest needs.
    """
    parts = [_BATCH.pack(batch.after, batch.upto, batch.entry_count, len(batch.names))]
    for topic, origin in batch.names:
        packed = _packed_topic(topic), _packed_origin(origin)
        parts += (_NAME.pack(*map(len, packed)), *packed)
    return [b"".join(parts) + batch.columns, batch.data]


def _unpack_batch(payload: bytes, *, is_late: bool) -> ReplicationBatch:
    reader = _PayloadReader(payload)
    after, upto, count, name_count = reader.unpack(_BATCH)
    if upto < after:
        raise ReplicationFrameError(f"a batch from {after} to {upto}")
    if count > _MAX_ENTRIES:
        raise ReplicationFrameError(
            f"a batch of {count} entries; expected no more than {_MAX_ENTRIES}"
        )
    entries: BatchColumns | None = None
    if count:
        topics_and_origins = [_unpack_name(reader) for _ in range(name_count)]
        columns = [reader.read_column(count) for _ in range(_COLUMNS)]
        entries = _columns_of(topics_and_origins, columns, reader.read_pieces(columns[-2]))
    reader.expect_end()
    return ReplicationBatch(after, upto, entries, is_late)


def _unpack_name(reader: _PayloadReader) -> tuple[JournalTopic, JournalOrigin]:
    topic_length, origin_length = reader.unpack(_NAME)
    read_topic = _topic_of if topic_length <= _MAX_CACHED_LENGTH else unpack_topic
    read_origin = _origin_of if origin_length <= _MAX_CACHED_LENGTH else unpack_origin
    topic = read_topic(reader.read_bytes(topic_length))
    origin = read_origin(reader.read_bytes(origin_length))
    if topic is None or origin is None:
        raise ReplicationFrameError("an invalid topic or origin")
    return topic, origin


def _columns_of(
    names_by_number: Sequence[tuple[JournalTopic, JournalOrigin]],
    columns: Sequence[EntryColumn],
    data: Sequence[bytes],
) -> BatchColumns:
    """Return the entries of a batch, each with its name: topic, origin, and length of extras."""
    numbers, txids, clients, sequences, source_txids = columns[:5]
    kinds, sow_keys, expirations, extras, lengths, checksums = columns[5:]
    if max(numbers) >= len(names_by_number):
        raise ReplicationFrameError(f"an entry of name {max(numbers)} of {len(names_by_number)}")
    if isinstance(extras, ConstantColumn):
        names = [
            SharedProperties(*topic_and_origin, extras.value)
            for topic_and_origin in names_by_number
        ]
    else:
        table: dict[tuple[int, int], int] = {}
        pairs = zip(numbers, extras, strict=True)
        numbers = compact_column([table.setdefault(pair, len(table)) for pair in pairs])
        names = [SharedProperties(*names_by_number[number], length) for number, length in table]
    if any(map(lt, lengths, extras)):
        length, extras_length = next(
            pair for pair in zip(lengths, extras, strict=True) if lt(*pair)
        )
        raise ReplicationFrameError(f"a body of {length} bytes with extras of {extras_length}")
    return BatchColumns(
        names,
        numbers,
        txids,
        clients,
        sequences,
        source_txids,
        kinds,
        sow_keys,
        expirations,
        checksums,
        data,
    )


class _PayloadReader:
    """Reads a payload from front to back; trusts no length or number in it."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0

    def read_bytes(self, size: int) -> bytes:
        start = self._advance(size)
        return self._payload[start : start + size]

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack_from(self._payload, self._advance(form.size))

    def read_column(self, count: int) -> EntryColumn:
        (form,) = self.unpack(_FORM)
        if form in _ITEM_TYPES:
            kind = _ITEM_TYPES[form]
            start = self._advance(kind.itemsize * count)
            numbers: list[int] = np.frombuffer(self._payload, kind, count, start).tolist()
            return numbers
        (value,) = self.unpack(_VALUE)
        if form == _CONSTANT:
            return ConstantColumn(value, count)
        if form == _CONSECUTIVE and value + count - 1 <= _MAX_UINT64:
            return range(value, value + count)
        raise ReplicationFrameError(f"a column of unknown form {form}")

    def read_pieces(self, lengths: Sequence[int]) -> list[bytes]:
        ends = list(accumulate(lengths, initial=self._position))
        self._advance(ends[-1] - ends[0])
        payload = self._payload
        return [payload[start:end] for start, end in pairwise(ends)]

    def expect_end(self) -> None:
        if self._position != len(self._payload):
            raise ReplicationFrameError("a batch with data after its end")

    def _advance(self, size: int) -> int:
        start = self._position
        if start + size > len(self._payload):
            raise ReplicationFrameError("a truncated batch")
        self._position = start + size
        return start
