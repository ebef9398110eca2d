"""A transaction log in memory, of which a crash loses what had not been synced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from amperage.wire.bookmarks import client_hash
from server.replication.core import BatchColumns, RecorderResult
from server.storage.journal import (
    EVENTS,
    DamagedEntry,
    EntryBatch,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
    RawEntryRange,
    SequenceGaps,
    decode_note,
)
from server.storage.journal.format.entry import NO_ORIGIN
from server.storage.journal.format.layout import (
    BODY_START,
    CLIENT,
    KIND,
    ORIGIN,
    RECORD,
    SEQUENCE,
    SOURCE,
    SOURCE_TXID,
    TOPIC,
    TXID,
    EntryRow,
    crc32c,
)
from server.storage.journal.format.records import FileDefinitions, make_file_definitions
from server.storage.journal.publisher_table import server_made_identity


class Log:
    """The log of one instance.

    Attributes:
        durable: the last entry that a crash leaves.
        damaged: the txids of entries that cannot be read, and whether their records can.
        lost: the txids of those that are not waited for.
        sequences: identity -> the highest number of it.
        missing: what publishers have to be told of.
    """

    def __init__(self, instance: str, began: int = 1000) -> None:
        self.instance = instance
        self.identity = f"{instance}/{began}"
        self.began = began
        self.first_txid = began
        self.durable = began - 1
        self.rows: list[EntryRow] = []
        self.data: list[bytes] = []
        self.names: FileDefinitions = make_file_definitions()
        self.sequences: dict[int, int] = {}
        self._sequences_of_removed: dict[int, int] = {}
        self.damaged: dict[int, bool] = {}
        self.lost: set[int] = set()
        self.missing = SequenceGaps()
        self._missing_of_removed = SequenceGaps()
        self.removed: list[tuple[int, int]] = []
        self._topics: dict[JournalTopic, int] = {JournalTopic("json", "orders"): 1}
        self.names.topics[1] = JournalTopic("json", "orders")
        self._origins: dict[JournalOrigin, int] = {NO_ORIGIN: 0}

    @property
    def durable_txid(self) -> int:
        return self.durable

    @property
    def last_txid(self) -> int:
        return self.first_txid + len(self.rows) - 1

    def append(
        self,
        topic: JournalTopic,
        client: int,
        sequence: int,
        body: bytes,
        kind: int = JournalEntryKind.PUBLISH,
        origin: JournalOrigin = NO_ORIGIN,
        source_txid: int = 0,
        source: int = 0,
        now: int = 0,
        expiration: int = 0,
        extras_length: int = 0,
    ) -> int:
        txid = self.last_txid + 1
        if sequence:
            self.sequences[client] = max(sequence, self.sequences.get(client, 0))
        elif kind < JournalEntryKind.NO_OP or kind == JournalEntryKind.MISSING:
            source_txid = client
            client = server_made_identity(client, self.instance)
            sequence = txid
        number = self._topics.get(topic)
        if number is None:
            number = self._topics[topic] = len(self._topics) + 1
            self.names.topics[number] = topic
        way = self._origins.get(origin)
        if way is None:
            way = self._origins[origin] = len(self._origins)
            self.names.origins[way] = origin
        length = len(body) - extras_length
        self.rows.append(
            (
                *(txid, now, client, sequence, source_txid, source, 0, 0),
                *(length, extras_length, number, way, expiration, crc32c(body), kind, 0, 0, 0),
            )
        )
        self.data.append(body)
        take_note(self.missing, self.rows[-1], body)
        return txid

    def take(
        self, run: BatchColumns, source: Any, room: int | None = None, now: int = 0
    ) -> RecorderResult:
        """Append what has come from another instance, as far as there is room."""
        count = len(run.data) if room is None else min(len(run.data), room)
        first = self.last_txid + 1
        for place in range(count):
            topic, origin, extras_length = run.properties_of(place)
            self.append(
                topic,
                run.clients[place],
                run.sequences[place],
                run.data[place],
                run.kinds[place],
                origin,
                run.source_txids[place],
                client_hash(source.name),
                now,
                run.expirations[place],
                extras_length,
            )
        return RecorderResult(count, first, self.last_txid) if count else RecorderResult(0)

    def is_lost(self, txid: int) -> bool:
        return txid in self.lost

    def crash(self) -> None:
        """Lose what is not on stable storage; the table of publishers is made again."""
        kept = self.durable - self.first_txid + 1
        del self.rows[kept:], self.data[kept:]
        # Publishers of removed entries are remembered, as in clients.ack.
        self.sequences = dict(self._sequences_of_removed)
        self.missing = SequenceGaps(self._missing_of_removed.rows())
        for row, body in zip(self.rows, self.data, strict=True):
            take_note(self.missing, row, body)
            if row[3] != row[0] or row[5]:
                self.sequences[row[2]] = max(row[3], self.sequences.get(row[2], 0))

    def remove_before(self, txid: int) -> None:
        """Remove the oldest entries; publishers stay known."""
        count = max(min(txid, self.durable + 1) - self.first_txid, 0)
        for row, body in zip(self.rows[:count], self.data, strict=False):
            take_note(self._missing_of_removed, row, body)
            if row[3] != row[0] or row[5]:
                before = self._sequences_of_removed.get(row[2], 0)
                self._sequences_of_removed[row[2]] = max(row[3], before)
        self.removed += [(row[2], row[3]) for row in self.rows[:count] if row[10] == 1]
        del self.rows[:count], self.data[:count]
        self.first_txid += count

    def read_from(self, after: int, wanted: Callable[[JournalTopic], bool]) -> LogReader:
        return LogReader(self, after, wanted, self.damaged)


def take_note(missing: SequenceGaps, row: EntryRow, body: bytes) -> None:
    """Learn what is missing, and what is not any more."""
    if row[KIND] == JournalEntryKind.MISSING:
        missing.apply_record(row[SOURCE_TXID], decode_note(body), is_own=not row[SOURCE])
    else:
        missing.remove_recorded(row[CLIENT], row[SEQUENCE], row[SEQUENCE])


class LogReader:
    """Reads a log like the journal's cursor."""

    def __init__(
        self,
        log: Log,
        after: int,
        wanted: Callable[[JournalTopic], bool],
        damaged: Mapping[int, bool] = MappingProxyType({}),
    ) -> None:
        self.position = after
        self._damaged = damaged
        self._log = log
        self._wanted = wanted

    @property
    def is_caught_up(self) -> bool:
        return self.position >= self._log.durable

    def read_for_forwarding(self, most_entries: int, most_bytes: int = 1 << 20) -> RawEntryRange:
        log = self._log
        start = max(self.position + 1 - log.first_txid, 0)
        end = min(start + most_entries, log.durable + 1 - log.first_txid)
        places = [
            place
            for place in range(start, end)
            if log.rows[place][KIND] in EVENTS
            and self._wanted(log.names.topics[log.rows[place][TOPIC]])
        ]
        self.position = max(self.position, log.first_txid + end - 1)
        unread = [self._unread(p) for p in places if log.rows[p][TXID] in self._damaged]
        places = [p for p in places if log.rows[p][TXID] not in self._damaged]
        rows, data = [log.rows[p] for p in places], [log.data[p] for p in places]
        passage = passage_of(rows, data, log.names)
        passage.damaged_entries = unread
        return passage

    def _unread(self, place: int) -> DamagedEntry:
        log, row = self._log, self._log.rows[place]
        run = None
        if self._damaged[row[TXID]]:
            topic, origin = log.names.topics[row[TOPIC]], log.names.origins[row[ORIGIN]]
            run = EntryBatch(topic, origin, (row,), (b"",))
        return DamagedEntry(row[TXID], run)


def passage_of(
    rows: Sequence[EntryRow], data: Sequence[bytes], names: FileDefinitions
) -> RawEntryRange:
    """Rows and bodies as they are read from a file."""
    starts = accumulate(map(len, data), initial=0)
    records = b"".join(
        RECORD.pack(*row[:BODY_START], start, *row[BODY_START + 1 :])
        for row, start in zip(rows, starts, strict=False)
    )
    return RawEntryRange(records, b"".join(data), names)
