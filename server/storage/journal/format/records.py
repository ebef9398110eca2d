"""Reads records and bodies from a journal file, trusting nothing.

Every record and every body is checked before it is used. Damaged ones are left out and reported;
since records have one size, the entries after them can still be read. Nothing here raises on bad
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.entry import (
    NO_ORIGIN,
    NO_TOPIC,
    JournalEntry,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
)
from server.storage.journal.format.layout import (
    BODY_CRC,
    BODY_LENGTH,
    BODY_START,
    CHECKSUM,
    CRC,
    EXPIRATION,
    EXTRAS_LENGTH,
    FLAGS,
    KIND,
    LATE_ENTRY_FLAG,
    ORIGIN,
    PAGE,
    RECORD,
    RECORD_SIZE,
    TOPIC,
    TXID,
    EntryRow,
    crc32c,
    unpack_extras,
    unpack_origin,
    unpack_topic,
)
from server.storage.journal.storage import ByteSource

RECORD_TYPE: Final = np.dtype(
    [
        ("txid", "<u8"),
        ("timestamp", "<i8"),
        ("client", "<u8"),
        ("sequence", "<u8"),
        ("source_txid", "<u8"),
        ("source", "<u8"),
        ("sow_key", "<u8"),
        ("body_start", "<u8"),
        ("body_length", "<u4"),
        ("extras_length", "<u4"),
        ("topic", "<u4"),
        ("origin", "<u4"),
        ("expiration", "<u4"),
        ("body_crc", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("lag", "<u2"),
        ("crc", "<u4"),
    ]
)
"""The NumPy type of a record, for scans of many records at once."""

CHUNK: Final = 4096
"""Number of records that are read together."""

_MAX_SKIPPED_BYTES: Final = 16_384
"""Bytes between bodies that are cheaper to read and discard than to skip."""

_CRC_SIZE: Final = CHECKSUM.size
_HEAD_SIZE: Final = RECORD_SIZE - _CRC_SIZE


@dataclass(slots=True)
class FileDefinitions:
    """The topics and origins of one file by their numbers."""

    topics: dict[int, JournalTopic]
    origins: dict[int, JournalOrigin]

    def add_definition(
        self, kind: int, number_of_topic: int, number_of_origin: int, body: bytes
    ) -> None:
        """Add a definition; other kinds of entry, and invalid definitions, are ignored."""
        if kind == JournalEntryKind.DEFINE_TOPIC:
            topic = unpack_topic(body)
            if topic is not None:
                self.topics[number_of_topic] = topic
        elif kind == JournalEntryKind.DEFINE_ORIGIN:
            origin = unpack_origin(body)
            if origin is not None:
                self.origins[number_of_origin] = origin


def make_file_definitions() -> FileDefinitions:
    """Return the names at the beginning of a file: number 0 stands for none."""
    return FileDefinitions({0: NO_TOPIC}, {0: NO_ORIGIN})


def slots(size: int) -> int:
    """Return the number of records that fit into `size` bytes if bodies took no space."""
    return max((size - PAGE) // RECORD_SIZE, 0)


def records_check(block: bytes) -> bool:
    """Return whether all records of a block are intact.

    Each ends with its own checksum, and the CRC of such a string is the same whatever it holds. So
    any two blocks of as many intact records have the same CRC, and one CRC checks all of them.

    Args:
        block: whole records, back to back.
    """
    return bool(crc32c(block) == _checksum_of_intact(len(block) // RECORD_SIZE))


@cache
def _checksum_of_intact(count: int) -> int:
    head = bytes(_HEAD_SIZE)
    return int(crc32c((head + CHECKSUM.pack(crc32c(head))) * count))


def columns(source: ByteSource, start: int, stop: int) -> npt.NDArray[np.void]:
    """Read records `start` to `stop` as one array of RECORD_TYPE, unchecked; fewer at the end."""
    chunk = source.read(source.size - RECORD_SIZE * stop, RECORD_SIZE * (stop - start))
    size = len(chunk) // RECORD_SIZE * RECORD_SIZE
    return np.frombuffer(chunk[:size], RECORD_TYPE)[::-1]


def read_intact_records(
    source: ByteSource, first_txid: int, start: int, stop: int
) -> npt.NDArray[np.void] | None:
    """Read records `start` to `stop` of a file in order; None if any of them is damaged."""
    if stop > slots(source.size):
        return None
    chunk = source.read(source.size - RECORD_SIZE * stop, RECORD_SIZE * (stop - start))
    if len(chunk) != RECORD_SIZE * (stop - start) or not records_check(chunk):
        return None
    records = np.frombuffer(chunk, RECORD_TYPE)[::-1]
    expected = np.arange(first_txid + start, first_txid + stop, dtype=np.uint64)
    return records if np.array_equal(records["txid"], expected) else None


def read_rows(
    source: ByteSource, first_txid: int, start: int, stop: int
) -> Sequence[EntryRow | None]:
    """Read records `start` to `stop` of a file in order; None stands for a damaged one."""
    stop = min(stop, slots(source.size))
    chunk = source.read(source.size - RECORD_SIZE * stop, RECORD_SIZE * (stop - start))
    if len(chunk) != RECORD_SIZE * (stop - start):
        return [None] * max(stop - start, 0)
    rows = list(RECORD.iter_unpack(chunk))
    rows.reverse()
    txid = first_txid + start
    if records_check(chunk) and [row[TXID] for row in rows] == list(range(txid, txid + len(rows))):
        return rows
    ends = range(len(chunk), 0, -RECORD_SIZE)
    return [
        row
        if row[TXID] == number and row[CRC] == crc32c(chunk[end - RECORD_SIZE : end - _CRC_SIZE])
        else None
        for number, (row, end) in enumerate(zip(rows, ends, strict=True), txid)
    ]


def read_body(source: ByteSource, row: EntryRow) -> bytes | None:
    """Read body and extras of an entry; None if they are damaged."""
    length = row[BODY_LENGTH] + row[EXTRAS_LENGTH]
    if row[BODY_START] + length > source.size:
        return None
    body = source.read(row[BODY_START], length)
    return body if crc32c(body) == row[BODY_CRC] else None


def read_bodies(source: ByteSource, rows: Sequence[EntryRow]) -> Sequence[bytes | None]:
    """Read bodies with extras of entries in ascending order; None stands for a damaged one."""
    bodies = read_intact_bodies(source, rows)
    return [read_body(source, row) for row in rows] if bodies is None else bodies


def read_intact_bodies(source: ByteSource, rows: Sequence[EntryRow]) -> list[bytes] | None:
    """Read bodies with extras of entries in ascending order; None if any of them is damaged.

    They are read with one access to the file, unless too many bytes lie between them.
    """
    if not rows:
        return []
    start = rows[0][BODY_START]
    lengths = [row[BODY_LENGTH] + row[EXTRAS_LENGTH] for row in rows]
    end = rows[-1][BODY_START] + lengths[-1]
    if not start <= end <= source.size or end - start > 2 * sum(lengths) + _MAX_SKIPPED_BYTES:
        scattered = [read_body(source, row) for row in rows]
        intact = [body for body in scattered if body is not None]
        return intact if len(intact) == len(rows) else None
    block = source.read(start, end - start)
    offsets = [row[BODY_START] - start for row in rows]
    bodies = [
        block[offset : offset + length] for offset, length in zip(offsets, lengths, strict=True)
    ]
    return bodies if list(map(crc32c, bodies)) == [row[BODY_CRC] for row in rows] else None


def make_entry(row: EntryRow, data: bytes, definitions: FileDefinitions) -> JournalEntry | None:
    """Make the entry of a record and its body; None if its topic or origin is not defined."""
    topic = definitions.topics.get(row[TOPIC])
    origin = definitions.origins.get(row[ORIGIN])
    if topic is None or origin is None:
        return None
    return entry_of(row, data, topic, origin)


def entry_of(
    row: EntryRow, data: bytes, topic: JournalTopic, origin: JournalOrigin
) -> JournalEntry:
    """Make the entry of a record and its body, with a known topic and origin."""
    correlation_id = given_key = b""
    if row[EXTRAS_LENGTH]:
        correlation_id, given_key = unpack_extras(data[row[BODY_LENGTH] :])
        data = data[: row[BODY_LENGTH]]
    txid, timestamp, client, sequence, source_txid, source, sow_key = row[:BODY_START]
    return JournalEntry(
        txid,
        timestamp,
        client,
        sequence,
        row[KIND],
        topic,
        data,
        sow_key,
        row[EXPIRATION],
        correlation_id,
        given_key,
        source_txid,
        source,
        origin,
        row[FLAGS] & LATE_ENTRY_FLAG > 0,
    )


def read_names(source: ByteSource, first_txid: int, count: int) -> FileDefinitions:
    """Find all definitions of a file without reading its messages."""
    definitions = make_file_definitions()
    for start in range(0, count, CHUNK):
        kinds = columns(source, start, min(start + CHUNK, count))["kind"]
        for offset in np.flatnonzero(kinds >= JournalEntryKind.DEFINE_TOPIC):
            number = start + int(offset)
            for row in read_rows(source, first_txid, number, number + 1):
                body = None if row is None else read_body(source, row)
                if row is not None and body is not None:
                    definitions.add_definition(row[KIND], row[TOPIC], row[ORIGIN], body)
    return definitions


def scan_columns(source: ByteSource, count: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield the records of a file from the last chunk to the first: (first number, records)."""
    for start in range((max(count, 1) - 1) // CHUNK * CHUNK, -1, -CHUNK):
        yield start, columns(source, start, min(start + CHUNK, count))
