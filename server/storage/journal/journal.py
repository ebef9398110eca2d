"""The transaction log of an instance: the interface for the rest of the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from server.storage.journal.clock_steps import ClockSteps, StepFinder, pack_steps, read_steps
from server.storage.journal.errors import JournalError, JournalEvent, JournalNotice, reason
from server.storage.journal.files import FileTable, JournalFile, SourceCache
from server.storage.journal.format.entry import (
    EVENTS,
    MESSAGES,
    JournalEntry,
    JournalEntryKind,
    JournalOrigin,
    JournalTopic,
)
from server.storage.journal.format.file_names import (
    queues_name,
    removal_record_name,
    replication_name,
    steps_name,
)
from server.storage.journal.format.layout import (
    PAGE,
    RECORD_SIZE,
    JournalFileHeader,
    JournalFormatError,
    pack_header,
)
from server.storage.journal.format.records import CHUNK, columns
from server.storage.journal.format.side_files import SidecarFile
from server.storage.journal.publisher_table import (
    PublisherSequences,
    PublisherTable,
    without_inactive,
)
from server.storage.journal.queue_points import QueuePointTable, pack_queues, unpack_queues
from server.storage.journal.read.bookmarks import (
    BookmarkRequest,
    LogSpan,
    MissingBookmarkPolicy,
    resolve,
    resolving,
)
from server.storage.journal.read.cursor import JournalCursor, TopicPredicate
from server.storage.journal.read.lookup import EntryLookup
from server.storage.journal.read.raw_batch import RawEntryRange
from server.storage.journal.recovery.log_recovery import LogRecovery, LogRecoveryResult
from server.storage.journal.removal_record import LastRemoval, RemovalTracker
from server.storage.journal.repair.body_repair import JournalBodyRepair
from server.storage.journal.repair.index_rebuild import IndexRebuild
from server.storage.journal.repair.record_repair import JournalRecordRepair
from server.storage.journal.runs import RunHistory, place_number, random_run, run_of
from server.storage.journal.settings import JournalSettings
from server.storage.journal.storage import Disk
from server.storage.journal.write.commit_queue import MAX_UNCOMMITTED_BYTES, CommitGroup, LiveFile
from server.storage.journal.write.committer import Committer
from server.storage.journal.write.file_preparation import JournalFileMaintenance, JournalLocation
from server.storage.journal.write.handles import OriginHandle, TopicHandle
from server.storage.journal.write.writer import JournalWriter, WritePosition
from server.util.file_lock import FileInUseError, lock
from server.util.histogram import Histogram

_SIZE_UNIT: Final = 1 << 20
_MAX_FOREGROUND_FILL: Final = 64 << 20  # larger files get their zeros in the background
_MICROSECONDS: Final = 1_000_000
_DEFAULT_CACHE: Final = 10 << 30
_MAX_TOLD: Final = 10_000
_MAX_ENTRIES: Final = 1024
_MAX_BYTES: Final = 4 << 20


class Journal:
    """An open transaction log. The package's docstring shows its use.

    Args:
        settings: its configuration.
        clock: returns microseconds since the Unix epoch.
        on_durable: called with the last txid on stable storage, on the committer's thread.
        notice: called with notices for operators, on any thread.
        disk: the disk that the files are on.
        make_run_number: returns the number of this run.

    Attributes:
        body_repair: finds and replaces damaged bodies; slow.
        record_repair: finds and rebuilds damaged records; slow.
        sequence_gaps: the sequence numbers of publishers that are not in the log though higher ones
            are; owned by the engine's thread.
        run_history: the runs of the instance and the entries that each has recorded.

    Raises:
        JournalError: the files do not make up a log, or cannot be used.
    """

    def __init__(
        self,
        settings: JournalSettings,
        clock: Callable[[], int],
        on_durable: Callable[[int], None],
        notice: Callable[[JournalNotice], None],
        disk: Disk | None = None,
        make_run_number: Callable[[], int] = random_run,
    ) -> None:
        self._settings = settings
        self._make_run_number = make_run_number
        self._notice = notice
        self._reported_damage = set[tuple[str, int]]()
        self._clock = clock
        disk = disk or Disk()
        instance, directory = settings.instance, settings.directory
        self._queues_file = SidecarFile(directory / queues_name(instance), disk)
        self._replication_file = SidecarFile(directory / replication_name(instance), disk)
        possession = _take_possession(settings)
        try:
            found = LogRecovery(
                settings.instance, settings.directory, settings.archive, disk, notice
            ).run()
            self._build(found, on_durable, disk)
        except (OSError, JournalFormatError) as problem:
            os.close(possession)
            why = reason(problem) if isinstance(problem, OSError) else str(problem)
            raise JournalError(f"the transaction log cannot be used: {why}") from problem
        except JournalError:
            os.close(possession)
            raise
        self._lock_descriptor = possession
        self._log_name = f"{settings.instance} {self._table.files[0].created}"
        self._position_numbers: tuple[int, dict[int, int]] = (-1, {})
        text = f"the transaction log has {len(found.files)} files, up to entry {self.last_txid}"
        if found.files and found.files[0].number:
            begin = found.files[0].path.name
            text += (
                f"; it begins with {begin}, entry {self.first_txid}: what was before that is gone"
            )
        notice(JournalNotice(JournalEvent.RECOVERED, text, txid=self.last_txid))

    def _build(
        self, found: LogRecoveryResult, on_durable: Callable[[int], None], disk: Disk
    ) -> None:
        settings, clock = self._settings, self._clock
        size = -(-settings.file_size // _SIZE_UNIT) * _SIZE_UNIT
        sequences, self.sequence_gaps = found.sequences, found.sequence_gaps
        if settings.client_expiration is not None:
            sequences = without_inactive(sequences, clock() - settings.client_expiration // 1000)
            self.sequence_gaps.drop_publishers(found.sequences.keys() - sequences.keys())
        self._table = FileTable(tuple(found.files))
        self.run_history = RunHistory(found.runs, self._make_run_number)
        self._cache = SourceCache(settings.cache_limit or _default_cache())
        place = JournalLocation(
            settings.instance,
            settings.directory,
            settings.archive,
            size,
            settings.with_topic_index,
        )
        self._maintenance = JournalFileMaintenance(
            place,
            self._table,
            found.blank_files,
            found.next_number,
            disk,
            clock,
            self._notice,
            found.publishers_txid,
            self._record_removal,
        )
        self._clock_steps_file = SidecarFile(
            settings.directory / steps_name(settings.instance), disk
        )
        self.clock_steps = self._read_clock_steps(found)
        live, position = self._find_write_position(found, size, disk)
        self._writer = JournalWriter(
            settings.instance,
            live,
            position,
            sequences,
            self.sequence_gaps,
            self._table,
            self._maintenance.next_file,
            clock,
            self._drain_commit_queue,
            self.run_history,
            self.clock_steps,
            self._store_clock_steps,
        )
        self._writer.current_time()  # notes a clock that was set back since the last entry
        self._committer = Committer(
            self._writer,
            disk,
            settings.flush_interval / 1e9,
            on_durable,
            self._on_file_full,
            self._notice,
        )
        removed = SidecarFile(settings.directory / removal_record_name(settings.instance), disk)
        self._removal_tracker = RemovalTracker(removed, self.first_txid)
        self.has_unknown_removals = (
            self._table.files[0].number > 0 and not self._removal_tracker.is_complete
        )
        if self.has_unknown_removals:
            self._removal_tracker.reset()
        self._lookup = EntryLookup(
            self._table, self._cache, lambda: self._writer.durable_txid, self.clock_steps
        )
        self.body_repair = JournalBodyRepair(self._table, self._cache, disk)
        self.record_repair = JournalRecordRepair(
            self._table,
            self._cache,
            disk,
            lambda: self._writer.durable_txid,
            IndexRebuild(self._maintenance, self._lookup),
        )
        # Handles that callers keep, and those that the current file has numbers for.
        self._topics = WeakValueDictionary[tuple[str, str], TopicHandle]()
        self._origins = WeakValueDictionary[tuple[str, str], OriginHandle]()
        self._reuse_definitions(live)
        # Bound directly, without a wrapper: this is the message path.
        self.append = self._writer.append
        self.append_run = self._writer.append_run
        self.append_copies = self._writer.append_copies

    def _find_write_position(
        self, found: LogRecoveryResult, size: int, disk: Disk
    ) -> tuple[LiveFile, WritePosition]:
        """Return the file to append to, and the position in it."""
        seals = [file.seal for file in found.files if file.seal is not None]
        last_timestamp = seals[-1].last_timestamp if seals else 0
        if found.live_file is not None:
            live_extent = found.live_extent
            position = WritePosition(found.files[-1].first_txid + live_extent.count)
            position.count = live_extent.count
            position.bodies_end = live_extent.bodies_end
            position.extras_count = live_extent.extras_count
            position.first_timestamp = live_extent.first_timestamp or found.files[-1].created
            last_timestamp = live_extent.last_timestamp or last_timestamp
            position.last_timestamp = last_timestamp + self.clock_steps.correction(
                position.next_txid - 1
            )
            return found.live_file, position
        now = self._clock()
        # Txids of a discarded log are not used again: clients may have kept its bookmarks.
        first = found.last_txid or now // _MICROSECONDS * 1_000_000_000
        position = WritePosition(first + 1)
        position.first_timestamp = now
        position.last_timestamp = last_timestamp + self.clock_steps.correction(first)
        if size <= _MAX_FOREGROUND_FILL:
            self._maintenance.prepare_files()
        live = self._maintenance.take_file()
        header = JournalFileHeader(live.number, live.size, first + 1, now, self._settings.instance)
        # The first txid of a new log is durable before a peer can be ahead of it: if it were lost
        # with the first commit, the next start would choose a later one.
        disk.write(live.descriptor, pack_header(header), 0)
        disk.sync(live.descriptor)
        self._table.add(
            JournalFile(live.number, live.path, live.size, first + 1, now, None, live.definitions)
        )
        return live, position

    def _read_clock_steps(self, found: LogRecoveryResult) -> ClockSteps:
        """Return the known steps of the wall clock."""
        try:
            steps = read_steps(self._clock_steps_file)
        except (OSError, JournalFormatError) as problem:
            path, steps = self._clock_steps_file.path, ClockSteps()
            why = reason(problem) if isinstance(problem, OSError) else str(problem)
            text = f"{path}: {why}; replays from a moment may begin too early or too late"
            self._notice(JournalNotice(JournalEvent.DAMAGED, text, str(path)))
        if not found.files:
            return steps
        steps.drop_before(found.files[0].first_txid)
        if found.live_file is not None:
            file, finder = found.files[-1], StepFinder(steps)
            source, count = self._cache.open(file.path), found.live_extent.count
            for start in range(0, count, CHUNK):
                block = columns(source, start, min(start + CHUNK, count))
                block = block[block["txid"] != 0]  # others are damaged
                finder.scan_times(block["txid"], block["timestamp"])
            for step in finder.found_steps:
                steps.add(step)
        return steps

    def _store_clock_steps(self) -> None:
        self._clock_steps_file.defer_store(pack_steps(self.clock_steps))
        self._maintenance.queue_task(self._clock_steps_file.store_deferred)

    def record_clock_step(self, seconds: float) -> None:
        """Note that the wall clock has been set by `seconds`: back if negative."""
        self._writer.record_clock_step(round(seconds * _MICROSECONDS))

    def _reuse_definitions(self, live: LiveFile) -> None:
        for number, topic in live.definitions.topics.items():
            if number:
                handle = self.topic_handle(topic.message_type, topic.name)
                handle.file_number, handle.number = live.number, number
                live.handles.append(handle)
        for number, origin in live.definitions.origins.items():
            if number:
                known = self.origin_handle(origin.auth_id, origin.path)
                known.file_number, known.number = live.number, number
                live.handles.append(known)

    def start(self) -> None:
        """Start the threads that commit and maintain the files."""
        self._maintenance.queue_task(partial(self._store_publishers, self._snapshot_publishers()))
        self._maintenance.start()
        self._committer.start()
        self._maintenance.queue_task(
            partial(self._maintenance.prepare_files, self._settings.preallocated - 1)
        )
        for file in self._table.files:
            if file.seal is not None and not self._maintenance.is_indexed(file):
                self._maintenance.queue_task(partial(self._maintenance.finalize_file, file.number))

    def _store_publishers(self, cache: PublisherTable) -> None:
        """Store the table of publishers unless the stored one covers all full files.

        The file exists from the first start on, for operators and tools that read it.
        """
        ends = [file.end_txid for file in self._table.files if file.end_txid is not None]
        if not self._maintenance.publishers_txid or (
            ends and self._maintenance.publishers_txid < ends[-1] - 1
        ):
            self._maintenance.store_publisher_table(cache)

    def _snapshot_publishers(self) -> PublisherTable:
        sequences, missing = self._writer.sequences, tuple(self.sequence_gaps.rows())
        return PublisherTable(self.durable_txid, sequences, missing)

    def close(self) -> None:
        """Commit all appended entries, store the caches and close the files."""
        self._committer.stop()
        if self.durable_txid == self.last_txid:
            self._maintenance.queue_task(
                partial(self._maintenance.store_publisher_table, self._snapshot_publishers())
            )
            self._maintenance.queue_task(self._queues_file.store_deferred)
            self._maintenance.queue_task(self._replication_file.store_deferred)
        self._maintenance.stop()
        os.close(self._writer.file.descriptor)
        os.close(self._lock_descriptor)

    # Writing.

    def read_queue_points(self) -> QueuePointTable | None:
        """Return the recovery points of queues, None if they are not known."""
        try:
            data = self._queues_file.read()
            return None if data is None else unpack_queues(data)
        except (OSError, JournalFormatError) as problem:
            path = self._queues_file.path
            why = reason(problem) if isinstance(problem, OSError) else str(problem)
            text = f"{path}: {why}; queues are recovered from their RecoveryPoint"
            self._notice(JournalNotice(JournalEvent.DAMAGED, text, str(path)))
            return None

    def store_queue_points(self, cache: QueuePointTable) -> None:
        """Store the recovery points of queues; see `SidecarFile.store`."""
        self._queues_file.store(pack_queues(cache, self._clock()))

    def store_queue_points_at_close(self, cache: QueuePointTable) -> None:
        """Store the recovery points at the close, if all entries that they cover are durable."""
        self._queues_file.defer_store(pack_queues(cache, self._clock()))

    @property
    def replication_state_path(self) -> Path:
        """Path of the file with replication's state."""
        return self._replication_file.path

    def read_replication_state(self) -> bytes | None:
        """Return the stored state of replication; see `SidecarFile.read`."""
        return self._replication_file.read()

    def store_replication_state(self, data: bytes) -> None:
        """Store the state of replication; see `SidecarFile.store`."""
        self._replication_file.store(data)

    def store_replication_at_close(self, data: bytes) -> None:
        """Store the state at the close, if all entries that it covers are durable."""
        self._replication_file.defer_store(data)

    def topic_handle(self, message_type: str, name: str) -> TopicHandle:
        """Return the handle of a topic for `append`; the same one as long as a caller keeps it."""
        handle = self._topics.get((message_type, name))
        if handle is None:
            handle = self._topics[message_type, name] = TopicHandle(
                JournalTopic(message_type, name)
            )
        return handle

    def origin_handle(self, auth_id: str, path: str = "") -> OriginHandle:
        """Return the handle of a user and a replication path for `append`; see `topic_handle`."""
        handle = self._origins.get((auth_id, path))
        if handle is None:
            handle = self._origins[auth_id, path] = OriginHandle(JournalOrigin(auth_id, path))
        return handle

    def commit(self) -> bool:
        """Commit now, on this thread; return whether everything is on stable storage."""
        return self._committer.commit()

    @property
    def write_error(self) -> str | None:
        """The reason why nothing can be recorded at the moment; None if the log is writable."""
        return self._writer.write_error

    @property
    def is_backlogged(self) -> bool:
        """True if so much waits for a commit that reading from publishers should pause."""
        return self._writer.uncommitted_bytes > MAX_UNCOMMITTED_BYTES // 2

    def last_sequence(self, client: int) -> int:
        """Return a publisher's highest sequence, 0 if none. Sequences up to it are duplicates."""
        known = self._writer.sequences.get(client)
        return 0 if known is None else known[0]

    @property
    def sequences(self) -> PublisherSequences:
        """The table of publishers, read-only: client hash -> (highest sequence, its time)."""
        return self._writer.sequences

    # Reading.

    @property
    def directory(self) -> Path:
        """The directory of the files in use."""
        return self._settings.directory

    @property
    def first_txid(self) -> int:
        """The txid of the oldest entry in the log."""
        return self._table.files[0].first_txid

    @property
    def last_txid(self) -> int:
        """The txid of the last entry appended."""
        return self._writer.last_txid

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last entry appended, in microseconds since the Unix epoch."""
        return self._writer.last_timestamp

    @property
    def durable_txid(self) -> int:
        """The txid of the last entry on stable storage."""
        return self._writer.durable_txid

    def estimate_bytes_after(self, after: int) -> int:
        """Estimate the bytes after an entry, as if all entries of a file were equally long."""
        total, end = 0, self.last_txid + 1
        for file in reversed(self._table.files):
            if end <= after + 1:
                break
            count = end - file.first_txid
            if count > 0:
                written = self._writer.bodies_end if file.seal is None else file.seal.bodies_end
                size = written - PAGE + RECORD_SIZE * count
                total += size * min(end - after - 1, count) // count
            end = file.first_txid
        return total

    def find(self, client: int, sequence: int) -> int | None:
        """Return the txid of an entry on stable storage, None if it is not in the log."""
        run = self._run_of_position(client)
        if run is None:
            return self._lookup.find(client, sequence)
        is_here = sequence <= self.durable_txid and self.run_history.number_at(sequence) == run
        return sequence if is_here else None

    def position_bookmark(self, txid: int) -> tuple[int, int]:
        """Return a bookmark that names a place in this very log, up to an entry.

        Instead of a client hash it has a number for the log and for the run that has recorded the
        entry; instead of a sequence it has the txid.
        """
        return place_number(self._log_name, self.run_history.number_at(txid)), txid

    def is_log_position(self, client: int) -> bool:
        """Return whether the first number of a bookmark stands for this log."""
        return self._run_of_position(client) is not None

    def set_log_name(self, name: str) -> None:
        """Set the name that distinguishes this log from others in the names of places.

        The default is made of the instance's name and the time when the log was begun.
        """
        self._log_name = name
        self._position_numbers = (-1, {})

    def last_common_txid(self, client: int, sequence: int) -> int | None:
        """Return the last entry that this log shares with a reader that names a lost entry.

        An earlier run of the instance has given the name, and the log has entries of that run, but
        not this one: it was never on stable storage, or the log has been restored from a backup.

        Args:
            client: the first number of the bookmark.
            sequence: the second one, a txid of that run.

        Returns:
            The txid; None if the name does not belong to such a run.
        """
        run = self._run_of_position(client)
        last = self.run_history.last_txid(run_of(client) if run is None else run)
        return last if last is not None and last < sequence else None

    def find_damaged_entry(self, client: int, sequence: int) -> int | None:
        """Return the txid of a damaged entry that a name may belong to; None if there is none."""
        return self._lookup.find_damaged_entry(client, sequence)

    def _run_of_position(self, client: int) -> int | None:
        """Return the number of the run that a place with this first number belongs to, if any."""
        rows = self.run_history.rows()
        size, numbers = self._position_numbers
        if size != len(rows):
            numbers = {
                place_number(self._log_name, run): run for run in (0, *(run for _, run in rows))
            }
            self._position_numbers = len(rows), numbers
        return numbers.get(client)

    def find_last_removal(self, wanted: TopicPredicate, after: int) -> LastRemoval | None:
        """Return the last removed message after an entry; None if there is none.

        Args:
            wanted: predicate: true for topics whose messages matter.
            after: the txid of the entry.
        """
        return self._removal_tracker.find_last_removal(wanted, after, self.first_txid)

    def find_later(self, client: int, sequence: int, txid: int) -> int | None:
        """Return the txid of a later entry with the same name; None if there is none."""
        return self._lookup.find_later(client, sequence, txid)

    def first_since(self, timestamp: int) -> int:
        """Return the txid of the first entry at a time (microseconds) or later, else the next."""
        return self._lookup.first_since(timestamp)

    def resolve(
        self,
        request: BookmarkRequest,
        not_found: MissingBookmarkPolicy = "now",
        now: int | None = None,
    ) -> LogSpan:
        """Look up the names in a bookmark.

        Args:
            request: the bookmark.
            not_found: where to begin if none of the starts is in the log.
            now: the txid that counts as the end of the log; None for the last one.

        Raises:
            BookmarkError: no start is in the log, and `not_found` is "fail".
        """
        return resolve(request, self, not_found, self.last_txid if now is None else now)

    def resolve_in_steps(
        self, request: BookmarkRequest, not_found: MissingBookmarkPolicy, now: int
    ) -> Generator[None, None, LogSpan]:
        """Resolve as `resolve` does, in steps, one for each name; safe to use from any thread."""
        return resolving(request, self, not_found, now)

    def replay(
        self,
        span: LogSpan,
        wanted: TopicPredicate | None = None,
        kinds: frozenset[JournalEntryKind] = MESSAGES,
        horizon: Callable[[], int] | None = None,
    ) -> JournalCursor:
        """Read a part of the log.

        Args:
            span: the part; see `resolve`.
            wanted: predicate: true for topics whose entries are wanted; None for all.
            kinds: the kinds of entries to return.
            horizon: returns the last txid that may be read, which is on stable storage; None for
                all entries on stable storage.
        """
        return JournalCursor(
            self._table,
            self._cache,
            horizon or (lambda: self._writer.durable_txid),
            span,
            wanted,
            kinds,
            self._report_once,
            self.clock_steps,
        )

    def _report_once(self, notice: JournalNotice) -> None:
        """Report damage that replays find, once for each damaged place."""
        what = notice.path, notice.txid
        if what not in self._reported_damage:
            if len(self._reported_damage) >= _MAX_TOLD:
                self._reported_damage.clear()
            self._reported_damage.add(what)
            self._notice(notice)

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """Yield the entries that change state, in order, after a txid: for recovery."""
        cursor = self.replay(LogSpan(after), kinds=EVENTS)
        while not cursor.is_caught_up:
            yield from cursor.read(_MAX_ENTRIES, _MAX_BYTES)

    def raw_ranges(self, after: int = 0) -> Iterator[RawEntryRange]:
        """Yield the entries of `entries`, packed as in the files."""
        cursor = self.replay(LogSpan(after), kinds=EVENTS)
        while not cursor.is_caught_up:
            yield cursor.read_raw_range(_MAX_ENTRIES, _MAX_BYTES)

    # Maintenance of files. These calls are slow: make them on a thread of the caller's own. Long
    # operations are aborted when the journal is closed, or before that by `abort_archiving`.

    @property
    def files(self) -> tuple[JournalFile, ...]:
        """The files of the log, in order; an immutable snapshot."""
        return self._table.files

    def is_finalized(self, number: int) -> bool:
        """Return whether a file is full, and nothing more has to be written to it."""
        return self._maintenance.is_finalized(number)

    @property
    def cache(self) -> SourceCache:
        """The cache of open files."""
        return self._cache

    @property
    def write_latency(self) -> Histogram:
        """Durations of writes until they were on stable storage, in microseconds."""
        return self._committer.write_latency

    @property
    def write_sizes(self) -> Histogram:
        """Sizes of writes in bytes."""
        return self._committer.write_sizes

    @property
    def has_archive(self) -> bool:
        """True if an archive directory is configured."""
        return self._settings.archive is not None

    def archive(self, number: int) -> None:
        """Move a full file to the archive directory. Raises JournalError."""
        self._maintenance.archiver.archive(number)

    def compress(self, number: int) -> None:
        """Compress a full file where it is. Raises JournalError."""
        self._maintenance.archiver.compress(number)

    def remove(self, number: int) -> None:
        """Remove the oldest file. The caller makes sure that no reader needs it.

        Raises:
            JournalError: it is not the oldest, or not full.
        """
        self._maintenance.archiver.remove(number)

    def abort_archiving(self) -> None:
        """Abort archiving and compressing, leaving the files as they were."""
        self._maintenance.archiver.abort()

    def _on_file_full(self, commit: CommitGroup) -> None:
        stream, file = commit.stream, commit.stream.file
        cache = PublisherTable(commit.last_txid, stream.sequences, stream.missing_ranges)
        self._maintenance.queue_task(partial(self._maintenance.seal, file, cache))
        text = f"{file.path}: is full"
        self._notice(JournalNotice(JournalEvent.ROTATED, text, str(file.path), commit.last_txid))

    def _record_removal(self, file: JournalFile) -> None:
        self._removal_tracker.record_removal(file, self._cache.open(file.path))

    def _drain_commit_queue(self) -> None:
        if self._committer.is_running:
            self._writer.commit_queue.wait_for_space(1.0)
        else:
            self.commit()


def _take_possession(settings: JournalSettings) -> int:
    """Lock the directory against other processes; return the descriptor that holds the lock."""
    try:
        settings.directory.mkdir(parents=True, exist_ok=True)
        if settings.archive is not None:
            settings.archive.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(settings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        raise JournalError(f"the transaction log cannot be used: {reason(problem)}") from problem
    try:
        lock(descriptor)
    except FileInUseError as holder:
        os.close(descriptor)
        raise JournalError(
            f"{settings.directory}: is in use by {holder}; "
            "a JournalDirectory belongs to one instance"
        ) from None
    except OSError as problem:
        os.close(descriptor)
        raise JournalError(f"the transaction log cannot be used: {reason(problem)}") from problem
    return descriptor


def _default_cache() -> int:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(memory // 10, _DEFAULT_CACHE)
