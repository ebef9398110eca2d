"""Brings SOW topics up to date from the transaction log.

A store holds the log up to its last sequence: the changes of journaled topics use the txids of
their entries as sequences. So recovery applies the entries after that (log_apply.py); for an empty
store that is all of them.

A store can also be ahead of the log: it writes through memory maps, which survive the process,
while the log's last entries were still on their way to the disk. These have not been acknowledged
to any publisher, and the publishers send them again. Records that such an entry has changed or
deleted are set back to their earlier state, and the txids are not used again. The store of a topic
that has not been in the log lately is ahead of it, too; none of its changes is undone.

The earlier state of a record comes from the store first: its file keeps superseded entries for a
while; then from the log, as far as the topic's RecoveryPoint allows; then from the past states of a
topic with History that keeps all. If none of them has it, which implies a log whose beginning has
been removed, the record stays as it is in the store: it may have been acknowledged in
another state, and a record in a state that came too late is better than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from server.storage.journal import EVENTS, JournalEntryKind, JournalTopic, LogSpan
from server.storage.sow.log_apply import (
    LogRekeyer,
    apply_entry_range,
    equal_value_ranges,
    is_superseded,
    record_of,
)
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND, Record
from server.storage.sow.rekey import derives_keys_from_fields
from server.storage.sow.store import MAX_CHANGE_SEQUENCE, PastVersion, RecordStoreError
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from server.storage.journal import Journal, JournalEntry, RawEntryRange

_NO_OWNER: Final = -1
_MAX_LOST: Final = 10_000_000
"""Entries by which a store can be ahead; more than may wait to be written, or is worth skipping."""

_STEP_ENTRIES: Final = 512
_STEP_BYTES: Final = 1 << 20
"""Entries, and bytes of them, that are read in one step while clients are served."""

TopicLookup = Callable[[str, str], object | None]


class SowRollback(NamedTuple):
    """The changes of a topic that were undone because the log does not have them.

    Attributes:
        sow: the topic.
        first_txid: the txid after the log's last one, from which on changes were undone.
        last_txid: the highest txid of a change of the topic.
        restored_count: the number of records that were set back.
        dropped_past_count: the number of past states that were dropped.
        unrestored_count: the number of records left as they were, since their earlier state is
            unknown.
    """

    sow: SowTopicRecords
    first_txid: int
    last_txid: int
    restored_count: int
    dropped_past_count: int
    unrestored_count: int


def recover_records(
    journal: Journal,
    topics: Iterable[SowTopicRecords],
    find_topic: TopicLookup,
    wait_for_commits: Callable[[], None],
    check_stop: Callable[[], None],
    on_rollback: Callable[[SowRollback], None],
) -> None:
    """Apply to topics the entries of the log that they lack.

    Args:
        journal: the log, before anything has been appended to it.
        topics: the topics that are recorded there.
        find_topic: returns the topic that has the records of a message type and name.
        wait_for_commits: waits until every requested commit of a store is done.
        check_stop: called between some entries and the next; an exception ends the recovery, which
            the next start continues.
        on_rollback: called with the undone changes of each topic that was ahead of the log.

    Raises:
        RecordStoreError: a record cannot be stored.
    """
    begins = {sow: _required_span(sow, journal) for sow in topics}
    if not begins:
        return
    last_txid = journal.last_txid
    topics_ahead = [sow for sow in begins if sow.table.store.last_sequence > last_txid]
    for sow in topics_ahead:
        _check_distance(sow, last_txid)
        if sow.table.store.header.unlogged_until != MAX_CHANGE_SEQUENCE:
            on_rollback(_roll_back(sow, journal, find_topic))
            sow.table.store.commit()
    if topics_ahead:
        # In this order: if the power fails in between, the stores are still ahead.
        wait_for_commits()
        _skip_txids(journal, max(sow.table.store.last_sequence for sow in topics_ahead))
    topic_entries = _TopicEntries(begins, find_topic)
    appliers = {sow: _applier(sow) for sow in begins}
    # The last entry of a store may be a deletion of several records, executed for only some.
    after = min(begin.after_txid for begin in begins.values())
    for entry_range in journal.raw_ranges(after=max(after - 1, 0)):
        check_stop()
        for sow, entries in topic_entries.split_by_topic(entry_range):
            appliers[sow](entries)


class RecordRebuild:
    """Makes the records of a topic from the log, step by step, while the log is appended to.

    Args:
        sow: the topic, which no message is published to meanwhile.
        journal: the log.
        has_entries: whether the log may have entries of the topic already.
    """

    def __init__(self, sow: SowTopicRecords, journal: Journal, *, has_entries: bool) -> None:
        span = _required_span(sow, journal) if has_entries else LogSpan(journal.last_txid)

        def has_records_of(message_type: str, name: str) -> bool:
            return message_type == sow.type_name and sow.covers_topic(name)

        self._topic_entries = _TopicEntries(
            {sow: span}, lambda *found: sow if has_records_of(*found) else None
        )
        self._apply = _applier(sow)
        start = LogSpan(max(span.after_txid - 1, 0))
        self._cursor = journal.replay(
            start, lambda found: has_records_of(found.message_type, found.name), EVENTS
        )

    @property
    def position(self) -> int:
        """The txid up to which the log has been read."""
        return self._cursor.position

    def step(self) -> bool:
        """Apply some entries; return whether more of them are on stable storage.

        Raises:
            RecordStoreError: a record cannot be stored.
            JournalUnreadableError: the log cannot be read at the moment.
        """
        entry_range = self._cursor.read_raw_range(_STEP_ENTRIES, _STEP_BYTES)
        for _, entries in self._topic_entries.split_by_topic(entry_range):
            self._apply(entries)
        return not self._cursor.is_caught_up


def _applier(sow: SowTopicRecords) -> Callable[[RawEntryRange], None]:
    """Return the function that applies entries of the log to a topic."""
    if not sow.table.store.last_sequence and derives_keys_from_fields(sow):
        return LogRekeyer(sow).apply
    return partial(apply_entry_range, sow)


def _required_span(sow: SowTopicRecords, journal: Journal) -> LogSpan:
    """Return the part of the log that a topic needs (AMPS User Guide, RecoveryPoint)."""
    last_sequence, point = sow.table.store.last_sequence, sow.spec.recovery_point
    if last_sequence or point == "epoch":
        return LogSpan(last_sequence)
    if point == "now":
        return LogSpan(journal.last_txid)
    return LogSpan(0, begin_timestamp=point // NANOSECONDS_IN_MICROSECOND)


def first_retained_txid(sow: SowTopicRecords, journal: Journal) -> int | None:
    """Return the first txid that the log still has for a topic that needs earlier entries too.

    Args:
        sow: a topic that takes all its records from the log.
        journal: the log.

    Returns:
        None if the log has everything since the topic's RecoveryPoint.
    """
    begin = _required_span(sow, journal)
    oldest = journal.files[0]
    if _is_whole(journal) or begin.after_txid or begin.begin_timestamp >= oldest.created:
        return None
    return oldest.first_txid


class _TopicEntries:
    """Assigns entries of the log to topics.

    A change to the records of one topic changes none of another topic. So the entries of each topic
    are applied together, however they alternate in the log; unless an entry that has to be drafted
    again may look up records of other topics.

    Args:
        spans: the topics, each with the part of the log that it needs.
        find_topic: returns the topic that has the records of a message type and name.
    """

    def __init__(self, spans: Mapping[SowTopicRecords, LogSpan], find_topic: TopicLookup) -> None:
        self._spans: Final = spans
        self._find_topic: Final = find_topic
        self._topics: Final = list(spans)
        self._keeps_order: Final = any(sow.reads_others for sow in spans)
        self._owner_by_topic: Final[dict[JournalTopic, int]] = {}

    def split_by_topic(
        self, entry_range: RawEntryRange
    ) -> Iterator[tuple[SowTopicRecords, RawEntryRange]]:
        """Yield the entries that topics need, in the order in which they are to be applied."""
        columns = entry_range.to_array()
        owners = np.full(len(columns), _NO_OWNER)
        for number in set(columns["topic"].tolist()):
            if (owner := self._find_owner(entry_range.definitions.topics[number])) != _NO_OWNER:
                begin = self._spans[self._topics[owner]]
                is_needed = columns["topic"] == number
                is_due = columns["txid"] > begin.after_txid
                # A deletion older than a change of keys may name the key of another record.
                if begin.after_txid > self._topics[owner].table.store.header.rekey_sequence:
                    is_last = columns["txid"] == begin.after_txid
                    is_due |= is_last & (columns["kind"] == JournalEntryKind.SOW_DELETE)
                is_needed &= is_due
                is_needed &= columns["timestamp"] >= begin.begin_timestamp
                owners[is_needed] = owner
        positions = np.flatnonzero(owners != _NO_OWNER)
        if not self._keeps_order:
            positions = positions[np.argsort(owners[positions], kind="stable")]
        for start, end in equal_value_ranges(owners[positions]):
            sow = self._topics[owners[positions[start]]]
            yield sow, entry_range.pick(positions[start:end].tolist())

    def _find_owner(self, topic: JournalTopic) -> int:
        """Return the index of the topic that has the records of a name, if it needs the log."""
        owner = self._owner_by_topic.get(topic)
        if owner is None:
            sow = self._find_topic(topic.message_type, topic.name)
            owner = _NO_OWNER
            if isinstance(sow, SowTopicRecords) and sow in self._spans:
                owner = self._topics.index(sow)
            self._owner_by_topic[topic] = owner
        return owner


def _check_distance(sow: SowTopicRecords, last_txid: int) -> None:
    last_sequence = sow.table.store.last_sequence
    if last_sequence - last_txid <= _MAX_LOST:
        return
    if sow.table.store.header.unlogged_until == MAX_CHANGE_SEQUENCE:
        advice = "move the journals away, so that a new log begins behind these changes"
    else:
        advice = (
            "they belong to another log; restore the journals, or remove"
            f" {sow.spec.file_name} to have it made again from these"
        )
    raise RecordStoreError(
        f"the records of topic {sow.spec.name} have changes up to {last_sequence},"
        f" but the log ends at {last_txid}: {advice}"
    )


def _roll_back(sow: SowTopicRecords, journal: Journal, find_topic: TopicLookup) -> SowRollback:
    """Undo the changes of a store that the log lacks; if interrupted, it can be called again.

    It sets back the records that a lost entry has made or changed, and restores those that it has
    deleted. Restored records that have expired expire again. Past states that lost entries made or
    ended are dropped.
    """
    table, last_txid = sow.table, journal.last_txid
    last_sequence = table.store.last_sequence

    def is_lost(record: Record) -> bool:
        return record.sequence > last_txid and bool(record.bookmark)  # others are not of the log

    unaffected = {
        identity
        for identity, row in table.store.identities()
        if not is_lost(table.store.read_record(row))
    }
    previous_states, unknown = table.store.find_previous_versions(last_txid)
    records = {one: state for one, state in previous_states.items() if one not in unaffected}
    unknown -= unaffected
    past = [past for _, past in table.store.past_versions() if not is_lost(past.record)]
    records |= _from_log(
        sow, journal, find_topic, unaffected | previous_states.keys(), unknown, past
    )
    unknown -= records.keys()
    if sow.spec.history is not None and not sow.spec.history.granularity:
        records |= _from_history(past, unknown)
        unknown -= records.keys()
    if _is_whole(journal) and not table.store.header.unlogged_until:
        records |= dict.fromkeys(unknown)
        unknown.clear()
    dropped = table.roll_back(records, last_sequence, lambda past: is_lost(past.record))
    return SowRollback(sow, last_txid + 1, last_sequence, len(records), dropped, len(unknown))


def _from_log(
    sow: SowTopicRecords,
    journal: Journal,
    find_topic: TopicLookup,
    known: set[str],
    unknown: set[str],
    past: Iterable[PastVersion],
) -> dict[str, Record | None]:
    """Return the states in the log of records whose state is not known; None for absent ones.

    The file may have forgotten a record that a lost entry has deleted. So a record that the log
    has, and that the store neither has nor knows to have been deleted before, is one of those;
    unless the topic began when the log had some entries already, for then it may never have had the
    record. The log has no information on the topic's records before the topic was (again) recorded.
    """
    unlogged_until = sow.table.store.header.unlogged_until
    point = sow.spec.recovery_point
    begin = 0 if isinstance(point, str) else point // NANOSECONDS_IN_MICROSECOND
    deletions = {
        version.identity: version.record.sequence for version in past if version.is_deleted
    }
    states: dict[str, Record | None] = {}
    for entry in journal.entries():
        if entry.txid <= unlogged_until or entry.timestamp < begin:
            continue
        if find_topic(entry.topic.message_type, entry.topic.name) is not sow:
            continue
        for identity, state in _states(sow, entry):
            if identity in known or is_superseded(entry, states.get(identity)):
                continue
            if identity in unknown:
                states[identity] = state
            elif point == "now":
                continue
            elif state is not None and deletions.get(identity, 0) < state.sequence:
                states[identity] = state
            else:
                states.pop(identity, None)
    return states


def _from_history(past: Iterable[PastVersion], unknown: set[str]) -> dict[str, Record | None]:
    """Return the earlier states of records, where every state has been kept."""
    last: dict[str, PastVersion] = {}
    for version in past:
        known = last.get(version.identity)
        if version.identity in unknown and (
            known is None or known.record.sequence <= version.record.sequence
        ):
            last[version.identity] = version
    return {
        identity: None if version.is_deleted else version.record
        for identity, version in last.items()
    }


def _is_whole(journal: Journal) -> bool:
    """Return whether the log still has its beginning."""
    return bool(journal.files) and journal.files[0].number == 0


def _states(sow: SowTopicRecords, entry: JournalEntry) -> Iterable[tuple[str, Record | None]]:
    """Yield the records that an entry changes, in the state after it."""
    if entry.kind == JournalEntryKind.SOW_DELETE:
        for key in msgspec.json.decode(entry.body, type=list[str]):
            yield sow.table.make_identity(key, entry.topic.name), None
    elif entry.kind in EVENTS:
        record = record_of(sow, entry)
        yield sow.table.make_identity(record.key, record.topic), record


def _skip_txids(journal: Journal, txid: int) -> None:
    """Append no-ops for the txids of lost entries, so that these are not used again."""
    no_topic = journal.topic_handle("", "")
    while journal.last_txid < txid:
        journal.append(no_topic, 0, 0, b"", JournalEntryKind.NO_OP)
    journal.commit()
