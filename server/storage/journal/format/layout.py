"""Bytes of a journal file: header page, records, extras and definitions.

    0           header page: identifies the file; at SEAL_OFFSET, once the file is full, the seal
    4096        bodies, back to back, growing upwards
                unused space
    size        records of RECORD_SIZE bytes, growing downwards: record n ends at size - n * 96

Records have one size, so that the record of any entry is found by arithmetic and a damaged one
hides no other. Bodies are contiguous, so that a column of them needs nothing but offsets. The essay
is docs/formats/journal.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import google_crc32c

from server.storage.journal.format.entry import JournalOrigin, JournalTopic
from server.util.file_lock import version_mismatch

MAGIC: Final = b"AMPGJRNL"
VERSION: Final = 1
PAGE: Final = 4096
"""Size of the header page in bytes; bodies begin here."""

RECORD_SIZE: Final = 96
RECORD: Final = struct.Struct("<QqQQQQQQIIIIIIBBHI")
"""txid, timestamp, client, sequence, source txid, source, SOW key, body start, body length,
extras length, topic, origin, expiration, CRC of body and extras, kind, flags, lag, CRC of these."""

HEAD: Final = struct.Struct("<QqQQQQQQIIIIIIBBH")
"""A record without its own checksum."""

CHECKSUM: Final = struct.Struct("<I")

# Where the fields are in an unpacked record.
TXID, TIMESTAMP, CLIENT, SEQUENCE, SOURCE_TXID, SOURCE, SOW_KEY, BODY_START = range(8)
BODY_LENGTH, EXTRAS_LENGTH, TOPIC, ORIGIN, EXPIRATION, BODY_CRC, KIND, FLAGS, LAG, CRC = range(
    8, 18
)

LATE_ENTRY_FLAG: Final = 1
"""A flag: a later message of the publisher was in the log when this one came from another
instance."""

_LAG_OFFSET: Final = HEAD.size - 2
LAG_UNKNOWN: Final = 0xFFFF
"""The lag of a record that was made at least this many entries ahead of stable storage."""

MAX_UINT32: Final = 0xFFFFFFFF

EntryRow = tuple[int, ...]
"""An unpacked record."""

_HEADER: Final = struct.Struct("<8sHHIQQQqH")  # magic … instance name's length; the name follows
_SEAL_OFFSET: Final = 2048
_SEAL: Final = struct.Struct("<4sIQQQqq")
_SEAL_MAGIC: Final = b"SEAL"
_MAX_NAME_LENGTH: Final = 1024
_MARK: Final = struct.Struct("<8sQQ")
MARK_MAGIC: Final = b"AMPGMARK"
MARK_SIZE: Final = _MARK.size + CHECKSUM.size
"""Bytes of a mark; it is in the place of the next record."""

_EXTRAS: Final = struct.Struct("<HH")
EXTRAS_HEAD: Final = _EXTRAS.size
"""Bytes before the texts of extras: the length of the correlation id, and that of the SOW key."""
_LENGTH: Final = struct.Struct("<H")
_MAX_PART_LENGTH: Final = 0xFFFF
_MAX_DEFINITION_LENGTH: Final = 2 * (_LENGTH.size + _MAX_PART_LENGTH)
MAX_RUNS_SIZE: Final = 16 << 10
"""Limit in bytes of the body of an entry about runs."""

crc32c = google_crc32c.value


class JournalFormatError(Exception):
    """A file is damaged or of another format; the text gives the reason."""


class JournalVersionError(JournalFormatError):
    """A file is intact, and of a version that this program does not know."""


@dataclass(frozen=True, slots=True)
class JournalFileHeader:
    """The header of a journal file.

    Attributes:
        number: the file's place among those of its instance.
        size: size of the file in bytes; it never changes.
        first_txid: txid of its first entry.
        created: when it was taken into use, in microseconds since the Unix epoch.
        instance: name of the instance that writes it.
    """

    number: int
    size: int
    first_txid: int
    created: int
    instance: str


@dataclass(frozen=True, slots=True)
class FileSeal:
    """The summary of a full file.

    Attributes:
        count: number of entries in it.
        bodies_end: offset in bytes of the first byte after the bodies.
        extras_count: number of entries that have extras after their body.
        first_timestamp: time of its first entry, in microseconds since the Unix epoch.
        last_timestamp: time of its last entry.
    """

    count: int
    bodies_end: int
    extras_count: int
    first_timestamp: int
    last_timestamp: int


@dataclass(frozen=True, slots=True)
class CommitMark:
    """A durability watermark, written after the last record of a file.

    Attributes:
        next_txid: txid after the last durable entry; the mark is in the place of its record.
        bodies_end: offset in bytes of the first byte after the bodies of the durable entries.
    """

    next_txid: int
    bodies_end: int


def capacity(size: int) -> int:
    """Return the longest body with its extras, in bytes, that fits into a file of `size` bytes."""
    reserved = 4 * RECORD_SIZE + 2 * _MAX_DEFINITION_LENGTH + MAX_RUNS_SIZE
    return min(size - PAGE - reserved, MAX_UINT32)


def pack_header(header: JournalFileHeader) -> bytes:
    """Encode the first half of a header page."""
    name = encode_text(header.instance)
    if len(name) > _MAX_NAME_LENGTH:
        raise JournalFormatError(f"the instance name is longer than {_MAX_NAME_LENGTH} bytes")
    fields = _HEADER.pack(
        MAGIC,
        VERSION,
        RECORD_SIZE,
        PAGE,
        header.size,
        header.number,
        header.first_txid,
        header.created,
        len(name),
    )
    return with_checksum((fields + name).ljust(_SEAL_OFFSET - CHECKSUM.size, b"\0"))


def unpack_header(page: bytes) -> JournalFileHeader | None:
    """Decode a header page.

    Returns:
        The header, or None if the file has not been taken into use yet: its page is blank.

    Raises:
        JournalFormatError: the page is neither a header nor blank.
    """
    if not any(page[:_SEAL_OFFSET]):
        return None
    magic, version, record_size, page_size, size, number, first_txid, created, length = (
        _HEADER.unpack_from(page.ljust(_HEADER.size, b"\0"))
    )
    if magic != MAGIC:
        raise JournalFormatError("it does not begin like a journal file")
    is_intact = has_checksum(page[:_SEAL_OFFSET])
    if version != VERSION and is_intact:
        raise JournalVersionError(version_mismatch(version, VERSION))
    if not is_intact or record_size != RECORD_SIZE or page_size != PAGE:
        raise JournalFormatError("its header is damaged")
    name = page[_HEADER.size : _HEADER.size + length]
    return JournalFileHeader(number, size, first_txid, created, decode_text(name))


def pack_seal(seal: FileSeal) -> tuple[int, bytes]:
    """Encode a seal; return its offset in the file and its bytes."""
    fields = _SEAL.pack(
        _SEAL_MAGIC,
        0,
        seal.count,
        seal.bodies_end,
        seal.extras_count,
        seal.first_timestamp,
        seal.last_timestamp,
    )
    return _SEAL_OFFSET, with_checksum(fields)


def unpack_seal(page: bytes) -> FileSeal | None:
    """Decode the seal on a header page; None if there is no intact one."""
    block = page[_SEAL_OFFSET : _SEAL_OFFSET + _SEAL.size + CHECKSUM.size]
    if len(block) < _SEAL.size + CHECKSUM.size or not has_checksum(block):
        return None
    magic, _, count, bodies_end, extras_count, first, last = _SEAL.unpack_from(block)
    return FileSeal(count, bodies_end, extras_count, first, last) if magic == _SEAL_MAGIC else None


def pack_mark(watermark: CommitMark) -> bytes:
    """Encode a mark, for the beginning of the place of a record."""
    return with_checksum(_MARK.pack(MARK_MAGIC, watermark.next_txid, watermark.bodies_end))


def unpack_mark(block: bytes) -> CommitMark | None:
    """Decode the mark at the beginning of a block; None if there is no intact one."""
    if not block.startswith(MARK_MAGIC) or not has_checksum(block[:MARK_SIZE]):
        return None
    _, next_txid, bodies_end = _MARK.unpack_from(block)
    return CommitMark(next_txid, bodies_end)


def with_lag(record: bytes, lag: int) -> bytes:
    """Return a record with its lag: the distance in entries to the last durable one."""
    return with_checksum(record[:_LAG_OFFSET] + _LENGTH.pack(min(lag, LAG_UNKNOWN)))


def pack_extras(correlation_id: bytes, given_key: bytes) -> bytes:
    """Encode the extras of an entry, which follow its body.

    Raises:
        JournalFormatError: one of them is too long.
    """
    if max(len(correlation_id), len(given_key)) > _MAX_PART_LENGTH:
        raise JournalFormatError(
            f"a correlation id or SOW key is longer than {_MAX_PART_LENGTH} bytes"
        )
    return _EXTRAS.pack(len(correlation_id), len(given_key)) + correlation_id + given_key


def unpack_extras(extras: bytes) -> tuple[bytes, bytes]:
    """Decode correlation id and SOW key, both empty if there are no extras or they are invalid."""
    if len(extras) < _EXTRAS.size:
        return b"", b""
    correlation_length, key_length = _EXTRAS.unpack_from(extras)
    key_start = _EXTRAS.size + correlation_length
    if key_start + key_length != len(extras):
        return b"", b""
    return extras[_EXTRAS.size : key_start], extras[key_start:]


def split_extras(data: bytes, length: int) -> tuple[bytes, bytes, bytes]:
    """Split a body with `length` bytes of extras into body, correlation id and SOW key."""
    if not length:
        return data, b"", b""
    return data[:-length], *unpack_extras(data[-length:])


def pack_topic(topic: JournalTopic) -> bytes:
    """Encode the body of a topic's definition.

    Raises:
        JournalFormatError: a name is too long.
    """
    return _pair(topic.message_type, topic.name)


def unpack_topic(body: bytes) -> JournalTopic | None:
    """Decode the topic of a definition, None if its body is invalid."""
    pair = _unpair(body)
    return None if pair is None else JournalTopic(*pair)


def pack_origin(origin: JournalOrigin) -> bytes:
    """Encode the body of an origin's definition.

    Raises:
        JournalFormatError: a name is too long.
    """
    return _pair(origin.auth_id, origin.path)


def unpack_origin(body: bytes) -> JournalOrigin | None:
    """Decode the origin of a definition, None if its body is invalid."""
    pair = _unpair(body)
    return None if pair is None else JournalOrigin(*pair)


def encode_text(text: str) -> bytes:
    """Encode a text for storage; invalid UTF-8 from a client keeps its bytes."""
    return text.encode("utf-8", "surrogateescape")


def decode_text(data: bytes) -> str:
    """Decode a stored text."""
    return data.decode("utf-8", "surrogateescape")


def _pair(first: str, second: str) -> bytes:
    first_bytes, second_bytes = encode_text(first), encode_text(second)
    if len(first_bytes) > _MAX_PART_LENGTH or len(second_bytes) > _MAX_PART_LENGTH:
        raise JournalFormatError(
            f"a name is longer than {_MAX_PART_LENGTH} bytes: {first or second!r:.80}"
        )
    return (
        _LENGTH.pack(len(first_bytes))
        + first_bytes
        + _LENGTH.pack(len(second_bytes))
        + second_bytes
    )


def _unpair(body: bytes) -> tuple[str, str] | None:
    parts: list[str] = []
    position = 0
    for _ in range(2):
        if position + _LENGTH.size > len(body):
            return None
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        parts.append(decode_text(body[position : position + length]))
        position += length
    return (parts[0], parts[1]) if position == len(body) else None


def with_checksum(data: bytes) -> bytes:
    """Return bytes with their checksum appended."""
    return data + CHECKSUM.pack(crc32c(data))


def has_checksum(block: bytes) -> bool:
    """Return whether a block ends with the checksum of the bytes before it."""
    if len(block) < CHECKSUM.size:
        return False
    return bool(block[-CHECKSUM.size :] == CHECKSUM.pack(crc32c(block[: -CHECKSUM.size])))
