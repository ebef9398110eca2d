"""The encoding of a SOW file: that of docs/formats/sow.md, and nothing else.

All integers are little-endian. Checksums are CRC-32C over the bytes after them.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum
from mmap import mmap
from typing import Any, Final, NamedTuple

import google_crc32c

from server.storage.sow.records import Record

MAGIC: Final = b"AMPERSOW"
VERSION: Final = 1
FORMAT_NAME: Final = f"amperage-sow-v{VERSION}"

PAGE: Final = 4096
"""Size of the file header; slab sizes are multiples of it."""
COMMIT_SLOTS: Final = (1024, 2048)
"""Offsets in the file header of the two commit points; one is intact whatever happens."""
KEYS_SLOT: Final = 3072
"""Offset in the file header of the digest of how the records' SOW keys were made."""
LOG_SLOT: Final = 3136
"""Offset in the file header of the sequence up to which changes were in no transaction log."""
CHAINS_SLOT: Final = 3200
"""Offset in the file header of the sequence up to which chained ids are on stable storage."""
CHAINS_SIZE_SLOT: Final = 3264
"""Offset in the file header of the size that the file of chained ids then had, in bytes."""
REKEYED_SLOT: Final = 3328
"""Offset in the file header of the last sequence of changes under other SOW keys."""
FIRST_ENTRY: Final = 64
"""Offset of the first entry in a slab."""
ALIGNMENT: Final = 8
_EPOCH_BITS: Final = 20
"""Slabs that one session may begin, as a power of 2: some terabytes."""
MAX_TEXT: Final = 0xFFFF
"""Maximum bytes of a key, topic, correlation id or bookmark."""

_FILE: Final = struct.Struct("<8sIIQ")  # magic, version, 0, slab size
_NOTE: Final = struct.Struct("<Q")
_COMMIT: Final = struct.Struct("<QQQQQQ")
_SLAB: Final = struct.Struct("<4sIQQQQQ")  # magic, 0, then the fields of SlabHeader
_SLAB_MAGIC: Final = b"SLAB"
_CHECKSUM: Final = struct.Struct("<I")
ENTRY: Final = struct.Struct("<IIIBxHHHH2xQQQQ")
"""Checksum, length, epoch, kind, lengths of topic, key, correlation id and bookmark, sequence,
timestamp, expiration, number."""
ENTRY_HEAD: Final = struct.Struct("<III")
"""The first three fields of `ENTRY`."""
_EPOCH_AT: Final = ENTRY_HEAD.size - 4
ENTRY_TAIL: Final = struct.Struct("<IIBxHHHH2xQQQQ")
"""All fields of `ENTRY` but the checksum."""

_KIND_AT: Final = 12

crc32c = google_crc32c.value


class SlabEntryKind(IntEnum):
    """The kind of a log entry."""

    RECORD = 1
    DELETED = 2
    PAST = 3
    PAST_DELETED = 4
    DROPPED = 5


class CommitPoint(NamedTuple):
    """The part of the log that is known to be on stable storage.

    Attributes:
        number: counts commits; the highest valid one is current.
        epoch: the slab being written.
        position: the end of its entries.
        tail_epoch: the epoch of the oldest slab still in use.
        sequence: the highest sequence of any change.
        session: counts how often the file was opened for writing.
    """

    number: int = 0
    epoch: int = 0
    position: int = 0
    tail_epoch: int = 0
    sequence: int = 0
    session: int = 0

    @property
    def first_epoch(self) -> int:
        """The first epoch of this session; no other session will use it or the following ones.

        A crash may lose a slab's header and leave entries of that slab. If its epoch were used
        again, they could be taken for entries of the new slab.
        """
        return self.session << _EPOCH_BITS


class SlabHeader(NamedTuple):
    """The header of a slab.

    Attributes:
        epoch: the slab's place in the log; never used twice in a file.
        previous_epoch: the epoch of the slab before it in the log, 0 for none.
        previous_end: the end of the entries of that slab.
        tail_epoch: the epoch of the oldest slab in use when this one was begun.
        sequence: the highest sequence of any change before this slab.
    """

    epoch: int
    previous_epoch: int
    previous_end: int
    tail_epoch: int
    sequence: int


def padded(length: int) -> int:
    """Return the size of an entry with padding."""
    return (length + ALIGNMENT - 1) & -ALIGNMENT


def next_mark(slab: mmap, epoch: int, position: int) -> int:
    """Return where the next entry of a slab may begin, judging by an entry's epoch.

    Regular expressions search the map, because `mmap.find` of Python 3.11.0 to 3.11.3 reads one
    byte beyond it and ends the process (CPython issue 105235).

    Args:
        slab: the slab.
        epoch: the epoch of the slab.
        position: where to begin, aligned.

    Returns:
        The position, aligned, or -1 if there is none.
    """
    pattern = re.compile(re.escape((epoch & 0xFFFFFFFF).to_bytes(4, "little")))
    match = pattern.search(slab, position + _EPOCH_AT)
    while match is not None and (match.start() - _EPOCH_AT) % ALIGNMENT:
        match = pattern.search(slab, match.start() + 1)
    return -1 if match is None else match.start() - _EPOCH_AT


def _add_checksum(content: bytes) -> bytes:
    return _CHECKSUM.pack(crc32c(content)) + content


def _unpack_checked(data: bytes, layout: struct.Struct) -> tuple[Any, ...] | None:
    end = _CHECKSUM.size + layout.size
    if len(data) < end or _CHECKSUM.unpack_from(data)[0] != crc32c(data[_CHECKSUM.size : end]):
        return None
    return layout.unpack_from(data, _CHECKSUM.size)


def pack_file_header(slab_size: int) -> bytes:
    """Return the bytes of a file header."""
    return _add_checksum(_FILE.pack(MAGIC, VERSION, 0, slab_size))


def unpack_file_header(data: bytes) -> tuple[int, int] | None:
    """Read version and slab size; None if this is no header, or a damaged one."""
    fields = _unpack_checked(data, _FILE)
    if fields is None or fields[0] != MAGIC:
        return None
    return fields[1], fields[3]


def pack_commit(point: CommitPoint) -> bytes:
    """Return the bytes of a commit point for one of the two slots."""
    return _add_checksum(_COMMIT.pack(*point))


def unpack_commit_slot(data: bytes) -> CommitPoint:
    """Read a commit point; all zeros if there is none, or a damaged one."""
    fields = _unpack_checked(data, _COMMIT)
    return CommitPoint() if fields is None else CommitPoint(*fields)


def pack_note(number: int) -> bytes:
    """Return the bytes of a note for one of the other slots."""
    return _add_checksum(_NOTE.pack(number))


def unpack_note(data: bytes) -> int:
    """Read a note; 0 if there is none, or a damaged one."""
    fields = _unpack_checked(data, _NOTE)
    return 0 if fields is None else int(fields[0])


def pack_slab_header(header: SlabHeader) -> bytes:
    """Return the bytes of a slab header."""
    return _add_checksum(_SLAB.pack(_SLAB_MAGIC, 0, *header))


def unpack_slab_header(data: bytes) -> SlabHeader | None:
    """Read a slab header; return None if it is blank or damaged."""
    fields = _unpack_checked(data, _SLAB)
    if fields is None or fields[0] != _SLAB_MAGIC:
        return None
    return SlabHeader(*fields[2:])


def decode_record(data: bytes, topic: str) -> Record:
    """Return the record of an entry: the record itself, a past state, or a deleted record's key.

    Args:
        data: the whole entry, without padding, known to be intact.
        topic: the topic of records that name none.
    """
    _, _, _, _, topics, keys, correlations, bookmarks, sequence, timestamp, expires, _ = (
        ENTRY.unpack_from(data)
    )
    start = ENTRY.size
    if topics:
        topic = data[start : start + topics].decode("utf-8", "surrogateescape")
        start += topics
    key = data[start : start + keys].decode("utf-8", "surrogateescape")
    start += keys
    correlation_id = bookmark = ""
    if correlations:
        correlation_id = data[start : start + correlations].decode("utf-8", "surrogateescape")
        start += correlations
    if bookmarks:
        bookmark = data[start : start + bookmarks].decode("utf-8", "surrogateescape")
        start += bookmarks
    return Record(key, data[start:], topic, timestamp, expires, sequence, correlation_id, bookmark)


def entry_kind(data: bytes) -> int:
    """Return the kind of an entry."""
    return data[_KIND_AT]


def entry_number(data: bytes) -> int:
    """Return the number of the past state that an entry is about, 0 if it is about none."""
    number: int = ENTRY.unpack_from(data)[-1]
    return number
