"""A record store in a file of its own, for persistent topics.

In memory are, for each record, its identity and the location of its entry in the file. The records
themselves are read through memory maps, so that the operating system keeps those in use in memory.
At a start the whole log is read once and applied, entry by entry, in the order of writing.

A killed process loses nothing that was applied: the operating system keeps all writes through a
memory map. A power failure may lose everything after the last commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from server.message_types.bulk import JoinedBodies, join
from server.storage.sow.group_commit import SowCommitter
from server.storage.sow.previous_versions import find_previous_versions
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import Record
from server.storage.sow.slab import slab_format as form
from server.storage.sow.slab.entry_reader import Slabs
from server.storage.sow.slab.entry_writer import index_batch
from server.storage.sow.slab.index_builder import IndexBuilder
from server.storage.sow.slab.residency import resident_share
from server.storage.sow.slab.slab_file import DamagedFileError, SlabFile
from server.storage.sow.slab.slab_format import ENTRY, SlabEntryKind, padded
from server.storage.sow.slab.slab_log import SlabLog
from server.storage.sow.slab.slab_scan import SlabExtent, scan_slabs
from server.storage.sow.store import (
    PastVersion,
    PreviousVersions,
    PutResult,
    RecordStoreError,
    StoreCallback,
    StoreHeader,
    StoreStatistics,
    identity_of,
)
from server.util.file_lock import free_name

_FREE: Final = -1

_SPARE_SLABS: Final = 2
"""Slabs that a log may have beyond twice its live bytes before cleaning begins."""
_CLEANED_PER_APPENDED: Final = 2
"""Bytes to clean for each byte appended: with half of the log live, this keeps pace."""
_COMPACTION_SLICE: Final = 1 << 18
"""Bytes to clean in one slice of a compaction."""


class StoreRecovery(NamedTuple):
    """The findings of opening a file.

    Attributes:
        records: the number of records.
        lost_bytes: bytes that a crash left unfinished, after the last whole entry.
        damage: the damage of the file that was found, None if it is good.
        damaged_path: the name of that file now.
        blank_file_size: size of an existing file without content, in bytes; None for any other.
        topics: the topics that entries name, also those of deleted records.
        is_new: whether the file is a new one.
    """

    records: int
    lost_bytes: int
    damage: str | None = None
    damaged_path: Path | None = None
    blank_file_size: int | None = None
    topics: Set[str] = frozenset()
    is_new: bool = False


class FileStore:
    """A `RecordStore` in a memory-mapped file. See `open_store`.

    Args:
        file: the file, open for writing.
        committer: the thread that synchronises files.
        on_synchronised: called on the engine's thread after every synchronisation, with the error,
            or None.
        topic: the topic of the records; their entries need not name it.
        has_pattern: whether records of several topics are in the file.

    Attributes:
        lost_bytes: bytes that a crash left unfinished.
        blank_file_size: see `StoreRecovery`.
        topics: see `StoreRecovery`.
        is_new: see `StoreRecovery`.
        keeps_slabs: set while the file is copied: slabs are not cleaned, so none is reused.

    Raises:
        DamagedFileError: the file fails a checksum.
    """

    def __init__(
        self,
        file: SlabFile,
        committer: SowCommitter,
        on_synchronised: Callable[[OSError | None], None],
        *,
        topic: str,
        has_pattern: bool,
    ) -> None:
        self.header: Final[StoreHeader] = file
        self._file: Final = file
        self._topic: Final = topic
        self._has_pattern: Final = has_pattern
        self._row_by_identity: dict[str, int] = {}
        self._locations = array("q")
        self._entry_sizes = array("I")
        self._free_rows: list[int] = []
        self._past_row_by_number: dict[int, int] = {}  # number -> row
        self._past_number_by_row: dict[int, int] = {}  # row -> number
        self._next_number = 1
        self._live_bytes = 0
        self._last_sequence = file.commit_point.sequence
        self._slabs: Final = Slabs(file.slabs, file.slab_size)
        builder = IndexBuilder(
            topic if has_pattern else None,
            self._row_by_identity,
            self._locations,
            self._entry_sizes,
            self._free_rows,
            self._apply_past_entry,
        )
        log_end = scan_slabs(file, partial(self._apply_slab, builder))
        builder.finish()
        self.lost_bytes: Final = log_end.lost_bytes
        self.blank_file_size: Final = file.blank_file_size
        self.is_new: Final = file.is_new
        self.topics: Set[str] = builder.topics
        self._log = SlabLog(file, log_end, committer, on_synchronised, topic)
        self._log.sequence = self._last_sequence
        self._appended_bytes_at_cleaning = 0
        self._is_cleaning_paused = False
        self.keeps_slabs = False

    # ---- recovery

    def _apply_slab(self, builder: IndexBuilder, extent: SlabExtent) -> int:
        """Apply the entries of a slab of the log; return their end."""
        size = self._file.slab_size
        position, live, sequence = builder.apply_slab(
            self._file.slabs[extent.slab_index],
            extent.slab_index * size,
            form.FIRST_ENTRY,
            size if extent.end is None else extent.end,
            extent.header.epoch & 0xFFFFFFFF,
        )
        self._live_bytes += live
        self._last_sequence = max(self._last_sequence, sequence)
        return position

    def _apply_past_entry(self, location: int, data: bytes) -> None:
        """Apply a log entry that is not for a current record; its checksum is correct."""
        _, length, _, kind, _, _, _, _, _, _, _, number = ENTRY.unpack_from(data)
        if kind == SlabEntryKind.DROPPED:
            if number in self._past_row_by_number:
                self._release_past_row(self._past_row_by_number[number])
        elif kind in (SlabEntryKind.PAST, SlabEntryKind.PAST_DELETED):
            self._set_past_location(number, location, padded(length))
            self._next_number = max(self._next_number, number + 1)
        else:
            raise DamagedFileError(f"{self._file.path} has an entry of unknown kind {kind}")

    # ---- reading

    @property
    def row_capacity(self) -> int:
        """See `RecordStore.row_capacity`."""
        return len(self._locations)

    @property
    def last_sequence(self) -> int:
        """See `RecordStore.last_sequence`."""
        return self._log.sequence

    @property
    def statistics(self) -> StoreStatistics:
        """See `RecordStore.statistics`."""
        return StoreStatistics(
            records=len(self._row_by_identity) + len(self._past_row_by_number),
            stored_bytes=self._live_bytes,
            allocated_bytes=form.PAGE + self._log.slab_count * self._log.slab_size,
            slab_size=self._log.slab_size,
            slabs=self._log.slab_count,
            path=str(self._file.path),
            maps=len(self._file.slabs) + 1,
        )

    def resident_share(self) -> float:
        """See `RecordStore.resident_share`."""
        return resident_share(self._file.slabs)

    def __len__(self) -> int:
        """See `RecordStore.__len__`."""
        return len(self._row_by_identity)

    def find_row(self, identity: str) -> int | None:
        """See `RecordStore.find_row`."""
        return self._row_by_identity.get(identity)

    def read_record(self, row: int) -> Record:
        """See `RecordStore.read_record`."""
        records = self._slabs.read_records(self._locations, (row,), self._topic)
        if records is None or self._file.guard.lost:
            return self._read_record(self._locations[row])
        return records[0]

    def _read_record(self, location: int) -> Record:
        return form.decode_record(self._file.read(location), self._topic)

    def read_bodies(self, rows: Sequence[int]) -> list[bytes]:
        """See `RecordStore.read_bodies`."""
        bodies = self._slabs.read_bodies(self._locations, rows)
        if bodies is None or self._file.guard.lost:  # perhaps the bytes just read
            return [self.read_record(row).body for row in rows]
        return bodies

    def read_joined_bodies(self, rows: Sequence[int]) -> JoinedBodies:
        """See `RecordStore.read_joined_bodies`."""
        bodies = self._slabs.join_bodies(self._locations, rows)
        if bodies is None or self._file.guard.lost:
            return join([b"" if row < 0 else self.read_record(row).body for row in rows])
        return JoinedBodies(*bodies)

    def read_records(self, rows: Sequence[int]) -> list[Record]:
        """See `RecordStore.read_records`."""
        records = self._slabs.read_records(self._locations, rows, self._topic)
        if records is None or self._file.guard.lost:
            return [self.read_record(row) for row in rows]
        return records

    def identities(self) -> Iterator[tuple[str, int]]:
        """See `RecordStore.identities`."""
        return iter(self._row_by_identity.items())

    def past_versions(self) -> Iterator[tuple[int, PastVersion]]:
        """See `RecordStore.past_versions`."""
        for row in list(self._past_row_by_number.values()):
            data = self._file.read(self._locations[row])
            record = form.decode_record(data, self._topic)
            kind = form.entry_kind(data)
            identity = identity_of(record, pattern=self._has_pattern)
            yield row, PastVersion(identity, record, kind == SlabEntryKind.PAST_DELETED)

    def find_previous_versions(self, sequence: int) -> PreviousVersions:
        """See `RecordStore.find_previous_versions`."""
        return find_previous_versions(self._file, sequence, self._topic, pattern=self._has_pattern)

    # ---- writing

    def ensure_space(self, records: Iterable[Record], *, to_delete: bool = False) -> None:
        """See `RecordStore.ensure_space`."""
        try:
            self._log.ensure_space(records, to_delete=to_delete)
        except RecordStoreError:
            self._clean_for_space()
            raise

    def ensure_space_for_batch(self, batch: SowRecordBatch) -> None:
        """See `RecordStore.ensure_space_for_batch`."""
        try:
            self._log.ensure_space_for_batch(batch)
        except RecordStoreError:
            self._clean_for_space()
            raise

    def pause_cleaning(self) -> None:
        """See `RecordStore.pause_cleaning`."""
        self._is_cleaning_paused = True

    def resume_cleaning(self) -> None:
        """See `RecordStore.resume_cleaning`."""
        self._is_cleaning_paused = False
        self._clean()

    def put(self, identity: str, record: Record) -> int:
        """See `RecordStore.put`."""
        try:
            location, size = self._log.append(SlabEntryKind.RECORD, record)
        except RecordStoreError:
            self._clean_for_space()
            raise
        row = self._set_location(identity, location, size)
        self._clean()
        return row

    def put_batch(self, batch: SowRecordBatch, start: int) -> PutResult:
        """See `RecordStore.put_batch`. A record that begins a slab is appended by itself."""
        count, end = len(batch.bodies), start
        rows: list[int] = []
        added: list[int] = []
        try:
            while end < count:
                location, sizes = self._log.append_batch(batch, end)
                placed_rows, new_rows, added_bytes = index_batch(
                    self._row_by_identity,
                    self._locations,
                    self._entry_sizes,
                    self._free_rows,
                    batch,
                    end,
                    location,
                    sizes,
                )
                self._live_bytes += added_bytes
                rows += placed_rows
                added += new_rows
                end += len(placed_rows)
                if end < count:
                    record = batch.record_at(end)
                    identity = identity_of(record, pattern=self._has_pattern)
                    is_known = identity in self._row_by_identity
                    location, size = self._log.append(SlabEntryKind.RECORD, record)
                    row = self._set_location(identity, location, size)
                    rows.append(row)
                    if not is_known:
                        added.append(row)
                    end += 1
        except RecordStoreError as problem:
            self._clean_for_space()
            return PutResult(end, rows, added, problem)
        self._clean()
        return PutResult(end, rows, added)

    def delete(self, identity: str, sequence: int) -> int:
        """See `RecordStore.delete`."""
        row = self._row_by_identity[identity]
        key, _, topic, timestamp, expires, *_ = self.read_record(row)
        self._log.append(
            SlabEntryKind.DELETED, Record(key, b"", topic, timestamp, expires, sequence)
        )
        del self._row_by_identity[identity]
        self._release_row(row)
        self._clean()
        return row

    def put_past(self, past: PastVersion) -> int:
        """See `RecordStore.put_past`."""
        number = self._next_number
        kind = SlabEntryKind.PAST_DELETED if past.is_deleted else SlabEntryKind.PAST
        location, size = self._log.append(kind, past.record, number)
        self._next_number += 1
        row = self._set_past_location(number, location, size)
        self._clean()
        return row

    def delete_past(self, row: int) -> None:
        """See `RecordStore.delete_past`."""
        self._log.append(
            SlabEntryKind.DROPPED, Record("", b"", self._topic), self._past_number_by_row[row]
        )
        self._release_past_row(row)
        self._clean()

    def _set_location(self, identity: str, location: int, size: int) -> int:
        row = self._row_by_identity.get(identity)
        if row is None:
            row = self._row_by_identity[identity] = self._allocate_row(location, size)
        else:
            self._live_bytes -= self._entry_sizes[row]
            self._locations[row] = location
            self._entry_sizes[row] = size
        self._live_bytes += size
        return row

    def _set_past_location(self, number: int, location: int, size: int) -> int:
        row = self._past_row_by_number.get(number)
        if row is None:
            row = self._past_row_by_number[number] = self._allocate_row(location, size)
            self._past_number_by_row[row] = number
        else:
            self._live_bytes -= self._entry_sizes[row]
            self._locations[row] = location
            self._entry_sizes[row] = size
        self._live_bytes += size
        return row

    def _allocate_row(self, location: int, size: int) -> int:
        if self._free_rows:
            row = self._free_rows.pop()
            self._locations[row] = location
            self._entry_sizes[row] = size
            return row
        self._locations.append(location)
        self._entry_sizes.append(size)
        return len(self._locations) - 1

    def _release_row(self, row: int) -> None:
        self._live_bytes -= self._entry_sizes[row]
        self._locations[row] = _FREE
        self._free_rows.append(row)

    def _release_past_row(self, row: int) -> None:
        del self._past_row_by_number[self._past_number_by_row.pop(row)]
        self._release_row(row)

    # ---- stable storage

    def commit(self, callback: StoreCallback | None = None) -> None:
        """See `RecordStore.commit`."""
        self._log.commit(callback)

    def close(self) -> None:
        """See `RecordStore.close`."""
        self._log.close()

    # ---- cleaning

    def _clean(self) -> None:
        """Clean in proportion to the bytes appended, if much of the log is superseded."""
        if self._is_cleaning_paused:
            return
        log = self._log
        is_small = log.log_bytes <= 2 * self._live_bytes + _SPARE_SLABS * log.slab_size
        if is_small or self.keeps_slabs:
            self._appended_bytes_at_cleaning = log.appended_bytes
            return
        self._clean_bytes(
            (log.appended_bytes - self._appended_bytes_at_cleaning) * _CLEANED_PER_APPENDED
        )
        self._appended_bytes_at_cleaning = log.appended_bytes

    def _clean_for_space(self) -> None:
        """Clean until a slab is free for later entries, where possible: the file cannot grow."""
        log = self._log
        if log.awaiting_commit_count:
            log.commit()  # the commits before may have shared a synchronisation
            return
        dead_bytes = log.log_bytes - self._live_bytes
        has_dead_slab = dead_bytes >= log.slab_size
        # The newest slab cannot be cleaned; it can if another one follows.
        if not has_dead_slab and (2 * dead_bytes < log.slab_size or not log.seal_only_slab()):
            return
        tail_epoch = log.tail_epoch
        while log.tail_epoch == tail_epoch and self._clean_bytes(log.slab_size):
            pass
        for _ in range(2):  # see `SlabLog._release_freed_slabs`
            log.commit()

    def _clean_bytes(self, amount: int) -> bool:
        """Clean at least `amount` bytes of the oldest slabs; return False if none is left."""
        log = self._log
        topic = self._topic if self._has_pattern else None
        while amount > 0:
            cleaned = log.clean_records(amount, self._row_by_identity, self._locations, topic)
            if cleaned:
                amount -= cleaned
                continue
            try:
                next_entry = log.next_to_clean()
                if next_entry is None:
                    return False
                location, data = next_entry
                size = padded(len(data))
                self._move_entry(location, data)
            except RecordStoreError:
                return False  # no space to move to; cleaned parts stay cleaned
            log.advance_clean_position(size)
            amount -= size
        return True

    def _move_entry(self, location: int, data: bytes) -> None:
        """Append an entry again if it is live; its row stays the same."""
        kind = form.entry_kind(data)
        number = form.entry_number(data)
        record = form.decode_record(data, self._topic)
        if kind == SlabEntryKind.RECORD:
            row = self._row_by_identity.get(identity_of(record, pattern=self._has_pattern))
        elif kind in (SlabEntryKind.PAST, SlabEntryKind.PAST_DELETED):
            row = self._past_row_by_number.get(number)
        else:
            return
        if row is not None and self._locations[row] == location:
            self._locations[row], _ = self._log.append(
                SlabEntryKind(kind), record, number, moved=True
            )

    def compact(self) -> Iterator[None]:
        """See `RecordStore.compact`.

        The first pass moves all records out of the oldest slabs; slabs at the beginning of the file
        are then free, and the second pass moves the records there.
        """
        log = self._log
        for _ in range(2):
            log.begin_slab()
            head_epoch = log.head_epoch
            while log.tail_epoch < head_epoch and self._clean_bytes(_COMPACTION_SLICE):
                yield
            for _ in range(2):
                yield from self._commit_all()
            log.shrink()

    def _commit_all(self) -> Iterator[None]:
        """Commit, in as many slices as it takes.

        Raises:
            RecordStoreError: the file cannot be flushed to stable storage.
        """
        outcome: list[RecordStoreError | None] = []
        self._log.commit(outcome.append)
        while not outcome:
            yield
        if outcome[0] is not None:
            raise outcome[0]


def open_store(
    path: Path,
    committer: SowCommitter,
    on_synchronised: Callable[[OSError | None], None],
    *,
    topic: str,
    pattern: bool = False,
    slab_size: int,
    initial_slabs: int = 1,
) -> tuple[FileStore, StoreRecovery]:
    """Open a topic's file, or create it. Rename a damaged file, and begin an empty one.

    Args:
        path: the file; missing directories are created.
        committer: the thread that synchronises files.
        on_synchronised: called on the engine's thread after every synchronisation, with the error,
            or None.
        topic: the name of the topic.
        pattern: whether it holds many logical topics.
        slab_size: bytes of a slab, for a new file.
        initial_slabs: slabs of a new file.

    Raises:
        FileInUseError: another process has the file open.
        OtherVersionError: the file has another version of the format; nothing has been changed.
        OSError: the file cannot be opened, created or renamed.
    """

    def open_once() -> FileStore:
        file = SlabFile(path, slab_size, initial_slabs)
        try:
            return FileStore(file, committer, on_synchronised, topic=topic, has_pattern=pattern)
        except BaseException:
            file.close()
            raise

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        store = open_once()
    except DamagedFileError as error:
        damaged_path = path.rename(free_name(path))
        store = open_once()
        return store, StoreRecovery(0, 0, str(error), damaged_path, is_new=True)
    topics, store.topics = store.topics, frozenset()  # frees a set that may be large
    return store, StoreRecovery(
        len(store),
        store.lost_bytes,
        blank_file_size=store.blank_file_size,
        topics=topics,
        is_new=store.is_new,
    )
