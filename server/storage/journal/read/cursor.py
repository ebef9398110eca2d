"""Replay: reading the log forward, in slices, at the reader's pace.

A cursor reads only entries on stable storage. It holds the file it is in, so that archiving,
compressing or removing that file does not disturb it, and never more than one slice of entries.
When it has caught up, the caller knows the txid up to which it has read and goes on with live
entries from there, or keeps reading.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from server.storage.journal.clock_steps import ClockSteps
from server.storage.journal.errors import (
    JournalEvent,
    JournalNotice,
    JournalUnreadableError,
    reason,
)
from server.storage.journal.files import FileTable, JournalFile, SourceCache
from server.storage.journal.format.entry import JournalEntry, JournalEntryKind, JournalTopic
from server.storage.journal.format.file_names import TOPIC_INDEX, sibling
from server.storage.journal.format.layout import (
    BODY_LENGTH,
    CLIENT,
    EXTRAS_LENGTH,
    KIND,
    ORIGIN,
    RECORD_SIZE,
    SEQUENCE,
    TIMESTAMP,
    TOPIC,
    TXID,
    EntryRow,
    JournalFormatError,
)
from server.storage.journal.format.records import (
    CHUNK,
    FileDefinitions,
    read_bodies,
    read_intact_bodies,
    read_intact_records,
    read_rows,
)
from server.storage.journal.index import unpack_topic_index
from server.storage.journal.read.batch_sizes import NO_ENTRY_SIZES, EntrySizes, make_entry_sizes
from server.storage.journal.read.bookmarks import LogSpan
from server.storage.journal.read.entry_batch import NO_ENTRIES, EntryRange
from server.storage.journal.read.entry_filter import broken, choose
from server.storage.journal.read.raw_batch import NO_RAW_ENTRIES, DamagedEntry, RawEntryRange
from server.storage.journal.storage import ByteSource

_MAX_EXAMINED: Final = 8192
"""Limit of records that one call of `read` examines when few of them match."""

_MAX_RECORDS_PER_MATCH: Final = 4
"""Limit of records for each matching one up to which all of them are read at once."""

_TXID_OF: Final = attrgetter("txid")
_ATTEMPTS: Final = 3  # to open a file, which may be moved between look-up and open

_BatchT = TypeVar("_BatchT", EntryRange, RawEntryRange, EntrySizes)

TopicPredicate = Callable[[JournalTopic], bool]
EntryNumbers = npt.NDArray[np.uint32]


class _TopicFilter(dict[int, bool]):
    """Caches by topic number whether a topic matches the predicate."""

    __slots__ = ("_definitions", "_predicate")

    def __init__(self, definitions: FileDefinitions, predicate: TopicPredicate | None) -> None:
        super().__init__()
        self._definitions = definitions
        self._predicate = predicate

    def __missing__(self, number: int) -> bool:
        topic = self._definitions.topics.get(number)
        answer = self._predicate is None or topic is None or self._predicate(topic)
        self[number] = answer
        return answer


@dataclass(slots=True)
class _CurrentFile:
    """The file that a cursor is in.

    Attributes:
        file: its entry in the file table.
        source: its bytes.
        definitions: its topics and origins.
        topic_filter: caches by topic number whether the topic matches.
        entry_numbers: the numbers of the entries that match by topic, if the file has a topic
            index.
    """

    file: JournalFile
    source: ByteSource
    definitions: FileDefinitions
    topic_filter: _TopicFilter
    entry_numbers: EntryNumbers | None


class JournalCursor:
    """A place in the log that moves forward.

    Args:
        table: the files of the log.
        cache: opens them.
        durable_txid: returns the last txid that may be read.
        span: the part of the log to read.
        topic_predicate: predicate: true for topics with entries to read; None for all.
        kinds: the kinds of entry to return.
        notice: called on damage.
        steps: the steps of the wall clock, by place in the log.

    Attributes:
        position: the txid up to which the log has been read; skipped entries count as read.
        is_finished: the end of the span has been reached; nothing more will come.
    """

    def __init__(
        self,
        table: FileTable,
        cache: SourceCache,
        durable_txid: Callable[[], int],
        span: LogSpan,
        topic_predicate: TopicPredicate | None,
        kinds: frozenset[JournalEntryKind],
        notice: Callable[[JournalNotice], None],
        steps: ClockSteps,
    ) -> None:
        self._time_correction = steps.correction
        self.position = span.after_txid
        self.is_finished = False
        self._table = table
        self._cache = cache
        self._durable_txid = durable_txid
        self._span = span
        self._begin_timestamp = span.begin_timestamp
        self._topic_predicate = topic_predicate
        self._kinds = kinds
        self._kind_mask = sum(1 << kind for kind in kinds)
        self._notice = notice
        self._current_file: _CurrentFile | None = None
        self._check_span_end()

    @property
    def is_caught_up(self) -> bool:
        """True if everything on stable storage has been read."""
        return self.is_finished or self.position >= self._durable_txid()

    @property
    def needs_decompression(self) -> bool:
        """True if the next read has to decompress a file, which is slow."""
        current_file, txid = self._current_file, self.position + 1
        if self.is_caught_up or (
            current_file is not None and txid < (current_file.file.end_txid or txid + 1)
        ):
            return False
        file = self._table.find_by_txid(txid)
        return (
            file is not None and file.path.suffix == ".gz" and not self._cache.is_cached(file.path)
        )

    def decompress(self) -> None:
        """Decompress the next file into the cache, on any thread."""
        file = self._table.find_by_txid(self.position + 1)
        with contextlib.suppress(OSError):  # the next read reports it
            if file is not None:
                self._cache.open(file.path)

    def reset_topic_filter(self) -> None:
        """Drop the cached answers of `topic_predicate`, which have changed."""
        self._current_file = None

    def read(self, max_entries: int = 256, max_bytes: int = 1 << 20) -> list[JournalEntry]:
        """Read on.

        Args:
            max_entries: limit of entries to return.
            max_bytes: bytes of bodies after which to stop; the last body may go beyond.

        Returns:
            The next entries. An empty list does not mean the end: see `is_caught_up`.

        Raises:
            JournalUnreadableError: they cannot be read at the moment; the cursor has not moved.
        """
        return self.read_entry_range(max_entries, max_bytes).entries()

    def read_entry_range(self, max_entries: int, max_bytes: int = 1 << 20) -> EntryRange:
        """Read on as `read` does; return an `EntryRange`, without creating objects."""
        try:
            return (
                self._read_until_found(partial(self._read_entry_range, max_entries, max_bytes))
                or NO_ENTRIES
            )
        except OSError as problem:
            raise JournalUnreadableError(reason(problem)) from None

    def read_raw_range(self, max_entries: int, max_bytes: int = 1 << 20) -> RawEntryRange:
        """Read on as `read` does; return the entries packed as in the file."""
        try:
            return (
                self._read_until_found(partial(self._read_raw_range, max_entries, max_bytes))
                or NO_RAW_ENTRIES
            )
        except OSError as problem:
            raise JournalUnreadableError(reason(problem)) from None

    def read_for_forwarding(self, max_entries: int, max_bytes: int) -> RawEntryRange:
        """Read on for forwarding entries; times and names in the span are ignored. See `read`.

        Args:
            max_entries: limit of entries to examine together.
            max_bytes: bytes of bodies after which to stop; the last body may go beyond.
        """
        try:
            return (
                self._read_until_found(partial(self._read_file_range, max_entries, max_bytes))
                or NO_RAW_ENTRIES
            )
        except OSError as problem:
            raise JournalUnreadableError(reason(problem)) from None

    def read_sizes(self) -> EntrySizes:
        """Read on without bodies; return the txids and sizes of the entries. See `read`.

        Damaged bodies are not detected; times and names in the span are ignored.
        """
        try:
            return self._read_until_found(self._read_sizes) or NO_ENTRY_SIZES
        except OSError as problem:
            raise JournalUnreadableError(reason(problem)) from None

    def _read_until_found(self, read: Callable[[_CurrentFile, int], _BatchT]) -> _BatchT | None:
        """Read on until something is found, the end or the limit of records is reached."""
        examined = 0
        while examined < _MAX_EXAMINED and not self.is_finished:
            durable = self._durable_txid()  # before the table: a durable entry has its file there
            if self.position >= durable:
                break
            current_file = self._open_next_file()
            self._check_span_end()  # the log may begin after the last txid of the span
            if current_file is None or self.is_finished:
                break
            before = self.position
            batch = read(current_file, durable)
            examined += max(self.position - before, 1)
            if batch:
                return batch
        return None

    def _open_next_file(self) -> _CurrentFile | None:
        """Open the file with the next entry and return it; None if it does not exist yet."""
        current_file = self._current_file
        txid = self.position + 1
        if current_file is not None:
            if current_file.file.seal is None:
                current_file.file = self._table.find(current_file.file.number) or current_file.file
            end_txid = current_file.file.end_txid
            if current_file.file.first_txid <= txid and (end_txid is None or txid < end_txid):
                return current_file
        file = self._table.find_by_txid(txid)
        for _ in range(_ATTEMPTS):
            if file is None:
                return None
            try:
                source = self._cache.open(file.path)
            except FileNotFoundError:  # it has just been moved, or removed
                file = self._table.find_by_txid(txid)
                continue
            self.position = max(self.position, file.first_txid - 1)
            definitions = file.read_definitions(source)
            topic_filter = _TopicFilter(definitions, self._topic_predicate)
            current_file = _CurrentFile(
                file, source, definitions, topic_filter, self._find_entry_numbers(file, definitions)
            )
            self._current_file = current_file
            return current_file
        if file is None:
            return None
        raise FileNotFoundError(errno.ENOENT, "the file is not there", str(file.path))

    def _find_entry_numbers(
        self, file: JournalFile, definitions: FileDefinitions
    ) -> EntryNumbers | None:
        """Return the numbers of matching entries of a file; None without a topic index."""
        if self._topic_predicate is None or file.seal is None:
            return None
        try:
            data = sibling(file.path, TOPIC_INDEX).read_bytes()
            postings = unpack_topic_index(data, file.seal.count)
        except (OSError, JournalFormatError):
            return None
        chosen_numbers = [
            numbers
            for topic, numbers in postings.items()
            if topic not in definitions.topics or self._topic_predicate(definitions.topics[topic])
        ]
        return np.sort(np.concatenate(chosen_numbers)) if chosen_numbers else np.zeros(0, np.uint32)

    def _number_bounds(self, current_file: _CurrentFile, durable: int) -> tuple[int, int]:
        """Return the number of the next record of a file, and the end of those to be read."""
        first_txid, end = current_file.file.first_txid, durable + 1
        if current_file.file.end_txid is not None:
            end = min(end, current_file.file.end_txid)
        if self._span.last_txid is not None:
            end = min(end, self._span.last_txid + 1)
        return self.position + 1 - first_txid, end - first_txid

    def _read_raw_range(
        self, max_entries: int, max_bytes: int, current_file: _CurrentFile, durable: int
    ) -> RawEntryRange:
        """Return entries as in the file, unless each has to be tested, or few match."""
        span = self._span
        is_limited = span.end_timestamp is not None or self._begin_timestamp or span.end_entries
        if not is_limited and not self._is_sparse(current_file, max_entries):
            return self._read_file_range(max_entries, max_bytes, current_file, durable)
        entry_range = self._read_entry_range(max_entries, max_bytes, current_file, durable)
        return RawEntryRange(*entry_range.pack(), current_file.definitions)

    def _is_sparse(self, current_file: _CurrentFile, limit: int) -> bool:
        """Return whether few of the next entries of a file match."""
        if current_file.entry_numbers is None:
            return False
        start = self.position + 1 - current_file.file.first_txid
        index = int(np.searchsorted(current_file.entry_numbers, start))
        next_numbers = current_file.entry_numbers[index : index + limit]
        return len(next_numbers) > 0 and int(
            next_numbers[-1] - next_numbers[0]
        ) > _MAX_RECORDS_PER_MATCH * len(next_numbers)

    def _read_file_range(
        self, max_entries: int, max_bytes: int, current_file: _CurrentFile, durable: int
    ) -> RawEntryRange:
        first_txid, source = current_file.file.first_txid, current_file.source
        start, end = self._number_bounds(current_file, durable)
        if current_file.entry_numbers is not None:
            index = int(np.searchsorted(current_file.entry_numbers, start))
            start = (
                min(int(current_file.entry_numbers[index]), end)
                if index < len(current_file.entry_numbers)
                else end
            )
        stop = min(start + max_entries, end)
        block = source.read(source.size - RECORD_SIZE * stop, RECORD_SIZE * (stop - start))
        if len(block) < RECORD_SIZE * (stop - start):  # the file has been cut short
            block = bytes(RECORD_SIZE * (stop - start))
        definitions = current_file.definitions
        records, parts, examined, damaged = choose(
            block,
            first_txid + start,
            source.size,
            self._kind_mask,
            current_file.topic_filter,
            definitions.topics,
            definitions.origins,
            max_bytes,
        )
        bodies = [source.read(offset, upto - offset) for offset, upto in parts]
        entry_range = RawEntryRange(
            records, bodies[0] if len(bodies) == 1 else b"".join(bodies), definitions
        )
        if lost := broken(entry_range.records, entry_range.bodies):
            for position in lost:
                self._report_damage(current_file, entry_range.txid_at(position))
        if damaged:
            self._report_damage(current_file, damaged[0], len(damaged))
        if lost or damaged:
            unread = [entry_range.as_damaged(position) for position in lost]
            unread += [
                DamagedEntry(txid) for txid in damaged if self._may_be_wanted(current_file, txid)
            ]
            entry_range = entry_range.pick(sorted(set(range(len(entry_range))).difference(lost)))
            entry_range.damaged_entries = sorted(unread, key=_TXID_OF)
        self.position = first_txid + start + examined - 1
        self._check_span_end()
        return entry_range

    @staticmethod
    def _may_be_wanted(current_file: _CurrentFile, txid: int) -> bool:
        """Return whether an entry with a damaged record may match."""
        entry_numbers, number = current_file.entry_numbers, txid - current_file.file.first_txid
        return (
            entry_numbers is None
            or number in entry_numbers[np.searchsorted(entry_numbers, number) :][:1]
        )

    def _read_entry_range(
        self, max_entries: int, max_bytes: int, current_file: _CurrentFile, durable: int
    ) -> EntryRange:
        first_txid = current_file.file.first_txid
        start, end = self._number_bounds(current_file, durable)
        intact_rows, end_number = self._read_rows(current_file, start, end, max_entries)
        rows, is_end = self._filter_by_span(intact_rows)
        if is_end:
            end_number = rows[-1][TXID] + 1 - first_txid if rows else start
        kinds, topic_filter = self._kinds, current_file.topic_filter
        chosen_rows = [row for row in rows if row[KIND] in kinds and topic_filter[row[TOPIC]]]
        count = _count_fitting(chosen_rows, max_bytes)
        if count < len(chosen_rows):
            del chosen_rows[count:]
            is_end = False
            end_number = chosen_rows[-1][TXID] + 1 - first_txid
        entry_range = self._attach_bodies(
            current_file, chosen_rows
        )  # before the position moves: it may raise
        self.is_finished = is_end
        self.position = first_txid + end_number - 1
        self._check_span_end()
        return entry_range

    def _read_sizes(self, current_file: _CurrentFile, durable: int) -> EntrySizes:
        first_txid = current_file.file.first_txid
        start, end = self._number_bounds(current_file, durable)
        stop = min(start + CHUNK, end)
        records = None
        if current_file.entry_numbers is None:
            records = read_intact_records(current_file.source, first_txid, start, stop)
        if records is None:
            intact_rows, stop = self._read_rows(current_file, start, end, CHUNK)
            kinds, topic_filter = self._kinds, current_file.topic_filter
            entry_sizes = make_entry_sizes(
                row for row in intact_rows if row[KIND] in kinds and topic_filter[row[TOPIC]]
            )
        else:
            topics = [
                number
                for number in np.unique(records["topic"]).tolist()
                if current_file.topic_filter[number]
            ]
            chosen_records = records[
                np.isin(records["topic"], topics) & np.isin(records["kind"], sorted(self._kinds))
            ]
            entry_sizes = EntrySizes(
                chosen_records["txid"].astype(np.int64),
                chosen_records["body_length"].astype(np.int64),
                int(chosen_records["timestamp"][0]) if len(chosen_records) else 0,
            )
        self.position = first_txid + stop - 1
        self._check_span_end()
        return entry_sizes

    def _read_rows(
        self, current_file: _CurrentFile, start: int, end: int, limit: int
    ) -> tuple[list[EntryRow], int]:
        """Return the next intact records of a file that may match, and their end number."""
        first_txid, source = current_file.file.first_txid, current_file.source
        stop = min(start + limit, end)
        if current_file.entry_numbers is not None:
            index = int(np.searchsorted(current_file.entry_numbers, start))
            numbers = [
                int(number)
                for number in current_file.entry_numbers[index : index + limit]
                if number < end
            ]
            if not numbers:
                return [], end
            if numbers[-1] - numbers[0] > _MAX_RECORDS_PER_MATCH * len(numbers):
                candidates = [read_rows(source, first_txid, each, each + 1)[0] for each in numbers]
                end_number = numbers[-1] + 1 if len(numbers) == limit else end
                return [row for row in candidates if row is not None], end_number
            start, stop = (
                numbers[0],
                min(numbers[-1] + 1, numbers[0] + _MAX_RECORDS_PER_MATCH * limit),
            )
        read = read_rows(source, first_txid, start, stop)
        rows = [row for row in read if row is not None]
        if len(rows) < len(read):
            self._report_damage(
                current_file, first_txid + start + read.index(None), len(read) - len(rows)
            )
        return rows, stop

    def _filter_by_span(self, rows: Sequence[EntryRow]) -> tuple[Sequence[EntryRow], bool]:
        """Return the entries inside the span by time and name, and whether the span ends there."""
        span = self._span
        if span.end_timestamp is None and not self._begin_timestamp and not span.end_entries:
            return rows, False
        within: list[EntryRow] = []
        for row in rows:
            timestamp = row[TIMESTAMP] + self._time_correction(row[TXID])
            if span.end_timestamp is not None and timestamp >= span.end_timestamp:
                return within, True
            if timestamp < self._begin_timestamp:
                continue
            self._begin_timestamp = 0  # a later step back of the clock must not hide entries
            if (row[CLIENT], row[SEQUENCE]) in span.end_entries:
                if span.includes_end:
                    within.append(row)
                return within, True
            within.append(row)
        return within, False

    def _attach_bodies(self, current_file: _CurrentFile, rows: Sequence[EntryRow]) -> EntryRange:
        """Return entries with their bodies, without the damaged ones."""
        definitions, intact = (
            current_file.definitions,
            read_intact_bodies(current_file.source, rows),
        )
        if (
            intact is not None
            and definitions.topics.keys() >= {row[TOPIC] for row in rows}
            and definitions.origins.keys() >= {row[ORIGIN] for row in rows}
        ):
            return EntryRange(rows, intact, definitions)
        intact_rows, intact = [], []
        for row, data in zip(rows, read_bodies(current_file.source, rows), strict=True):
            if (
                data is None
                or row[TOPIC] not in definitions.topics
                or row[ORIGIN] not in definitions.origins
            ):
                self._report_damage(current_file, row[TXID])
            else:
                intact_rows.append(row)
                intact.append(data)
        return EntryRange(intact_rows, intact, definitions)

    def _check_span_end(self) -> None:
        last_txid = self._span.last_txid
        if last_txid is not None and self.position >= last_txid:
            self.is_finished = True

    def _report_damage(self, current_file: _CurrentFile, txid: int, count: int = 1) -> None:
        path = str(current_file.file.path)
        damage = f"entry {txid} is" if count == 1 else f"{count} entries, from {txid} on, are"
        text = f"{path}: {damage} damaged, and left out of replays"
        self._notice(JournalNotice(JournalEvent.DAMAGED, text, path, txid))


def _count_fitting(rows: Sequence[EntryRow], max_bytes: int) -> int:
    """Return the number of entries to read, so that only the last one exceeds a size."""
    lengths = [row[BODY_LENGTH] + row[EXTRAS_LENGTH] for row in rows]
    if sum(lengths) < max_bytes:
        return len(rows)
    return bisect_left(list(accumulate(lengths)), max_bytes) + 1
