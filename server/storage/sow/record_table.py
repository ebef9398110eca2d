"""Records with their indexes, for queries: of SOW topics, views and conflated topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from server.message_types.base import Extractor, MessageType
from server.message_types.paths import Path
from server.storage.journal.write.blocks import each, part_of
from server.storage.sow.expiry_queue import ExpiryQueue
from server.storage.sow.history import HistoryPoint, RecordHistory, find_unfinished
from server.storage.sow.indexes.hash_index import HashIndex
from server.storage.sow.indexes.memo_index import MEMO_BLOCK_ROWS, MemoIndexes
from server.storage.sow.keys.key_source import KeyHash
from server.storage.sow.keys.partitions import KeyHashes
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.record_table_options import RecordTableOptions
from server.storage.sow.records import Record, RecordChange
from server.storage.sow.row_topics import RowTopics
from server.storage.sow.snapshot import QuerySnapshot
from server.storage.sow.store import PastVersion, RecordStore, RecordStoreError, identity_of

FREE: Final = 0
CURRENT: Final = 1
PAST: Final = 2

_ROW_BYTES: Final = 200
_HASH_ENTRY_BYTES: Final = 250
_MEMO_VALUE_BYTES: Final = 16
"""Approximate bytes of a record besides its own: base, per hash index, per memo index."""

_MAX_EXTRACTORS: Final = 256
_TRIM_BATCH_SIZE: Final = 100
_DROPPED: Final = (Record("", b"", ""),) * 2
"""Entries about past states that are dropped for each record of a batch: more than it adds."""
_READ_BATCH_SIZE: Final = 256
"""Bodies that are read together when indexes are built: few enough for the processor's cache."""


class RecordTable:
    """A store, with everything that follows its changes.

    Args:
        store: the records.
        message_type: the type of their bodies.
        options: see `RecordTableOptions`.

    Attributes:
        key_hash: makes SOW keys from the values of the `Key` fields; None if records are not to be
            found that way.
        updates: records that have been replaced.
        deletes: records that have been deleted.
        queries: queries by clients.
    """

    def __init__(
        self, store: RecordStore, message_type: MessageType, options: RecordTableOptions
    ) -> None:
        self.store: Final = store
        self.message_type: Final = message_type
        self.options: Final = options
        is_findable = options.key_fields and not options.has_pattern
        self.key_hash = KeyHash(options.key_domain) if is_findable else None
        self.updates = 0
        self.deletes = 0
        self.queries = 0
        self.row_states = bytearray(store.row_capacity)
        self.memo_indexes: Final = MemoIndexes(store, self.row_states, message_type)
        self._key_hashes: KeyHashes | None = None
        self.hash_indexes: Final = [
            HashIndex(fields, message_type) for fields in options.hash_indexes
        ]
        self._extractors: Final = lru_cache(maxsize=_MAX_EXTRACTORS)(message_type.extractor)
        self.row_topics: Final = RowTopics(store.row_capacity if options.has_pattern else 0)
        self._snapshots: list[QuerySnapshot] = []
        self._load()
        self.history = self._make_history()
        self._expiry: Final = (
            ExpiryQueue((row, store.read_record(row).expires) for _, row in store.identities())
            if options.has_expiration
            else None
        )

    def _load(self) -> None:
        self._repair_unfinished()
        for row, _ in self.store.past_versions():
            self.row_states[row] = PAST
        for identity, row in self.store.identities():
            self.row_states[row] = CURRENT
            if self.options.has_pattern:
                self.row_topics.set_topic(row, identity.partition("\0")[0])
        self._index_all_records(self.hash_indexes)

    def _repair_unfinished(self) -> None:
        """Complete or undo changes of which a crash left only the past states."""
        unfinished = find_unfinished(self.store, self.store.past_versions())
        for identity, sequence in unfinished.deletions.items():
            self.store.delete(identity, sequence)
        for row in unfinished.rows:
            self.store.delete_past(row)

    def _make_history(self) -> RecordHistory | None:
        history_window_ns = self.options.history_window_ns
        return (
            None
            if history_window_ns is None
            else RecordHistory(self.store, history_window_ns, self.options.history_granularity_ns)
        )

    def _index_all_records(self, indexes: Sequence[HashIndex]) -> None:
        """Add all records to new indexes."""
        rows = (row for _, row in self.store.identities())
        while indexes and (batch := list(islice(rows, _READ_BATCH_SIZE))):
            bodies = self.store.read_bodies(batch)
            for index in indexes:
                index.index_rows(batch, bodies)

    def ensure_hash_index(self, fields: tuple[Path, ...]) -> HashIndex:
        """Return the index over some fields; create it if there is none."""
        for index in self.hash_indexes:
            if index.fields == fields:
                return index
        index = HashIndex(fields, self.message_type)
        self._index_all_records([index])
        self.hash_indexes.append(index)
        return index

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.store)

    @property
    def memory_bytes(self) -> int:
        """Approximate size in bytes: records as they are stored, and the indexes.

        Source: AMPS User Guide, Estimating AMPS Instance Memory Usage.
        """
        record_bytes = (
            _ROW_BYTES
            + _HASH_ENTRY_BYTES * len(self.hash_indexes)
            + _MEMO_VALUE_BYTES * len(self.memo_indexes.fields)
        )
        return self.store.statistics.allocated_bytes + record_bytes * len(self.row_states)

    def extractor(self, fields: tuple[Path, ...]) -> Extractor:
        """Return a function that reads fields of bodies; the latest ones are cached."""
        return self._extractors(fields)

    # ---- single records

    def make_identity(self, key: str, topic: str) -> str:
        """Return the text that identifies a record, from its key and logical topic."""
        return f"{topic}\0{key}" if self.options.has_pattern else key

    def get(self, identity: str) -> Record | None:
        """Return a record; None if it does not exist."""
        row = self.store.find_row(identity)
        return None if row is None else self.store.read_record(row)

    def get_all(self, identities: Iterable[str]) -> dict[str, Record]:
        """Return the records that exist of some identities, by identity.

        Raises:
            RecordStoreError: one of them cannot be read.
        """
        rows: dict[str, int] = {}
        for identity in identities:
            row = self.store.find_row(identity)
            if row is not None:
                rows[identity] = row
        return dict(zip(rows, self.store.read_records([*rows.values()]), strict=True))

    def ensure_space(self, records: Iterable[Record]) -> None:
        """Make sure that the store has space to put records next, in sequence.

        Raises:
            RecordStoreError: there is no space; nothing has changed.
        """
        if self.history is None:
            self.store.ensure_space(records)
            return
        entries: list[Record] = []
        states: dict[str, Record | None] = {}  # of records after the puts so far
        for record in records:
            identity = identity_of(record, pattern=self.options.has_pattern)
            previous = states.get(identity) or self.get(identity)
            if previous is not None:
                entries.append(previous)
            entries += (record, *_DROPPED)
            states[identity] = record
        self.store.ensure_space(entries)

    def ensure_space_for_batch(self, batch: SowRecordBatch) -> None:
        """Make sure that the store has space to put a batch of records next. See `ensure_space`."""
        if self.history is None:
            self.store.ensure_space_for_batch(batch)
        else:
            self.ensure_space(map(batch.record_at, range(len(batch.bodies))))

    def ensure_space_to_remove(self, records: Sequence[Record]) -> None:
        """Make sure that the store has space to remove records next, in sequence.

        Raises:
            RecordStoreError: there is no space; nothing has changed.
        """
        entries: list[Record] = []
        for record in records:
            deletion = record._replace(body=b"")
            entries.append(deletion)
            if self.history is not None:
                entries += (record, deletion, *_DROPPED)
        self.store.ensure_space(entries, to_delete=True)

    def put(self, record: Record, trim_limit: int = _TRIM_BATCH_SIZE) -> RecordChange:
        """Insert or replace a record.

        Args:
            record: the record.
            trim_limit: the maximum number of past states to drop that are older than the window.

        Raises:
            RecordStoreError: the record cannot be stored; nothing has changed.
        """
        store = self.store
        identity = identity_of(record, pattern=self.options.has_pattern)
        row = store.find_row(identity)
        previous = None if row is None else store.read_record(row)
        past_versions = self._put_past_versions(identity, previous, record, deleted=False)
        try:
            row = store.put(identity, record)
        except RecordStoreError:
            self._drop_past_versions(past_versions)
            raise
        if previous is None:
            self._set_row_state(row, CURRENT)
            if self.options.has_pattern:
                self.row_topics.set_topic(row, record.topic)
        else:
            self.updates += 1
        self._on_row_changed(row, previous)
        for index in self.hash_indexes:
            index.index_row(row, record.body)
        if self._expiry is not None:
            self._expiry.set(row, record.expires)
        if self.history is not None:
            self.history.record_change(identity, row, record, past_versions, deleted=False)
            self.trim(record.timestamp, trim_limit)
        return RecordChange(record.key, record.topic, previous, record)

    def put_batch(self, batch: SowRecordBatch, start: int) -> tuple[int, RecordStoreError | None]:
        """Insert or replace the records of a batch, up to the first that fails.

        Args:
            batch: the records.
            start: the index of the first of them.

        Returns:
            The index of the first record that has not been put, and the reason; the number of
            records and None if all have been put.
        """
        if self.history is not None:
            return self._put_with_history(batch, start)
        try:
            saved = self._previous_records(batch, start) if self._snapshots else []
        except RecordStoreError as error:
            return start, error
        result = self.store.put_batch(batch, start)
        for row in result.added_rows:
            self._set_row_state(row, CURRENT)
        self.row_topics.set_topics(result.rows, batch.topic, start)
        self.updates += len(result.rows) - len(result.added_rows)
        for row, record in saved:
            for snapshot in self._snapshots:
                snapshot.save_before_change(row, record)
        for row in result.added_rows if self._snapshots else ():
            for snapshot in self._snapshots:
                snapshot.save_before_change(row, None)
        self.memo_indexes.mark_all_changed(result.rows)
        if result.rows:
            for index in self.hash_indexes:
                index.index_rows(result.rows, batch.bodies[start : result.end])
        if self._expiry is not None:
            expiries = each(part_of(batch.expires, start, result.end), len(result.rows))
            for row, expiry in zip(result.rows, expiries, strict=True):
                self._expiry.set(row, expiry)
        return result.end, result.problem

    def _put_with_history(
        self, batch: SowRecordBatch, start: int
    ) -> tuple[int, RecordStoreError | None]:
        """Put records that end past states, one after the other. See `put_batch`."""
        for position in range(start, len(batch.bodies)):
            try:
                self.put(batch.record_at(position), len(_DROPPED))
            except RecordStoreError as problem:
                return position, problem
        return len(batch.bodies), None

    def _previous_records(self, batch: SowRecordBatch, start: int) -> list[tuple[int, Record]]:
        """Return the records that a batch replaces, with their rows."""
        store = self.store
        rows = [store.find_row(identity) for identity in batch.identities(start)]
        return [(row, store.read_record(row)) for row in dict.fromkeys(rows) if row is not None]

    def remove(self, identity: str, sequence: int, now: int) -> RecordChange | None:
        """Delete a record.

        Args:
            identity: identifies the record.
            sequence: the deletion's position in the instance's order of changes.
            now: the time of the deletion, in nanoseconds since 1970.

        Returns:
            The change; None if there is no such record.

        Raises:
            RecordStoreError: the deletion cannot be stored; nothing has changed.
        """
        previous = self.get(identity)
        if previous is None:
            return None
        marker = previous
        if self.history is not None:
            marker = previous._replace(body=b"", timestamp=now, expires=0, sequence=sequence)
        past_versions = self._put_past_versions(identity, previous, marker, deleted=True)
        try:
            row = self.store.delete(identity, sequence)
        except RecordStoreError:
            self._drop_past_versions(past_versions)
            raise
        self.deletes += 1
        self.row_states[row] = FREE
        self._on_row_changed(row, previous)
        for index in self.hash_indexes:
            index.remove(row)
        if self._expiry is not None:
            self._expiry.set(row, 0)
        if self.history is not None:
            self.history.record_change(identity, row, marker, past_versions, deleted=True)
            self.trim(now, len(_DROPPED))
        return RecordChange(previous.key, previous.topic, previous, None)

    def _put_past_versions(
        self, identity: str, previous: Record | None, successor: Record, *, deleted: bool
    ) -> list[tuple[int, PastVersion]]:
        """Store the past states that a change is about to create.

        Returns:
            These states, with their rows.

        Raises:
            RecordStoreError: a state cannot be stored; nothing has changed.
        """
        past_versions: list[tuple[int, PastVersion]] = []
        if self.history is None or previous is None:
            return past_versions
        for past in self.history.plan_past_versions(identity, previous, successor, deleted=deleted):
            try:
                row = self.store.put_past(past)
            except RecordStoreError:
                self._drop_past_versions(past_versions)
                raise
            self._set_row_state(row, PAST)
            self._on_row_changed(row, None)
            past_versions.append((row, past))
        return past_versions

    def _drop_past_versions(self, past_versions: Iterable[tuple[int, PastVersion]]) -> None:
        """Drop the past states of a change that could not be stored, the last one first."""
        for row, _ in reversed(list(past_versions)):
            self.row_states[row] = FREE
            with suppress(RecordStoreError):  # the next start drops it
                self.store.delete_past(row)

    def roll_back(
        self,
        records: Mapping[str, Record | None],
        sequence: int,
        is_lost: Callable[[PastVersion], bool],
    ) -> int:
        """Restore earlier states of records, and drop all past states that reflect later changes.

        Args:
            records: the states to restore, by identity; None for a record that is not to exist.
            sequence: the position of the restoration in the instance's order of changes.
            is_lost: tests whether a past state comes from a change that was lost.

        Returns:
            The number of past states dropped.

        Raises:
            RecordStoreError: the store has no space; another call continues.
        """
        self.history = None  # these changes create no past states
        dropped = 0
        for row, past in list(self.store.past_versions()):
            record = records.get(past.identity)
            if is_lost(past) or (record is not None and past.record.sequence >= record.sequence):
                self.store.delete_past(row)
                self.row_states[row] = FREE
                self._on_row_changed(row, None)
                dropped += 1
        for identity, record in records.items():
            if record is None:
                self.remove(identity, sequence, 0)
            else:
                self.put(record)
        self.history = self._make_history()
        return dropped

    def rekey_records(self, moves: Iterable[tuple[str, Record]]) -> None:
        """Move records to other SOW keys, with their past states; do not notify subscribers.

        Args:
            moves: the identity of each, and the record with its new key. The next one is requested
                when the one before has been made. If a record of the same sequence is there
                already, the rest of the move is made.

        Raises:
            RecordStoreError: the store has no space; another call continues.
        """
        self.history = None  # these changes create no past states
        deletes = self.deletes
        past: dict[str, list[tuple[int, PastVersion]]] = {}
        for row, version in self.store.past_versions():
            past.setdefault(version.identity, []).append((row, version))
        for identity, record in moves:
            target = identity_of(record, pattern=self.options.has_pattern)
            own_versions, target_versions = past.pop(identity, []), past.setdefault(target, [])
            known_versions = {
                (version.record.sequence, version.is_deleted) for _, version in target_versions
            }
            for _, version in own_versions:
                if (version.record.sequence, version.is_deleted) not in known_versions:
                    copy = version._replace(
                        identity=target, record=version.record._replace(key=record.key)
                    )
                    row = self.store.put_past(copy)
                    self._set_row_state(row, PAST)
                    self._on_row_changed(row, None)
                    target_versions.append((row, copy))
            if self.store.find_row(target) is None:
                self.put(record)
            for row, _ in own_versions:
                self.store.delete_past(row)
                self.row_states[row] = FREE
                self._on_row_changed(row, None)
            self.remove(identity, record.sequence, 0)
        self.deletes = deletes
        self.history = self._make_history()

    def _set_row_state(self, row: int, state: int) -> None:
        if self._key_hashes is not None:
            self._key_hashes.invalidate_row(row)
        if row == len(self.row_states):
            self.row_states.append(state)
            if self.options.has_pattern:
                self.row_topics.add_row()
        else:
            self.row_states[row] = state

    def _on_row_changed(self, row: int, previous: Record | None) -> None:
        self.memo_indexes.mark_changed(row)
        for snapshot in self._snapshots:
            snapshot.save_before_change(row, previous)

    # ---- time

    def next_expiry(self) -> int | None:
        """Return when `find_expired` or `trim` next have work, in nanoseconds since 1970."""
        expiries = [
            expiry
            for expiry in (
                self._expiry.next_expiry() if self._expiry is not None else None,
                self.history.next_trim() if self.history is not None else None,
            )
            if expiry is not None
        ]
        return min(expiries, default=None)

    def shift_times(self, step: int) -> None:
        """Shift expiry times and past states by a step of the wall clock, in nanoseconds."""
        if self._expiry is not None:
            self._expiry.remap_times(lambda _, expires: max(expires + step, 1))
        if self.history is not None:
            self.history.shift_times(step)

    def correct_stored_times(
        self, now: int, default_lifetime: int, steps: Sequence[tuple[int, int]]
    ) -> None:
        """Correct the times of records that were stored before the start.

        Args:
            now: the time in nanoseconds since 1970.
            default_lifetime: nanoseconds.
            steps: for each step of the wall clock, the sequence below which changes precede it,
                and its nanoseconds.
        """
        if self.history is not None:
            for sequence, step in steps:
                self.history.shift_times(step, sequence)
        expiry, store = self._expiry, self.store
        if expiry is None or not (steps or expiry.latest_expiry > now + default_lifetime):
            return

        def correct_expiry(row: int, _: int) -> int:
            record = store.read_record(row)
            lifetime = record.expires - record.timestamp
            published_ns = record.timestamp + sum(by for end, by in steps if record.sequence < end)
            return max(min(published_ns, now) + lifetime, 1)

        expiry.remap_times(correct_expiry)

    def find_expired(self, now: int) -> Record | None:
        """Return a record that has expired, None if there is none."""
        row = self._expiry.find_due(now) if self._expiry is not None else None
        return None if row is None else self.store.read_record(row)

    def trim(self, now: int, limit: int = _TRIM_BATCH_SIZE) -> None:
        """Drop past states that are older than the window, a limited number per call.

        If there is no space to record that, a later call drops them.
        """
        if self.history is None:
            return
        for _ in range(limit):
            row = self.history.find_outdated(now)
            if row is None:
                return
            record = self.store.read_record(row)
            try:
                self.history.drop_oldest()
            except RecordStoreError:
                return
            self._on_row_changed(row, record)
            self.row_states[row] = FREE

    def build_indexes(self) -> Iterator[None]:
        """Build the configured memo indexes of the existing records, in slices."""
        if self.options.memo_fields:
            for block in range((self.store.row_capacity + MEMO_BLOCK_ROWS - 1) // MEMO_BLOCK_ROWS):
                self.memo_indexes.load_columns(block, self.options.memo_fields)
                yield

    # ---- for queries

    @property
    def key_hashes(self) -> KeyHashes:
        """The hashes of keys, by rows; kept from the first query that uses them."""
        if self._key_hashes is None:
            self._key_hashes = KeyHashes(self.store)
        return self._key_hashes

    def open_snapshot(self, *, keep_all: bool) -> QuerySnapshot:
        """Open a snapshot that saves records before they change."""
        snapshot = QuerySnapshot(self.store.row_capacity, keep_all=keep_all)
        self._snapshots.append(snapshot)
        return snapshot

    def close_snapshot(self, snapshot: QuerySnapshot) -> None:
        """Close a snapshot; harmless if it is closed already."""
        if snapshot in self._snapshots:
            self._snapshots.remove(snapshot)

    def row_mask(
        self, topic_predicate: Callable[[str], bool] | None, point: HistoryPoint | None, now: int
    ) -> NDArray[np.bool_]:
        """Return for each row whether it is a record of some topics, now or as of a past point.

        Args:
            topic_predicate: tests whether a logical topic is queried; None for all.
            point: the past point; None for now.
            now: the time of the query, in nanoseconds since 1970.
        """
        states = np.frombuffer(bytes(self.row_states), np.uint8)
        if point is None or self.history is None:
            mask: NDArray[np.bool_] = states == CURRENT
        else:
            current = self.history.current_rows_at(point, now)
            mask = np.zeros(len(states), np.bool_) if current is None else current
        if topic_predicate is not None and self.options.has_pattern:
            mask &= self.row_topics.row_mask(topic_predicate)
        return mask

    def identities(
        self, keys: Iterable[str], topic_predicate: Callable[[str], bool] | None
    ) -> Sequence[str]:
        """Return the identities that records of some keys, and some logical topics, would have."""
        if not self.options.has_pattern:
            return list(dict.fromkeys(keys))
        topics = [*filter(topic_predicate, self.row_topics.names)]
        return [self.make_identity(key, topic) for key in dict.fromkeys(keys) for topic in topics]
