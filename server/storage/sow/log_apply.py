"""Applies entries of the log to the records of a topic.

An entry holds the outcome of a publish: its record is the body under the key that is recorded with
it. So most entries become records in batches (`record_batch.py`), whatever processing the topic
applies to messages before it records them. The others do something else, or have a record that
depends on the earlier one, or a text as the key; these are applied one by one, each in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from server.storage.journal import MESSAGES, JournalEntryKind
from server.storage.journal.format.layout import LATE_ENTRY_FLAG, decode_text, split_extras
from server.storage.sow.record_batch import SowRecordBatch, TopicColumn
from server.storage.sow.records import NANOSECONDS, NANOSECONDS_IN_MICROSECOND, Record, is_later
from server.storage.sow.rekey import current_record_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from server.storage.journal import FieldColumn, JournalEntry, RawEntryRange
    from server.storage.sow.topic_records import SowTopicRecords

_MIN_BATCH_SIZE: Final = 4
"""Minimum number of entries that are worth applying as a batch."""

_PUBLISHES: Final = sorted(MESSAGES)


def apply_entry_range(sow: SowTopicRecords, entry_range: RawEntryRange) -> None:
    """Apply entries of the log, all of which are for a topic, to its records.

    Raises:
        RecordStoreError: a record cannot be stored; those of the entries before it have been.
    """
    plain = _complete_mask(entry_range)
    for start, end in equal_value_ranges(plain):
        if plain[start] and end - start >= _MIN_BATCH_SIZE:
            _, problem = sow.table.put_batch(_batch_of(sow, entry_range.part(start, end)), 0)
            if problem is not None:
                raise problem
        else:
            for position in range(start, end):
                apply_entry(sow, entry_range.entry_at(position))


def equal_value_ranges(values: npt.NDArray[np.generic]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of consecutive equal values, as start and end."""
    if not len(values):
        return
    edges = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    yield from zip([0, *edges], [*edges, len(values)], strict=True)


def _complete_mask(entry_range: RawEntryRange) -> npt.NDArray[np.bool_]:
    """Return which entries hold a complete record, with a number as its key."""
    columns = entry_range.to_array()
    plain: npt.NDArray[np.bool_] = np.isin(columns["kind"], _PUBLISHES)
    plain &= (columns["sow_key"] != 0) & ((columns["flags"] & LATE_ENTRY_FLAG) == 0)
    plain[entry_range.find_given_keys()] = False
    return plain


def _batch_of(sow: SowTopicRecords, entry_range: RawEntryRange) -> SowRecordBatch:
    """Return the records of plain entries."""
    columns = entry_range.to_array()
    timestamps_ns = columns["timestamp"] * NANOSECONDS_IN_MICROSECOND
    lifetimes = columns["expiration"].astype(np.int64) * NANOSECONDS
    bodies, correlation_ids = _with_correlation_ids(entry_range)
    topic: TopicColumn = sow.name
    if sow.is_container:
        topics = entry_range.definitions.topics
        topic = [topics[number].name for number in columns["topic"].tolist()]
    return SowRecordBatch(
        topic,
        columns["sow_key"].tolist(),
        bodies,
        columns["txid"].tolist(),
        _compact_column(timestamps_ns),
        _compact_column(np.where(lifetimes, timestamps_ns + lifetimes, 0)),
        _compact_column(columns["client"]),
        columns["sequence"].tolist(),
        correlation_ids,
    )


def _with_correlation_ids(entry_range: RawEntryRange) -> tuple[Sequence[bytes], Sequence[str]]:
    """Return the bodies of entries, and their correlation ids, empty if there are none."""
    data, lengths = entry_range.split_bodies(), entry_range.to_array()["extras_length"]
    if not lengths.any():
        return data, ()
    parts = [
        split_extras(body, length) for body, length in zip(data, lengths.tolist(), strict=True)
    ]
    return [body for body, _, _ in parts], [decode_text(text) for _, text, _ in parts]


def _compact_column(column: npt.NDArray[np.generic]) -> FieldColumn:
    """Return a column as a single value if all entries have the same value."""
    if (column == column[0]).all():
        value: int = column[0].item()
        return value
    values: Sequence[int] = column.tolist()
    return values


class LogRekeyer:
    """Applies entries with SOW keys that the topic may have made differently at their time.

    When all records are made from the log, they get the keys that the topic makes now. A deletion
    names the keys of its time; one that no record has stands for the record that had it then.

    Args:
        sow: a topic without records, which makes keys from fields; see `rekey.py`.
    """

    def __init__(self, sow: SowTopicRecords) -> None:
        self._sow: Final = sow
        self._current_by_recorded: Final[dict[str, str]] = {}

    def apply(self, entry_range: RawEntryRange) -> None:
        """Apply entries of the log, all of which are for the topic, to its records.

        Raises:
            RecordStoreError: a record cannot be stored; those of the entries before it have been.
        """
        keys = self._recorded_and_current_keys(entry_range)
        if not self._current_by_recorded and all(
            recorded == current for recorded, current in keys.values()
        ):
            apply_entry_range(self._sow, entry_range)
            return
        for position in range(len(entry_range)):
            entry = entry_range.entry_at(position)
            if position in keys:
                recorded, current = keys[position]
                self._current_by_recorded.pop(_identity_of(entry, recorded), None)
                if recorded != current:
                    self._current_by_recorded[_identity_of(entry, recorded)] = current
                _put(self._sow, entry, record_of(self._sow, entry)._replace(key=current))
            elif entry.kind == JournalEntryKind.SOW_DELETE:
                _delete(
                    self._sow,
                    entry,
                    [self._current_key(entry, key) for key in _deleted_keys(entry)],
                )
            else:
                apply_entry(self._sow, entry)

    def _recorded_and_current_keys(self, entry_range: RawEntryRange) -> dict[int, tuple[str, str]]:
        """Return, for each entry with a record, its recorded key and its present key."""
        columns, names = entry_range.to_array(), entry_range.definitions.topics
        bodies, _ = _with_correlation_ids(entry_range)
        is_keyed = np.isin(columns["kind"], _PUBLISHES) & (columns["sow_key"] != 0)
        keys: dict[int, tuple[str, str]] = {}
        for number in set(columns["topic"][is_keyed].tolist()):
            positions = np.flatnonzero(is_keyed & (columns["topic"] == number)).tolist()
            recorded = [str(columns["sow_key"][index]) for index in positions]
            topic_bodies = [bodies[index] for index in positions]
            current = current_record_keys(self._sow, names[number].name, topic_bodies, recorded)
            keys |= zip(positions, zip(recorded, current, strict=True), strict=True)
        return keys

    def _current_key(self, entry: JournalEntry, key: str) -> str:
        identity = self._sow.table.make_identity(key, entry.topic.name)
        if self._sow.table.store.find_row(identity) is not None:
            return key
        return self._current_by_recorded.get(_identity_of(entry, key), key)


def _identity_of(entry: JournalEntry, key: str) -> str:
    return f"{entry.topic.name}\0{key}"


def apply_entry(sow: SowTopicRecords, entry: JournalEntry) -> None:
    """Apply an entry of the log to the records of a topic.

    Raises:
        RecordStoreError: a record cannot be stored.
    """
    if entry.kind == JournalEntryKind.SOW_DELETE:
        _delete(sow, entry, _deleted_keys(entry))
    elif entry.kind in (JournalEntryKind.PUBLISH, JournalEntryKind.DELTA_PUBLISH):
        _put(sow, entry, record_of(sow, entry))


def _deleted_keys(entry: JournalEntry) -> list[str]:
    """Return the SOW keys that a deletion names."""
    return msgspec.json.decode(entry.body, type=list[str])


def _delete(sow: SowTopicRecords, entry: JournalEntry, keys: Sequence[str]) -> None:
    timestamp_ns = entry.timestamp * NANOSECONDS_IN_MICROSECOND
    for record in sow.find_by_keys(keys, lambda name: name == entry.topic.name):
        if not is_superseded(entry, record):
            sow.remove(record, entry.txid, timestamp_ns)


def _put(sow: SowTopicRecords, entry: JournalEntry, record: Record) -> None:
    identity = sow.table.make_identity(record.key, record.topic)
    if not entry.is_late or not is_superseded(entry, sow.table.get(identity)):
        sow.apply(record)


def is_superseded(entry: JournalEntry, record: Record | None) -> bool:
    """Return whether an entry has no effect: its publisher's later message made the record."""
    return entry.is_late and is_later(record, entry.client, entry.sequence)


def record_of(sow: SowTopicRecords, entry: JournalEntry) -> Record:
    """Return the record as it was after the message that an entry holds."""
    timestamp_ns = entry.timestamp * NANOSECONDS_IN_MICROSECOND
    correlation_id = decode_text(entry.correlation_id)
    if not entry.sow_key and not entry.given_key:  # recorded before the topic had records
        return sow.prepare_record(
            entry.body,
            timestamp_ns,
            entry.txid,
            bookmark=entry.bookmark,
            topic=entry.topic.name,
            expiration=entry.expiration or None,
            correlation_id=correlation_id,
        )
    return Record(
        decode_text(entry.given_key) or str(entry.sow_key),
        entry.body,
        entry.topic.name,
        timestamp_ns,
        timestamp_ns + entry.expiration * NANOSECONDS if entry.expiration else 0,
        entry.txid,
        correlation_id,
        entry.bookmark,
    )
