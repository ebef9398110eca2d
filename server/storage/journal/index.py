"""Index files: summaries of sealed journal files, stored beside them.

They hold only data derived from the journal file: a reader that finds one missing or damaged scans
the journal file, and the server rebuilds it when it starts.

An index (`.index.gz`) has the topics and origins of its file, the range of sequences and the last
time of each publisher, and the offsets of all bodies as one array, in the form of the offsets of a
binary column in Apache Arrow. A topic index (`.topic.index`) lists, for each topic, the numbers of
its entries.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from server.storage.journal.format.entry import EVENTS, JournalEntryKind
from server.storage.journal.format.layout import (
    BODY_LENGTH,
    BODY_START,
    EXTRAS_LENGTH,
    KIND,
    PAGE,
    SEQUENCE,
    SOURCE,
    TOPIC,
    TXID,
    JournalFormatError,
    pack_origin,
    pack_topic,
    unpack_origin,
    unpack_topic,
    with_checksum,
)
from server.storage.journal.format.records import (
    CHUNK,
    FileDefinitions,
    make_file_definitions,
    read_intact_records,
    read_names,
    read_rows,
)
from server.storage.journal.format.sequence_summary import numbered
from server.storage.journal.format.side_files import check_side_file
from server.storage.journal.storage import ByteSource

INDEX_MAGIC: Final = b"AMPGJIDX"
TOPIC_INDEX_MAGIC: Final = b"AMPGTIDX"
VERSION: Final = 1

ANY_TOPIC: Final = 2**32 - 1
"""In a topic index, the topic of entries with an unknown one; no topic has that number."""

Int64Array = npt.NDArray[np.int64]

_HEADER: Final = struct.Struct("<8sHHIQQIIIIQ")
"""magic, version, flags, notes, file number, first txid, entries, topics, origins, clients,
offsets."""
_NAME: Final = struct.Struct("<II")  # number, length of the definition
_CLIENT: Final = np.dtype([("client", "<u8"), ("first", "<u8"), ("last", "<u8"), ("time", "<i8")])
_TOPIC_HEADER: Final = struct.Struct("<8sHHIII")  # magic, version, reserved, entries, topics, spare
_POSTING: Final = struct.Struct("<II")  # topic number, entries
_COMPRESSION: Final = 1


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """The part of a publisher's stream that is in one file.

    Attributes:
        first: lowest sequence.
        last: highest sequence.
        time: time of the last entry, in microseconds since the Unix epoch.
    """

    first: int
    last: int
    time: int


@dataclass(frozen=True, slots=True)
class JournalIndex:
    """The contents of an index file.

    Attributes:
        number: number of the journal file that it belongs to.
        first_txid: first txid of that file.
        count: number of entries in that file.
        definitions: its topics and origins.
        gap_record_count: number of its entries about missing numbers of publishers; see `missing`.
        clients: its publishers that number their messages, by client hash.
        offsets: the bounds of the bodies, in bytes from the beginning of the file. If no entry has
            extras, entry n lies between offsets n and n + 1; otherwise its body lies between 2n and
            2n + 1, and its extras go from there to 2n + 2.
    """

    number: int
    first_txid: int
    count: int
    gap_record_count: int
    definitions: FileDefinitions
    clients: Mapping[int, SequenceRange]
    offsets: Int64Array


def build_index(source: ByteSource, number: int, first_txid: int, count: int) -> JournalIndex:
    """Build the index of a file by scanning its records.

    This runs while the log is in use, and must not hold the interpreter's lock for long: records
    are processed one by one only where some are damaged.
    """
    clients: dict[int, SequenceRange] = {}
    starts = np.zeros(count, np.int64)
    middles = np.zeros(count, np.int64)
    end, has_extras, gap_record_count = PAGE, False, 0
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        records = read_intact_records(source, first_txid, start, stop)
        if records is not None:
            starts[start:stop] = records["body_start"]
            middles[start:stop] = starts[start:stop] + records["body_length"]
            end = int(middles[stop - 1]) + int(records["extras_length"][-1])
            has_extras = has_extras or bool(records["extras_length"].any())
            gap_record_count += int(np.count_nonzero(records["kind"] == JournalEntryKind.MISSING))
            for sequence_range in numbered(records):
                _extend_sequence_range(
                    clients,
                    sequence_range.client,
                    SequenceRange(sequence_range.first, sequence_range.last, sequence_range.time),
                )
            continue
        for index, row in enumerate(read_rows(source, first_txid, start, stop), start):
            if row is None:  # the bytes between its neighbours are taken for its body
                starts[index] = middles[index] = end
                continue
            starts[index] = row[BODY_START]
            middles[index] = row[BODY_START] + row[BODY_LENGTH]
            end = row[BODY_START] + row[BODY_LENGTH] + row[EXTRAS_LENGTH]
            has_extras = has_extras or row[EXTRAS_LENGTH] > 0
            gap_record_count += row[KIND] == JournalEntryKind.MISSING
            if row[KIND] in EVENTS and (row[SEQUENCE] != row[TXID] or row[SOURCE]):
                timestamp, client, sequence = row[1:4]
                _extend_sequence_range(
                    clients, client, SequenceRange(sequence, sequence, timestamp)
                )
    offsets = np.stack((starts, middles), axis=1).reshape(-1) if has_extras else starts
    definitions = read_names(source, first_txid, count)
    return JournalIndex(
        number, first_txid, count, gap_record_count, definitions, clients, np.append(offsets, end)
    )


def _extend_sequence_range(
    clients: dict[int, SequenceRange], client: int, added: SequenceRange
) -> None:
    known = clients.get(client)
    if known is not None:
        first, last = min(known.first, added.first), max(known.last, added.last)
        added = SequenceRange(first, last, max(known.time, added.time))
    clients[client] = added


def pack_index(index: JournalIndex) -> bytes:
    """Encode an index as the bytes of its file."""
    header = _HEADER.pack(
        INDEX_MAGIC,
        VERSION,
        0,
        index.gap_record_count,
        index.number,
        index.first_txid,
        index.count,
        len(index.definitions.topics),
        len(index.definitions.origins),
        len(index.clients),
        len(index.offsets),
    )
    parts = [header]
    parts += [
        _name(number, pack_topic(topic)) for number, topic in index.definitions.topics.items()
    ]
    origins = index.definitions.origins
    parts += [_name(number, pack_origin(origin)) for number, origin in origins.items()]
    rows = [(client, span.first, span.last, span.time) for client, span in index.clients.items()]
    parts += [np.array(rows, _CLIENT).tobytes(), index.offsets.astype("<i8").tobytes()]
    data = b"".join(parts)
    return gzip.compress(with_checksum(data), _COMPRESSION, mtime=0)


def _name(number: int, definition: bytes) -> bytes:
    return _NAME.pack(number, len(definition)) + definition


def unpack_index(compressed: bytes) -> JournalIndex:
    """Decode an index file.

    Raises:
        JournalFormatError: it is damaged, or of another kind.
    """
    try:
        data = gzip.decompress(compressed)
    except (OSError, EOFError, zlib.error) as problem:
        raise JournalFormatError(f"the index cannot be decompressed: {problem}") from problem
    check_side_file(data, INDEX_MAGIC, VERSION, _HEADER.size, "an index")
    _, _, _, gap_record_count, number, first_txid, count, topics, origins, clients, offsets = (
        _HEADER.unpack_from(data)
    )
    definitions = make_file_definitions()
    position = _HEADER.size
    for entry_index in range(topics + origins):
        name_number, length = _NAME.unpack_from(data, position)
        position += _NAME.size
        definition = data[position : position + length]
        position += length
        if entry_index < topics:
            topic = unpack_topic(definition)
            if topic is not None:
                definitions.topics[name_number] = topic
        else:
            origin = unpack_origin(definition)
            if origin is not None:
                definitions.origins[name_number] = origin
    rows = np.frombuffer(data, _CLIENT, clients, position)
    position += rows.nbytes
    sequence_ranges = {
        int(row[0]): SequenceRange(int(row[1]), int(row[2]), int(row[3])) for row in rows.tolist()
    }
    return JournalIndex(
        number,
        first_txid,
        count,
        gap_record_count,
        definitions,
        sequence_ranges,
        np.frombuffer(data, "<i8", offsets, position).astype(np.int64, copy=False),
    )


def build_topic_index(
    source: ByteSource, first_txid: int, count: int
) -> dict[int, npt.NDArray[np.uint32]]:
    """Return the numbers of the entries of each topic of a file, in order.

    The topic of an entry with a damaged record is unknown, and readers of every topic must find the
    damage: such entries are listed under `ANY_TOPIC`.
    """
    parts = [
        _topics(source, first_txid, start, min(start + CHUNK, count))
        for start in range(0, count, CHUNK)
    ]
    topics = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
    order = np.argsort(topics, kind="stable").astype(np.uint32)
    numbers, starts = np.unique(topics[order], return_index=True)
    entries_by_number = np.split(order, starts[1:])
    return {int(number): piece for number, piece in zip(numbers, entries_by_number, strict=False)}


def _topics(source: ByteSource, first_txid: int, start: int, stop: int) -> npt.NDArray[np.uint32]:
    records = read_intact_records(source, first_txid, start, stop)
    if records is not None:
        return records["topic"].astype(np.uint32)
    rows = read_rows(source, first_txid, start, stop)
    return np.array([ANY_TOPIC if row is None else row[TOPIC] for row in rows], np.uint32)


def pack_topic_index(count: int, topics: Mapping[int, npt.NDArray[np.uint32]]) -> bytes:
    """Encode a topic index as the bytes of its file."""
    parts = [_TOPIC_HEADER.pack(TOPIC_INDEX_MAGIC, VERSION, 0, count, len(topics), 0)]
    parts += [_POSTING.pack(number, len(entries)) for number, entries in topics.items()]
    parts += [entries.astype("<u4").tobytes() for entries in topics.values()]
    return with_checksum(b"".join(parts))


@dataclass(frozen=True, slots=True)
class JournalTopicIndex:
    """The contents of a topic index.

    Attributes:
        count: number of entries of the journal file that it belongs to.
        topics: the numbers of the entries of each topic, by the topic's number.
    """

    count: int
    topics: Mapping[int, npt.NDArray[np.uint32]]


def unpack_topic_index(data: bytes, count: int) -> Mapping[int, npt.NDArray[np.uint32]]:
    """Decode the topic index file of a known journal file.

    Args:
        data: its bytes.
        count: number of entries of the journal file.

    Raises:
        JournalFormatError: it is damaged, or belongs to another file.
    """
    postings = unpack_postings(data)
    if postings.count != count:
        raise JournalFormatError(
            f"the topic index is for {postings.count} entries, the file has {count}"
        )
    return postings.topics


def unpack_postings(data: bytes) -> JournalTopicIndex:
    """Decode a topic index file.

    Raises:
        JournalFormatError: it is damaged, or of another kind.
    """
    check_side_file(data, TOPIC_INDEX_MAGIC, VERSION, _TOPIC_HEADER.size, "an index")
    _, _, _, count, number_of_topics, _ = _TOPIC_HEADER.unpack_from(data)
    sizes = [
        _POSTING.unpack_from(data, _TOPIC_HEADER.size + which * _POSTING.size)
        for which in range(number_of_topics)
    ]
    position = _TOPIC_HEADER.size + number_of_topics * _POSTING.size
    topics: dict[int, npt.NDArray[np.uint32]] = {}
    for number, length in sizes:
        topics[number] = np.frombuffer(data, "<u4", length, position)
        position += 4 * length
    return JournalTopicIndex(count, topics)
