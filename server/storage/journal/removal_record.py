"""The last message of each topic that was removed with its journal.

A reader that resumes at a place before the beginning of the log has to know whether it has missed
messages of its topics. The log cannot tell, so a record (`.removed.ack`) with the last removed
message of each topic is stored before a file is removed. If it is missing, or journals were
removed by other means, the removed messages are not known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from server.storage.journal.errors import JournalError
from server.storage.journal.format.entry import MESSAGES, JournalTopic
from server.storage.journal.format.layout import (
    JournalFormatError,
    decode_text,
    encode_text,
    with_checksum,
)
from server.storage.journal.format.records import scan_columns
from server.storage.journal.format.side_files import SidecarFile, check_side_file

if TYPE_CHECKING:
    from server.storage.journal.files import JournalFile
    from server.storage.journal.storage import ByteSource

MAGIC: Final = b"AMPGRMVD"
VERSION: Final = 1

_HEADER: Final = struct.Struct("<8sHHIQQQ")  # magic, version, reserved (2), first, last, topics
_TOPIC: Final = struct.Struct("<HHQq")  # lengths of two texts, txid, time
_MAX_TOPICS: Final = 100_000
_MESSAGES: Final = sorted(MESSAGES)


class LastRemoval(NamedTuple):
    """The last message that has been removed.

    Attributes:
        txid: its txid; if the messages are not known, the one before the first remaining entry.
        timestamp: when it was recorded, in microseconds since the Unix epoch; 0 if not known.
    """

    txid: int
    timestamp: int


class RemovalRecord(NamedTuple):
    """The stored knowledge of removed entries.

    Attributes:
        first_txid: txid of the first entry that the record covers.
        last_txid: txid of the last entry that the record covers.
        topics: the last message of each topic.
    """

    first_txid: int
    last_txid: int
    topics: Mapping[JournalTopic, LastRemoval]


class RemovalTracker:
    """Maintains the record of removals, on the thread that removes files.

    Args:
        file: the file that it is stored in.
        first_txid: txid of the first entry in the log.

    Attributes:
        is_complete: the record reaches up to that entry.
    """

    def __init__(self, file: SidecarFile, first_txid: int) -> None:
        self._file = file
        empty = RemovalRecord(first_txid, first_txid - 1, {})
        try:
            data = file.read()
            record = empty if data is None else unpack_note(data)
        except (OSError, JournalFormatError):
            record = empty
        # A kill between the record and the removal leaves a record that reaches further.
        self.is_complete: Final = record is not empty and record.last_txid >= first_txid - 1
        self._record = record if record.last_txid == first_txid - 1 else empty

    def reset(self) -> None:
        """Store that nothing is known of the entries before the first one."""
        with suppress(OSError, JournalError):  # the next start tries again
            self._file.store(pack_note(self._record))

    def record_removal(self, file: JournalFile, source: ByteSource) -> None:
        """Add the last messages of a full file that is to be removed, and store the record.

        Raises:
            OSError: the file cannot be read.
            JournalError: the record cannot be stored.
        """
        record, end = self._record, file.end_txid or file.first_txid
        first_txid, topics = record.first_txid, {**record.topics, **_last_messages(file, source)}
        if len(topics) > _MAX_TOPICS:
            first_txid, topics = end, {}
        record = RemovalRecord(first_txid, end - 1, topics)
        self._file.store(pack_note(record))
        self._record = record

    def find_last_removal(
        self, topic_predicate: Callable[[JournalTopic], bool], after: int, first_txid: int
    ) -> LastRemoval | None:
        """Return the last removed message after an entry; None if a reader has missed nothing.

        Args:
            topic_predicate: predicate: true for topics that matter.
            after: the txid of the entry.
            first_txid: txid of the first entry in the log.
        """
        if after >= first_txid - 1:
            return None
        record = self._record
        if after < record.first_txid - 1 or record.last_txid < first_txid - 1:
            return LastRemoval(first_txid - 1, 0)
        removals = (
            removal
            for topic, removal in record.topics.items()
            if removal.txid > after and topic_predicate(topic)
        )
        return max(removals, default=None)


def _last_messages(file: JournalFile, source: ByteSource) -> dict[JournalTopic, LastRemoval]:
    """Find the last message of each topic in a full file."""
    topics = file.read_definitions(source).topics
    last_removals: dict[JournalTopic, LastRemoval] = {}
    for _, block in scan_columns(source, file.seal.count if file.seal else 0):
        messages = block[np.isin(block["kind"], _MESSAGES)][::-1]
        numbers, indexes = np.unique(messages["topic"], return_index=True)
        for number, index in zip(numbers.tolist(), indexes.tolist(), strict=True):
            if number in topics:
                last = messages[index]
                last_removals.setdefault(
                    topics[number], LastRemoval(int(last["txid"]), int(last["timestamp"]))
                )
        if len(last_removals) >= len(topics) - 1:  # one number stands for no topic
            break
    return last_removals


def pack_note(record: RemovalRecord) -> bytes:
    """Encode a record as the bytes of its file."""
    parts = [
        _HEADER.pack(MAGIC, VERSION, 0, 0, record.first_txid, record.last_txid, len(record.topics))
    ]
    for topic, removal in record.topics.items():
        texts = encode_text(topic.message_type), encode_text(topic.name)
        parts += (_TOPIC.pack(*map(len, texts), *removal), *texts)
    return with_checksum(b"".join(parts))


def unpack_note(data: bytes) -> RemovalRecord:
    """Decode a stored record.

    Raises:
        JournalFormatError: it is damaged, or of another kind.
    """
    check_side_file(data, MAGIC, VERSION, _HEADER.size, "a removed.ack file")
    _, _, _, _, first, last, count = _HEADER.unpack_from(data)
    topics: dict[JournalTopic, LastRemoval] = {}
    position = _HEADER.size
    for _ in range(count):
        type_length, name_length, txid, timestamp = _TOPIC.unpack_from(data, position)
        position += _TOPIC.size
        message_type = decode_text(data[position : position + type_length])
        position += type_length
        topics[JournalTopic(message_type, decode_text(data[position : position + name_length]))] = (
            LastRemoval(txid, timestamp)
        )
        position += name_length
    return RemovalRecord(first, last, topics)
