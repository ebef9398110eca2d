"""Reading records and bodies out of a journal file, believing nothing.

Every record and every body is checked before it is used. What does not check is left out and
named; since records have one size, what follows it can still be read. Nothing here raises on bad
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from server.journal.entry import NO_ORIGIN, NO_TOPIC, Entry, Kind, Origin, Topic
from server.journal.layout import (
    BODY_CRC,
    BODY_LENGTH,
    BODY_START,
    CRC,
    EXPIRATION,
    EXTRAS_LENGTH,
    KIND,
    ORIGIN,
    PAGE,
    RECORD,
    RECORD_SIZE,
    TOPIC,
    TXID,
    Row,
    crc32c,
    unpack_extras,
    unpack_origin,
    unpack_topic,
)
from server.journal.storage import Source

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
"""A record as NumPy sees it: what is looked for in many records at once."""

CHUNK: Final = 4096
"""Records looked at together."""

_SMALL_DETOUR: Final = 16_384
"""Bytes that are better read and thrown away than stepped over."""

_HEAD_SIZE: Final = RECORD_SIZE - 4


@dataclass(slots=True)
class Names:
    """What the numbers of topics and origins stand for in one file."""

    topics: dict[int, Topic]
    origins: dict[int, Origin]

    def learn(self, kind: int, number_of_topic: int, number_of_origin: int, body: bytes) -> None:
        """Take note of a definition; other kinds of entry, and nonsense, are passed over."""
        if kind == Kind.DEFINE_TOPIC:
            topic = unpack_topic(body)
            if topic is not None:
                self.topics[number_of_topic] = topic
        elif kind == Kind.DEFINE_ORIGIN:
            origin = unpack_origin(body)
            if origin is not None:
                self.origins[number_of_origin] = origin


def no_names() -> Names:
    """The names at the beginning of a file: number 0 stands for none."""
    return Names({0: NO_TOPIC}, {0: NO_ORIGIN})


def slots(size: int) -> int:
    """How many records a file of a size could hold if bodies took no space."""
    return max((size - PAGE) // RECORD_SIZE, 0)


def columns(source: Source, start: int, stop: int) -> npt.NDArray[np.void]:
    """Records `start` to `stop` as one array of RECORD_TYPE, unchecked; fewer at the end."""
    chunk = source.read(source.size - RECORD_SIZE * stop, RECORD_SIZE * (stop - start))
    whole = len(chunk) // RECORD_SIZE * RECORD_SIZE
    return np.frombuffer(chunk[:whole], RECORD_TYPE)[::-1]


def read_rows(source: Source, first_txid: int, start: int, stop: int) -> list[Row | None]:
    """Records `start` to `stop` of a file in order; None stands for one that is damaged."""
    stop = min(stop, slots(source.size))
    chunk = source.read(source.size - RECORD_SIZE * stop, RECORD_SIZE * (stop - start))
    if len(chunk) != RECORD_SIZE * (stop - start):
        return [None] * max(stop - start, 0)
    rows: list[Row | None] = list(RECORD.iter_unpack(chunk))
    rows.reverse()
    end = len(chunk)
    txid = first_txid + start
    for index, row in enumerate(rows):
        begin = end - RECORD_SIZE
        if (
            row is None
            or row[CRC] != crc32c(chunk[begin : begin + _HEAD_SIZE])
            or row[TXID] != txid
        ):
            rows[index] = None
        end = begin
        txid += 1
    return rows


def read_body(source: Source, row: Row) -> bytes | None:
    """Body and extras of an entry; None if they are damaged."""
    length = row[BODY_LENGTH] + row[EXTRAS_LENGTH]
    if row[BODY_START] + length > source.size:
        return None
    body = source.read(row[BODY_START], length)
    return body if crc32c(body) == row[BODY_CRC] else None


def read_bodies(source: Source, rows: list[Row]) -> list[bytes | None]:
    """Bodies with extras of entries in ascending order.

    They are read with one access to the file, unless what lies between them is too much.
    """
    if not rows:
        return []
    start = rows[0][BODY_START]
    end = rows[-1][BODY_START] + rows[-1][BODY_LENGTH] + rows[-1][EXTRAS_LENGTH]
    wanted = sum(row[BODY_LENGTH] + row[EXTRAS_LENGTH] for row in rows)
    if not start <= end <= source.size or end - start > 2 * wanted + _SMALL_DETOUR:
        return [read_body(source, row) for row in rows]
    block = source.read(start, end - start)
    bodies: list[bytes | None] = []
    for row in rows:
        begin = row[BODY_START] - start
        body = block[begin : begin + row[BODY_LENGTH] + row[EXTRAS_LENGTH]]
        bodies.append(body if crc32c(body) == row[BODY_CRC] else None)
    return bodies


def make_entry(row: Row, data: bytes, names: Names) -> Entry | None:
    """The entry of a record and its body; None if what its numbers stand for is not known."""
    topic = names.topics.get(row[TOPIC])
    origin = names.origins.get(row[ORIGIN])
    if topic is None or origin is None:
        return None
    correlation_id = given_key = b""
    if row[EXTRAS_LENGTH]:
        correlation_id, given_key = unpack_extras(data[row[BODY_LENGTH] :])
        data = data[: row[BODY_LENGTH]]
    txid, timestamp, client, sequence, source_txid, source, sow_key = row[:BODY_START]
    return Entry(
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
    )


def read_names(source: Source, first_txid: int, count: int) -> Names:
    """Find all definitions of a file without reading its messages."""
    names = no_names()
    for start in range(0, count, CHUNK):
        kinds = columns(source, start, min(start + CHUNK, count))["kind"]
        for offset in np.flatnonzero(kinds >= Kind.DEFINE_TOPIC):
            number = start + int(offset)
            for row in read_rows(source, first_txid, number, number + 1):
                body = None if row is None else read_body(source, row)
                if row is not None and body is not None:
                    names.learn(row[KIND], row[TOPIC], row[ORIGIN], body)
    return names


def scan_columns(source: Source, count: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """The records of a file from the last chunk to the first: (number of its first, records)."""
    for start in range((max(count, 1) - 1) // CHUNK * CHUNK, -1, -CHUNK):
        yield start, columns(source, start, min(start + CHUNK, count))
