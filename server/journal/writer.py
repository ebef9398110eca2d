"""The engine's side of writing: numbering entries and turning them into bytes.

Nothing here touches a file, but for taking the next one when one is full. What is appended is on
stable storage when the committer says so, and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, TypeVar

from server.journal.batches import LARGEST_BATCH, Batch, LiveFile, Pipe
from server.journal.clients import Sequences, server_made_identity
from server.journal.entry import NO_ORIGIN, NO_TOPIC, Kind, Origin, Topic
from server.journal.errors import EntryTooLarge, JournalUnavailable
from server.journal.extent import MOST_IN_COMMIT
from server.journal.files import FileTable, JournalFile
from server.journal.layout import (
    CHECKSUM,
    HEAD,
    LAG_UNKNOWN,
    PAGE,
    RECORD_SIZE,
    FileHeader,
    FormatError,
    Seal,
    capacity,
    crc32c,
    pack_extras,
    pack_header,
    pack_origin,
    pack_topic,
)

_pack_head: Final = HEAD.pack
_pack_checksum: Final = CHECKSUM.pack
_T = TypeVar("_T")
_PATIENCE: Final = 30.0  # seconds for which a full pipe may hold up the engine


class TopicHandle:
    """A topic to append to. It knows its number in the current file.

    Args:
        topic: the topic.
    """

    __slots__ = ("definition", "file", "number", "topic")

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.definition = _definition(pack_topic, topic)
        self.file = -1
        self.number = 0


class OriginHandle:
    """An origin to append with. It knows its number in the current file.

    Args:
        origin: the origin.
    """

    __slots__ = ("definition", "file", "number", "origin")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.definition = _definition(pack_origin, origin)
        self.file = -1
        self.number = 0


def _definition(pack: Callable[[_T], bytes], thing: _T) -> bytes:
    try:
        return pack(thing)
    except FormatError as problem:
        raise EntryTooLarge(str(problem)) from problem


class Position:
    """Where the log goes on.

    Attributes:
        next_txid: of the next entry.
        count: entries in the current file.
        bodies_end: offset in bytes behind the last body in it.
        with_extras: entries in it that have extras.
        first_timestamp: of its first entry, 0 if it has none.
        last_timestamp: of the last entry of the log.
    """

    __slots__ = (
        "bodies_end",
        "count",
        "first_timestamp",
        "last_timestamp",
        "next_txid",
        "with_extras",
    )

    def __init__(self, next_txid: int) -> None:
        self.next_txid = next_txid
        self.count = 0
        self.bodies_end = PAGE
        self.with_extras = 0
        self.first_timestamp = 0
        self.last_timestamp = 0


class Writer:
    """Appends entries.

    Args:
        instance: name of the instance.
        file: the file to write to.
        header: of that file, if it has none yet; else empty.
        position: where its contents end.
        sequences: the table of publishers, kept up to date here.
        table: all files; a new one is added when it is taken into use.
        next_file: gives an empty file, or raises JournalUnavailable.
        clock: microseconds since the Unix epoch.
        relieve: lets what waits be written, or waits until it has been.

    Attributes:
        durable: the last entry on stable storage; the committer sets it.
        refusal: why nothing can be recorded; None when all is well. The committer sets it.
        pipe: what waits for a commit.
    """

    def __init__(
        self,
        instance: str,
        file: LiveFile,
        header: bytes,
        position: Position,
        sequences: Sequences,
        table: FileTable,
        next_file: Callable[[], LiveFile],
        clock: Callable[[], int],
        relieve: Callable[[], None],
    ) -> None:
        self.durable = position.next_txid - 1
        self.refusal: str | None = None
        self.file = file
        self.sequences = sequences
        self.pipe = Pipe(
            Batch(file, position.next_txid, position.count, position.bodies_end, header)
        )
        self._instance = instance
        self._position = position
        self._table = table
        self._next_file = next_file
        self._clock = clock
        self._relieve = relieve
        self._room_end = file.size - RECORD_SIZE
        self._numbers = [max(file.names.topics) + 1, max(file.names.origins) + 1]
        self.no_origin = OriginHandle(NO_ORIGIN)
        self._no_topic = TopicHandle(NO_TOPIC)

    @property
    def last_txid(self) -> int:
        """Of the last entry appended."""
        return self._position.next_txid - 1

    def append(
        self,
        topic: TopicHandle,
        client: int,
        sequence: int,
        body: bytes,
        kind: int = Kind.PUBLISH,
        sow_key: int = 0,
        expiration: int = 0,
        origin: OriginHandle | None = None,
        correlation_id: bytes = b"",
        given_key: bytes = b"",
        source_txid: int = 0,
        source: int = 0,
    ) -> int:
        """Append one entry.

        Args:
            topic: where it was published; see Journal.topic.
            client: the publisher's client hash.
            sequence: its sequence number, 0 if it gave none: then the entry is recorded under an
                identity made by the server, and with its txid as sequence.
            body: verbatim.
            kind: what it stands for.
            sow_key: SOW key as a number below 2**64.
            expiration: lifetime in seconds, 0 for none.
            origin: user and replication path; see Journal.origin.
            correlation_id: as the publisher gave it.
            given_key: the SOW key that the publisher gave.
            source_txid: of a replicated entry, where it was first published.
            source: of a replicated entry, hash of the instance that it came from.

        Returns:
            The entry's txid.

        Raises:
            JournalUnavailable: it cannot be recorded; nothing has changed.
        """
        pipe = self.pipe
        if self.refusal is not None or pipe.crowded:
            self._wait_for_room()
        extras = _extras(correlation_id, given_key) if correlation_id or given_key else b""
        position = self._position
        length = len(body) + len(extras)
        # The place of the record is RECORD_SIZE below that of the one before.
        if position.bodies_end + length > self._room_end - RECORD_SIZE * position.count:
            self._begin_file(length)
        number = self.file.number
        origin_number = 0
        if topic.file != number or (origin is not None and origin.file != number):
            self._define(topic, origin, length)
        if origin is not None:
            origin_number = origin.number
        txid = position.next_txid
        now = self._clock()
        if now < position.last_timestamp:
            now = position.last_timestamp
        if sequence:
            self.sequences[client] = (sequence, now)
        elif kind < Kind.NO_OP:
            source_txid = source_txid or client
            client = server_made_identity(client, self._instance)
            sequence = txid
        lag = txid - self.durable
        data = body + extras if extras else body
        head = _pack_head(
            txid,
            now,
            client,
            sequence,
            source_txid,
            source,
            sow_key,
            position.bodies_end,
            len(body),
            len(extras),
            topic.number,
            origin_number,
            expiration,
            crc32c(data),
            kind,
            0,
            lag if lag < LAG_UNKNOWN else LAG_UNKNOWN,
        )
        record = head + _pack_checksum(crc32c(head))
        with pipe.lock:
            batch = pipe.batch
            batch.bodies += data
            batch.records.append(record)
        if len(batch.records) >= MOST_IN_COMMIT or len(batch.bodies) >= LARGEST_BATCH:
            pipe.close_batch()
        position.next_txid = txid + 1
        position.count += 1
        position.bodies_end += length
        position.last_timestamp = now
        if extras:
            position.with_extras += 1
        if pipe.asleep:
            pipe.wake()
        return txid

    def _define(self, topic: TopicHandle, origin: OriginHandle | None, length: int) -> None:
        """Make sure that the current file says what the numbers of topic and origin stand for."""
        position = self._position
        needed = length + len(topic.definition) + 2 * RECORD_SIZE
        if origin is not None:
            needed += len(origin.definition)
        if position.bodies_end + needed > self._room_end - RECORD_SIZE * position.count:
            self._begin_file(needed)
        names, number = self.file.names, self.file.number
        if topic.file != number:
            topic.file, topic.number = number, self._numbers[0]
            self._numbers[0] += 1
            names.topics[topic.number] = topic.topic
            self.append(topic, 0, 0, topic.definition, Kind.DEFINE_TOPIC)
        if origin is not None and origin.file != number:
            origin.file, origin.number = number, self._numbers[1]
            self._numbers[1] += 1
            names.origins[origin.number] = origin.origin
            self._no_topic.file = number
            definition = origin.definition
            self.append(self._no_topic, 0, 0, definition, Kind.DEFINE_ORIGIN, origin=origin)

    def _begin_file(self, length: int) -> None:
        """Go on in the next file, if the entry has a chance there."""
        position = self._position
        if length > capacity(self.file.size):
            raise EntryTooLarge(
                f"a message of {length} bytes does not fit into a journal file of "
                f"{self.file.size} bytes; JournalSize in the configuration must be larger"
            )
        file = self._next_file()
        seal = Seal(
            position.count,
            position.bodies_end,
            position.with_extras,
            position.first_timestamp,
            position.last_timestamp,
        )
        self._table.update(self.file.number, seal=seal)
        now = max(self._clock(), position.last_timestamp)
        header = FileHeader(file.number, file.size, position.next_txid, now, self._instance)
        first = Batch(file, position.next_txid, 0, PAGE, pack_header(header))
        self.pipe.switch(first, dict(self.sequences))
        self.file = file
        self._room_end = file.size - RECORD_SIZE
        self._numbers = [1, 1]
        position.count = position.with_extras = 0
        position.first_timestamp = now
        position.bodies_end = PAGE
        self._table.add(
            JournalFile(
                file.number, file.path, file.size, position.next_txid, now, None, file.names
            )
        )

    def _wait_for_room(self) -> None:
        """Hold the engine up while more waits for a commit than may: the publishers must wait."""
        give_up = monotonic() + _PATIENCE
        while self.refusal is None and self.pipe.crowded:
            if monotonic() > give_up:
                raise JournalUnavailable("the storage of the transaction log does not keep up")
            self._relieve()
        if self.refusal is not None:
            raise JournalUnavailable(self.refusal)


def _extras(correlation_id: bytes, given_key: bytes) -> bytes:
    try:
        return pack_extras(correlation_id, given_key)
    except FormatError as problem:
        raise EntryTooLarge(str(problem)) from problem
