"""Records the entries that other instances send: appended unchanged, then applied and delivered.

    ReplicationReceiver --new entries--> ReplicationApplier.record
        messages of several topics --> the journal --> each topic (`MultiTopicBatch`)
        of one topic, by kind --> the topic --> the journal --> records, subscribers, views, queues

An entry is skipped, and the skip is logged, if its topic is not recorded here, if it is not
permitted, or if it can never be recorded. An entry that cannot be recorded at the moment (a disk is
full) waits, and so do later entries of the same instance: an acknowledgement of entries that are
not here would let other instances drop them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from amperage.wire.bookmarks import client_hash
from server.queues.topic.queue_topic import QueueTopic
from server.replication.apply.error_log import ApplyErrorLog
from server.replication.apply.sequence_gaps import SequenceGapApplier
from server.replication.core import ConstantColumn, RecorderResult
from server.replication.core.columns import by_client, rows
from server.storage.journal import MESSAGES, JournalEntryKind, JournalUnavailableError
from server.topics.journaled_topic import JournaledSowTopic, JournaledTopic
from server.topics.replicated.batch import APPLY_BATCH_SIZE, ReplicatedBatch
from server.topics.replicated.multi_topic import BatchRefusedError, MultiTopicBatch

if TYPE_CHECKING:
    from server.engine.message_tracer import MessageTracer
    from server.replication.apply.permissions import ApplyPermissions
    from server.replication.core import BatchColumns, DedupWindow, PeerInstance
    from server.replication.core.columns import EntryColumn
    from server.storage.journal import JournalTopic
    from server.topics.topic_table import TopicTable
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_EntryTarget: TypeAlias = JournaledTopic | JournaledSowTopic | QueueTopic | SequenceGapApplier

_MAX_SECONDS: Final = (1 << 32) - 1


class NotRecordedError(Exception):
    """A topic's messages are not recorded by this instance; the text gives the reason."""


class ReplicationApplier:
    """Records entries of other instances; see `server.replication.core.EntryRecorder`.

    Args:
        topics: the topics that receive the entries.
        message_types: the names of the existing message types.
        transaction_log: the log that records the entries.
        dedup_window: the messages present of each publisher.
        permissions: decides which entries may be recorded.
        clock: the time, and timers.
        log: is notified of entries that cannot be recorded.
        message_tracer: makes spans of sampled messages; None if none are made.
    """

    def __init__(
        self,
        topics: TopicTable,
        message_types: Collection[str],
        transaction_log: TransactionLog,
        dedup_window: DedupWindow,
        permissions: ApplyPermissions,
        clock: Clock,
        log: ServerLog,
        message_tracer: MessageTracer | None = None,
    ) -> None:
        self._topics: Final = topics
        self._message_types: Final = message_types
        self._transaction_log: Final = transaction_log
        self._permissions: Final = permissions
        self._message_tracer: Final = message_tracer
        self._error_log: Final = ApplyErrorLog(clock, log)
        self._gap_applier: Final = SequenceGapApplier(transaction_log, dedup_window)

    @property
    def last_txid(self) -> int:
        """See `EntryRecorder.last_txid`."""
        return self._transaction_log.last_txid

    def highest_sequences(self) -> Mapping[int, int]:
        """See `EntryRecorder.highest_sequences`."""
        table = self._transaction_log.journal.sequences
        return {client: sequence for client, (sequence, _) in table.items()}

    def record(self, entries: BatchColumns, source: PeerInstance) -> RecorderResult:
        """See `EntryRecorder.record`. The caller has to flush outboxes.

        Raises nothing: an error in an entry concerns that entry.
        """
        tracer = self._message_tracer
        if tracer is None:
            return self._record(entries, source)
        start_ns = tracer.now_ns()
        result = self._record(entries, source)
        if result.processed_count:
            recorded = entries.pick(range(result.processed_count))
            tracer.trace_replicated(recorded, source.name, start_ns)
        return result

    def _record(self, entries: BatchColumns, source: PeerInstance) -> RecorderResult:
        if max(entries.expirations) > _MAX_SECONDS:
            lifetimes = [min(lifetime, _MAX_SECONDS) for lifetime in entries.expirations]
            entries = entries._replace(expirations=lifetimes)
        result = RecorderResult(0)
        for part in _recordable_parts(entries):
            part_result = self._record_multi_topic(part, source)
            result = _merge_results(result, part_result)
            if part_result.processed_count < len(part.data):
                remaining = part.pick(range(part_result.processed_count, len(part.data)))
                part_result = self._record_by_topic(remaining, source)
                result = _merge_results(result, part_result)
                if part_result.processed_count < len(remaining.data):
                    break
        return result

    def _record_multi_topic(self, entries: BatchColumns, source: PeerInstance) -> RecorderResult:
        """Record messages of several topics in one step, up to the first problem."""
        properties = entries.used_properties()
        if len(properties) == 1 or entries.kinds[0] not in MESSAGES:
            return RecorderResult(0)
        if not self._permissions.allows_all(source.name, entries):
            return RecorderResult(0)
        try:
            topics = {
                number: self._find_journaled_topic(name.topic)
                for number, name in properties.items()
            }
            batch = MultiTopicBatch(entries, topics, client_hash(source.name))
        except Exception:  # of any kind: one by one, the entry at fault is found
            return RecorderResult(0)
        result = batch.record(self._transaction_log.journal)
        if result.processed_count:
            self._error_log.report_resumed(source.name)
            self._record_arrivals(entries.pick(range(result.processed_count)))
        for topic_entries, failures in batch.failures:
            self._error_log.report_unapplied(topic_entries, failures, source.name)
        return result

    def _record_arrivals(self, entries: BatchColumns) -> None:
        """Record the arrival of messages that would have been reported to publishers as missing."""
        refused_sequences = self._transaction_log.refused_sequences
        for client, positions in by_client(entries.clients) if refused_sequences.has_any else ():
            refused_sequences.record_arrivals(
                client, [entries.sequences[position] for position in positions]
            )

    def _find_journaled_topic(self, named: JournalTopic) -> JournaledTopic | JournaledSowTopic:
        topic = self._find_target(named, JournalEntryKind.PUBLISH)
        if isinstance(topic, JournaledTopic | JournaledSowTopic):
            return topic
        raise BatchRefusedError("a batch for a queue must not contain other topics")

    def _record_by_topic(self, entries: BatchColumns, source: PeerInstance) -> RecorderResult:
        """Record entries in batches of one topic and kind."""
        result = RecorderResult(0)
        for part in _batches(entries):
            arrivals = ReplicatedBatch(part, client_hash(source.name))
            self._record_batch(arrivals, source.name)
            self._error_log.report_batch(arrivals, source.name)
            result = _merge_results(result, arrivals.outcome)
            if arrivals.problem is not None:
                break
        return result

    def report_duplicates(
        self, topic: JournalTopic, bookmarks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """See `EntryRecorder.report_duplicates`. Queues need it; other topics do not matter."""
        with suppress(NotRecordedError):
            journal = self._find_journaled_topic(topic).journal
            journal.report_double_publish(bookmarks, publishers)

    def record_lost_sequences(self, client: int, sequences: Sequence[tuple[int, int]]) -> bool:
        """See `EntryRecorder.record_lost_sequences`."""
        try:
            self._gap_applier.record_lost_sequences(client, sequences)
        except JournalUnavailableError:
            return False
        return True

    def _record_batch(self, arrivals: ReplicatedBatch, source: str) -> None:
        problem = self._permissions.refusal_reason(source, arrivals.topic)
        if problem is not None:
            arrivals.refuse_all(NotRecordedError(problem))
            return
        try:
            topic = self._find_target(arrivals.topic, arrivals.kind)
        except NotRecordedError as error:
            arrivals.refuse_all(error)
            return
        while arrivals.has_pending:
            position = arrivals.position
            try:
                topic.process_batch(arrivals)
            except Exception as error:  # of any kind: later entries must not be affected
                if arrivals.position == position:
                    arrivals.refuse_next(error)
                else:
                    arrivals.unapplied_entries.append((arrivals.position - 1, error))

    def _find_target(self, topic_name: JournalTopic, kind: JournalEntryKind) -> _EntryTarget:
        """Return the topic for entries of a kind.

        Raises:
            NotRecordedError: they are not recorded here.
        """
        message_type, name = topic_name.message_type, topic_name.name
        if kind is JournalEntryKind.MISSING:
            return self._gap_applier
        if message_type not in self._message_types:
            raise NotRecordedError(f"this instance has no message type {message_type}")
        topic = self._topics.find(message_type, name)
        if isinstance(topic, QueueTopic) and kind is not JournalEntryKind.QUEUE_EVENT:
            target = self._topics.topic_behind_queue(message_type, name, name)
        else:
            target = topic
        if isinstance(target, JournaledTopic | JournaledSowTopic | QueueTopic):
            return target
        raise NotRecordedError("the topic is not in the TransactionLog of this instance")


def _merge_results(earlier: RecorderResult, later: RecorderResult) -> RecorderResult:
    """Return the joint outcome of entries, and of later ones."""
    first, last = earlier.first_txid or later.first_txid, later.last_txid or earlier.last_txid
    return RecorderResult(earlier.processed_count + later.processed_count, first, last)


def _recordable_parts(entries: BatchColumns) -> Iterator[BatchColumns]:
    """Yield parts that one step can record, with either messages or other entries only."""
    kinds = entries.kinds
    if _can_record_together(kinds):
        parts = iter([(0, len(kinds))])
    else:
        parts = rows(kind in MESSAGES for kind in kinds)
    for start, end in parts:
        for first in range(start, end, APPLY_BATCH_SIZE):
            yield entries.pick(range(first, min(first + APPLY_BATCH_SIZE, end)))


def _can_record_together(kinds: EntryColumn) -> bool:
    """Return whether all entries are messages, or all of one other kind."""
    return isinstance(kinds, ConstantColumn) or MESSAGES.issuperset(kinds)


def _batches(entries: BatchColumns) -> Iterator[BatchColumns]:
    """Yield consecutive entries with the same properties and kind; see `ReplicatedBatch`."""
    if isinstance(entries.property_indexes, ConstantColumn) and _can_record_together(entries.kinds):
        yield entries
        return
    kinds = (JournalEntryKind.PUBLISH if kind in MESSAGES else kind for kind in entries.kinds)
    for start, end in rows(zip(entries.property_indexes, kinds, strict=True)):
        yield entries.pick(range(start, end))
