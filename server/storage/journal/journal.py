"""The transaction log of an instance: the interface for the rest of the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from server.storage.journal.clock_steps import pack_steps
from server.storage.journal.errors import (
    JournalError,
    JournalEvent,
    JournalNotice,
    JournalUnreadableError,
    reason,
)
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
from server.storage.journal.format.layout import JournalFormatError
from server.storage.journal.format.side_files import SidecarFile
from server.storage.journal.publisher_table import (
    PublisherSequences,
    PublisherTable,
    without_inactive,
)
from server.storage.journal.queue_points import QueuePointTable, pack_queues
from server.storage.journal.read.bookmarks import (
    BookmarkRequest,
    LogSpan,
    MissingBookmarkPolicy,
    resolve_bookmark,
    resolve_bookmark_in_steps,
)
from server.storage.journal.read.cursor import JournalCursor, TopicPredicate
from server.storage.journal.read.lookup import EntryLookup
from server.storage.journal.read.raw_batch import RawEntryRange
from server.storage.journal.recovery.log_recovery import LogRecovery, LogRecoveryResult
from server.storage.journal.removal_record import LastRemoval, RemovalTracker
from server.storage.journal.repair.body_repair import JournalBodyRepair
from server.storage.journal.repair.index_rebuild import IndexRebuild
from server.storage.journal.repair.record_repair import JournalRecordRepair
from server.storage.journal.runs import LogPositions, RunHistory, random_run
from server.storage.journal.settings import JournalSettings
from server.storage.journal.startup import (
    begin_new_file,
    continue_last_file,
    default_cache_limit,
    lock_directory,
    read_queue_points,
    recover_clock_steps,
)
from server.storage.journal.storage import Disk
from server.storage.journal.write.commit_queue import MAX_UNCOMMITTED_BYTES, CommitGroup, LiveFile
from server.storage.journal.write.committer import Committer
from server.storage.journal.write.file_preparation import JournalFileMaintenance, JournalLocation
from server.storage.journal.write.handles import OriginHandle, TopicHandle
from server.storage.journal.write.writer import JournalWriter
from server.util.clock import MICROSECONDS_PER_SECOND

_SIZE_UNIT: Final = 1 << 20
_MAX_REPORTED_DAMAGE: Final = 10_000
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
        cache: the cache of open files.
        write_latency: durations of writes until they were on stable storage, in microseconds.
        write_sizes: sizes of writes in bytes.
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
        lock_descriptor = lock_directory(settings)
        try:
            recovered = LogRecovery(
                settings.instance, settings.directory, settings.archive, disk, notice
            ).run()
            self._build(recovered, on_durable, disk)
        except (OSError, JournalFormatError) as problem:
            os.close(lock_descriptor)
            cause = reason(problem) if isinstance(problem, OSError) else str(problem)
            raise JournalError(f"the transaction log cannot be used: {cause}") from problem
        except JournalError:
            os.close(lock_descriptor)
            raise
        self._lock_descriptor = lock_descriptor
        self.set_log_name(f"{settings.instance} {self._table.files[0].created}")
        text = f"the transaction log has {len(recovered.files)} files, up to entry {self.last_txid}"
        if recovered.files and recovered.files[0].number:
            first_file = recovered.files[0].path.name
            text += (
                f"; it begins with {first_file}, entry {self.first_txid}:"
                " what was before that is gone"
            )
        notice(JournalNotice(JournalEvent.RECOVERED, text, txid=self.last_txid))

    def _build(
        self, recovered: LogRecoveryResult, on_durable: Callable[[int], None], disk: Disk
    ) -> None:
        settings, clock = self._settings, self._clock
        size = -(-settings.file_size // _SIZE_UNIT) * _SIZE_UNIT
        sequences, self.sequence_gaps = recovered.sequences, recovered.sequence_gaps
        if settings.client_expiration is not None:
            sequences = without_inactive(sequences, clock() - settings.client_expiration // 1000)
            self.sequence_gaps.drop_publishers(recovered.sequences.keys() - sequences.keys())
        self._table = FileTable(tuple(recovered.files))
        self.run_history = RunHistory(recovered.runs, self._make_run_number)
        self.cache = SourceCache(settings.cache_limit or default_cache_limit())
        location = JournalLocation(
            settings.instance, settings.directory, settings.archive, size, settings.with_topic_index
        )
        self._maintenance = JournalFileMaintenance(
            location,
            self._table,
            recovered.blank_files,
            recovered.next_number,
            disk,
            clock,
            self._notice,
            recovered.publishers_txid,
            self._record_removal,
        )
        self._clock_steps_file = SidecarFile(
            settings.directory / steps_name(settings.instance), disk
        )
        self.clock_steps = recover_clock_steps(
            self._clock_steps_file, recovered, self.cache, self._notice
        )
        if recovered.live_file is not None:
            live_file = recovered.live_file
            position = continue_last_file(recovered, self.clock_steps)
        else:
            live_file, position = begin_new_file(
                settings.instance,
                recovered,
                self.clock_steps,
                self._table,
                self._maintenance,
                size,
                clock(),
                disk,
            )
        self._writer = JournalWriter(
            settings.instance,
            live_file,
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
            self._table, self.cache, lambda: self._writer.durable_txid, self.clock_steps
        )
        self.body_repair = JournalBodyRepair(self._table, self.cache, disk)
        self.record_repair = JournalRecordRepair(
            self._table,
            self.cache,
            disk,
            lambda: self._writer.durable_txid,
            IndexRebuild(self._maintenance, self._lookup),
        )
        # Handles that callers keep, and those that the current file has numbers for.
        self._topics = WeakValueDictionary[tuple[str, str], TopicHandle]()
        self._origins = WeakValueDictionary[tuple[str, str], OriginHandle]()
        self._reuse_definitions(live_file)
        self.write_latency = self._committer.write_latency
        self.write_sizes = self._committer.write_sizes
        # Bound directly, without a wrapper: this is the message path.
        self.append = self._writer.append
        self.append_batch = self._writer.append_batch
        self.append_copies = self._writer.append_copies

    def _store_clock_steps(self) -> None:
        self._clock_steps_file.defer_store(pack_steps(self.clock_steps))
        self._maintenance.queue_task(self._clock_steps_file.store_deferred)

    def record_clock_step(self, seconds: float) -> None:
        """Note that the wall clock has been set by `seconds`: back if negative."""
        self._writer.record_clock_step(round(seconds * MICROSECONDS_PER_SECOND))

    def _reuse_definitions(self, live: LiveFile) -> None:
        for number, topic in live.definitions.topics.items():
            if number:
                handle = self.topic_handle(topic.message_type, topic.name)
                handle.file_number, handle.number = live.number, number
                live.handles.append(handle)
        for number, origin in live.definitions.origins.items():
            if number:
                origin_handle = self.origin_handle(origin.auth_id, origin.path)
                origin_handle.file_number, origin_handle.number = live.number, number
                live.handles.append(origin_handle)

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

    def _store_publishers(self, table: PublisherTable) -> None:
        """Store the table of publishers unless the stored one covers all full files.

        The file exists from the first start on, for operators and tools that read it.
        """
        ends = [file.end_txid for file in self._table.files if file.end_txid is not None]
        if not self._maintenance.publishers_txid or (
            ends and self._maintenance.publishers_txid < ends[-1] - 1
        ):
            self._maintenance.store_publisher_table(table)

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
        return read_queue_points(self._queues_file, self._notice)

    def store_queue_points(self, table: QueuePointTable) -> None:
        """Store the recovery points of queues; see `SidecarFile.store`."""
        self._queues_file.store(pack_queues(table, self._clock()))

    def store_queue_points_at_close(self, table: QueuePointTable) -> None:
        """Store the recovery points at the close, if all entries that they cover are durable."""
        self._queues_file.defer_store(pack_queues(table, self._clock()))

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
        return self._table.estimate_bytes_after(after, self.last_txid, self._writer.bodies_end)

    def find(self, client: int, sequence: int) -> int | None:
        """Return the txid of an entry on stable storage, None if it is not in the log."""
        run = self._positions.run_of(client)
        if run is None:
            return self._lookup.find(client, sequence)
        is_recorded = sequence <= self.durable_txid and self.run_history.number_at(sequence) == run
        return sequence if is_recorded else None

    def position_bookmark(self, txid: int) -> tuple[int, int]:
        """Return a bookmark that names a place in this very log; see `LogPositions.bookmark`."""
        return self._positions.bookmark(txid)

    def is_log_position(self, client: int) -> bool:
        """Return whether the first number of a bookmark stands for this log."""
        return self._positions.run_of(client) is not None

    def set_log_name(self, name: str) -> None:
        """Set the name that distinguishes this log from others in the names of places.

        The default is made of the instance's name and the time when the log was begun.
        """
        self._positions = LogPositions(self.run_history, self._settings.instance, name)

    def last_common_txid(self, client: int, sequence: int) -> int | None:
        """Return the last entry that this log shares with a reader that names a lost entry.

        See `LogPositions.last_common_txid`.
        """
        return self._positions.last_common_txid(client, sequence)

    def find_damaged_entry(self, client: int, sequence: int) -> int | None:
        """Return the txid of a damaged entry that a name may belong to; None if there is none."""
        return self._lookup.find_damaged_entry(client, sequence)

    def find_last_removal(self, topic_predicate: TopicPredicate, after: int) -> LastRemoval | None:
        """Return the last removed message after an entry; None if there is none.

        Args:
            topic_predicate: predicate: true for topics whose messages matter.
            after: the txid of the entry.
        """
        return self._removal_tracker.find_last_removal(topic_predicate, after, self.first_txid)

    def find_later(self, client: int, sequence: int, txid: int) -> int | None:
        """Return the txid of a later entry with the same name; None if there is none."""
        return self._lookup.find_later(client, sequence, txid)

    def first_since(self, timestamp: int) -> int:
        """Return the txid of the first entry at a time (microseconds) or later, else the next."""
        return self._lookup.first_since(timestamp)

    def resolve_bookmark(
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
        return resolve_bookmark(request, self, not_found, self.last_txid if now is None else now)

    def resolve_bookmark_in_steps(
        self, request: BookmarkRequest, not_found: MissingBookmarkPolicy, now: int
    ) -> Generator[None, None, LogSpan]:
        """Resolve a bookmark in steps, one for each name in it; safe to use from any thread."""
        return resolve_bookmark_in_steps(request, self, not_found, now)

    def replay(
        self,
        span: LogSpan,
        topic_predicate: TopicPredicate | None = None,
        kinds: frozenset[JournalEntryKind] = MESSAGES,
        horizon: Callable[[], int] | None = None,
    ) -> JournalCursor:
        """Read a part of the log.

        Args:
            span: the part; see `resolve_bookmark`.
            topic_predicate: predicate: true for topics with entries to read; None for all.
            kinds: the kinds of entries to return.
            horizon: returns the last txid that may be read, which is on stable storage; None for
                all entries on stable storage.
        """
        return JournalCursor(
            self._table,
            self.cache,
            horizon or (lambda: self._writer.durable_txid),
            span,
            topic_predicate,
            kinds,
            self._report_once,
            self.clock_steps,
        )

    def _report_once(self, notice: JournalNotice) -> None:
        """Report damage that replays find, once for each damaged place."""
        damage = notice.path, notice.txid
        if damage not in self._reported_damage:
            if len(self._reported_damage) >= _MAX_REPORTED_DAMAGE:
                self._reported_damage.clear()
            self._reported_damage.add(damage)
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

    def known_topics(self) -> set[JournalTopic]:
        """Return the topics that the log may have entries of, also entries not written yet.

        Raises:
            JournalUnreadableError: a file cannot be read now.
        """
        topics = {JournalTopic(*key) for key in self._topics}
        for file in self.files:
            found = file.topics(self.cache)
            if found is None:
                raise JournalUnreadableError(f"{file.path} cannot be read")
            topics |= found
        return topics

    def is_finalized(self, number: int) -> bool:
        """Return whether a file is full, and nothing more has to be written to it."""
        return self._maintenance.is_finalized(number)

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
        table = PublisherTable(commit.last_txid, stream.sequences, stream.missing_ranges)
        self._maintenance.queue_task(partial(self._maintenance.seal, file, table))
        text = f"{file.path}: is full"
        self._notice(JournalNotice(JournalEvent.ROTATED, text, str(file.path), commit.last_txid))

    def _record_removal(self, file: JournalFile) -> None:
        self._removal_tracker.record_removal(file, self.cache.open(file.path))

    def _drain_commit_queue(self) -> None:
        if self._committer.is_running:
            self._writer.commit_queue.wait_for_space(1.0)
        else:
            self.commit()
