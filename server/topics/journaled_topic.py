"""Topics in the transaction log: the journal is authoritative.

Append precedes apply, apply precedes deliver. A message is recorded in the form that subscribers
get: after preprocessing, enrichment and merging.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from server.replication.core.columns import pick_values
from server.storage.journal import MESSAGES, JournalEntryKind, JournalUnavailableError
from server.storage.journal.write.blocks import FieldColumn, map_column
from server.storage.sow.records import (
    NANOSECONDS,
    NANOSECONDS_IN_MICROSECOND,
    Record,
    to_nanoseconds,
)
from server.storage.sow.store import StoreCallback, cleaning_paused
from server.storage.sow.topic_records import deletion_body
from server.topics.refused_sequences import RefusedSequenceError
from server.topics.replicated.multi_topic import NO_DRAFTS, RecordDrafts
from server.topics.replicated.records import ReplicatedRecordApplier
from server.topics.sow_topic import REASONS, SowTopic
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.record_delivery import MATCH
from server.topics.subscriptions.message_refusal import MessageRefusal
from server.topics.topic import Topic
from server.topics.topic_journal import TopicJournal, encode_messages
from server.topics.transaction_log import DuplicateError

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.storage.journal import AppendResult
    from server.storage.sow.record_batch import SowRecordBatch, TopicColumn
    from server.storage.sow.record_table import RecordTable
    from server.storage.sow.records import RecordChange
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.replicated.batch import EntryContents, ReplicatedBatch
    from server.topics.replicated.multi_topic import BatchFailure
    from server.topics.sow_registry import SowRegistry
    from server.topics.subscriptions.client import ClientIdentity
    from server.topics.subscriptions.subscription import Subscription


_MIN_RUN: Final = 8
"""The fewest messages for which recording them together pays."""


class JournaledTopic(Topic):
    """A topic without records that is in the transaction log.

    Args:
        message_type: the type that it is scoped to.
        name: its name.
        functions: the functions that filters may call.
        journal: records its messages.

    Attributes:
        journal: see above.
    """

    is_persistent = True
    is_journaled = True

    def __init__(
        self, message_type: MessageType, name: str, functions: Functions, journal: TopicJournal
    ) -> None:
        super().__init__(message_type, name, functions)
        self.journal = journal
        self._unbatched_subscriptions: set[Subscription] = set()  # they may publish in between
        self._bookmark_subscriptions: set[Subscription] = set()

    def _attach(self, subscription: Subscription) -> None:
        """See `SubscriberSet.attach`."""
        super()._attach(subscription)
        watchers = subscription.subscriber.delivery_watchers(self.name)
        if subscription.sink is not None or watchers:
            self._unbatched_subscriptions.add(subscription)
        if subscription.presentation.has_bookmark:
            self._bookmark_subscriptions.add(subscription)

    def _detach(self, subscription: Subscription) -> None:
        """See `SubscriberSet.detach`."""
        super()._detach(subscription)
        self._unbatched_subscriptions.discard(subscription)
        self._bookmark_subscriptions.discard(subscription)

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:
        """Record messages and deliver them. See `Topic.publish`."""
        if (
            len(bodies) >= _MIN_RUN
            and not self._unbatched_subscriptions
            and self.journal.is_batchable(envelope)
        ):
            return self._publish_batch(bodies, envelope)
        return self._publish_one_by_one(bodies, envelope)

    @property
    def _needs_own_envelopes(self) -> bool:
        """True if filters, or deliveries that they decide about, need the bookmark of a message."""
        return self._filters.needs_context or bool(self._filters and self._bookmark_subscriptions)

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Deliver messages, one by one where each needs an envelope. See `Topic.deliver`."""
        if envelope.numbers and (envelope.correlation_ids or self._needs_own_envelopes):
            for position, body in enumerate(bodies):
                super().deliver((body,), envelope.for_message(position))
        else:
            super().deliver(bodies, envelope)

    def filtered_subscriptions(self) -> Sequence[Subscription] | None:
        """See `Topic.filtered_subscriptions`."""
        return None if self._needs_own_envelopes else super().filtered_subscriptions()

    def _publish_batch(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Sequence[MessageRefusal]:
        refusals: list[MessageRefusal] = []
        entries = encode_messages(
            bodies, envelope, lifetimes_of(envelope), sow_keys=envelope.sow_keys
        )
        start = 0
        while start < len(bodies):
            appended = self.journal.append_messages(envelope, entries, start)
            end = appended.end
            if self._subscriptions and end > start:
                bookmarks = self.journal.bookmark_parts(envelope, start, appended.txids)
                own = envelope.recorded_part(start, end, *bookmarks)
                self.deliver(bodies[start:end], own)
            if appended.problem is not None:
                refusals.append(refuse_message(self.journal, end, appended.problem, envelope))
                end += 1
            start = end
        return refusals

    @property
    def accepts_interleaved(self) -> bool:
        """True if its messages may be recorded together with those of other topics."""
        return not self._unbatched_subscriptions

    def _publish_one_by_one(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Sequence[MessageRefusal]:
        refusals: list[MessageRefusal] = []
        for position, body in enumerate(bodies):
            own = envelope.for_message(position)
            try:
                self.journal.refuse_duplicate_message(own)
                self.journal.append(own, body, key=own.sow_key, expiration=own.expiration or 0)
            except DuplicateError as error:
                refusals.append(refusal_of(position, error))
            except (RefusedSequenceError, JournalUnavailableError) as error:
                refusals.append(refuse_message(self.journal, position, error, envelope))
            else:
                self.deliver((body,), own)
        return refusals

    @property
    def accepts_metadata(self) -> bool:
        """See `Topic.accepts_metadata`; queues need messages with metadata one by one."""
        return not self.journal.feeds

    @property
    def has_recipients(self) -> bool:
        """True if messages published here have any recipient."""
        return bool(self._subscriptions) or bool(self.journal.feeds)

    @property
    def table(self) -> None:
        """None: there are no records."""
        return

    def process_batch(self, arrivals: ReplicatedBatch) -> None:
        """Record some received entries of another instance unchanged, and deliver them."""
        start = arrivals.position
        appended = self.journal.append_copies(arrivals, arrivals.next_content())
        if arrivals.kind in MESSAGES and self._subscriptions and appended.txids:
            self._deliver_replicated(arrivals, start, start + appended.end, appended.timestamp)

    def draft_records(self, entries: EntryContents, positions: Sequence[int]) -> RecordDrafts:  # noqa: ARG002 - the same for all
        """Return no drafts: messages of another instance need none here."""
        return NO_DRAFTS

    def apply_recorded(
        self,
        entries: EntryContents,
        positions: Sequence[int],
        drafts: RecordDrafts,  # noqa: ARG002 - there are no records
        appended: AppendResult,
    ) -> Sequence[BatchFailure]:
        """Deliver recorded, consecutive messages of another instance."""
        start = positions[0]
        if self.journal.feeds:
            self.journal.feed_replicated(
                entries, start, appended, pick_values(entries.columns.sow_keys, positions)
            )
        if self._subscriptions:
            self._deliver_replicated(entries, start, start + len(positions), appended.timestamp)
        return ()

    def finish_batch(self) -> None:
        """Do nothing: without records there is nothing to note."""

    def _deliver_replicated(
        self, entries: EntryContents, start: int, end: int, timestamp: int
    ) -> None:
        """Deliver messages of another instance, which have been recorded."""
        bodies = entries.bodies
        if (
            entries.has_extras
            or self._unbatched_subscriptions
            or self._bookmark_subscriptions
            or self._filters.needs_context
        ):
            for position in range(start, end):
                envelope = entries.envelope(position, timestamp)
                self.deliver((bodies[position],), envelope)
        else:
            self.deliver(bodies[start:end], entries.common_envelope(start, timestamp))

    def when_settled(self, then: StoreCallback) -> None:
        """Call back when everything published so far is settled."""
        self.journal.when_settled(partial(then, None))


class JournaledSowTopic(SowTopic):
    """A topic with records that is in the transaction log.

    Args:
        sow: the records.
        name: the topic's name.
        functions: the functions that filters may call.
        sow_registry: is notified of every change.
        journal: records its messages.

    Attributes:
        journal: see above.
    """

    is_journaled = True

    def __init__(
        self,
        sow: SowTopicRecords,
        name: str,
        functions: Functions,
        sow_registry: SowRegistry,
        journal: TopicJournal,
    ) -> None:
        super().__init__(sow, name, functions, sow_registry)
        self.journal = journal
        self._applier = ReplicatedRecordApplier(sow, name, journal, self)

    def _is_batchable(self, bodies: Sequence[bytes], envelope: Envelope) -> bool:
        """See `SowTopic`; in addition, there must be several messages, all new."""
        return (
            len(bodies) > 1
            and super()._is_batchable(bodies, envelope)
            and self.journal.is_batchable(envelope)
        )

    @property
    def accepts_interleaved(self) -> bool:
        """True if its messages may be recorded together with those of other topics."""
        return self._drafts_batches

    def draft_batch(
        self, topic: TopicColumn, bodies: Sequence[bytes], envelope: Envelope
    ) -> SowRecordBatch | None:
        """See `SowTopic.draft_batch`; feeds, which get batches, must not get deletions."""
        if envelope.deletions and self.journal.feeds:
            return None
        return super().draft_batch(topic, bodies, envelope)

    def _publish_batch(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Sequence[MessageRefusal]:
        """Record messages together, then apply and announce them."""
        topic = self._sow.topic_column(self.name, len(bodies))
        drafts = self.draft_batch(topic, bodies, envelope)
        if drafts is None:
            return self._publish_one_by_one(bodies, envelope)
        refusals: list[MessageRefusal] = []
        with cleaning_paused([self._sow.table.store]):
            done = self._record_and_apply(drafts, envelope, refusals)
        if done < len(bodies):  # drafts behind a refused message may depend on it
            rest = envelope.part(range(done, len(bodies)))
            refusals += (
                refusal._replace(position=done + refusal.position)
                for refusal in self._publish_one_by_one(bodies[done:], rest)
            )
        self._sow_registry.mark_changed(self._sow)
        return refusals

    def _record_and_apply(
        self, drafts: SowRecordBatch, envelope: Envelope, refusals: list[MessageRefusal]
    ) -> int:
        """Append, apply and announce messages, in batches of messages with the same timestamp.

        Returns:
            The position reached: not the end if drafts behind a refused message may depend on it.
        """
        journal, bodies, lifetimes = self.journal, drafts.bodies, drafts.expires
        kinds = kinds_of(envelope)
        seconds = map_column(lifetimes, in_seconds)
        entries = encode_messages(bodies, envelope, seconds, kinds, drafts.logged_keys)
        start = 0
        while start < len(bodies):
            done = journal.append_messages(envelope, entries, start)
            end, time_ns = done.end, done.timestamp * NANOSECONDS_IN_MICROSECOND
            if done.txids:
                publisher, numbers = journal.bookmark_parts(envelope, start, done.txids)
                batch = drafts.part(start, end).recorded(done.txids, time_ns, publisher, numbers)
                for index, problem in self.apply_batch(batch, envelope):
                    refusals.append(refusal_of(start + index, problem))
            if done.problem is not None:
                refusals.append(refuse_message(self.journal, end, done.problem, envelope))
                end += 1
                if envelope.depends_on_records or self._sow.reads_previous:
                    return end
            start = end
        return start

    def _apply_draft(self, record: Record, txid: int, time_ns: int, bookmark: str) -> RecordChange:
        """Store a draft as it was recorded: a message and its record have the same timestamp."""
        key, body, topic, timestamp, expires, _, correlation_id, _, _ = record
        if expires:
            expires += time_ns - timestamp
        return self._sow.apply(
            Record(key, body, topic, time_ns, expires, txid, correlation_id, bookmark)
        )

    def _store_message(self, body: bytes, envelope: Envelope) -> RecordChange:
        self.journal.refuse_duplicate_message(envelope)
        record = self._prepare_record(body, envelope)
        self._sow.table.ensure_space(
            (record,)
        )  # applying must not fail once the message is in the log
        txid, time_ns = self.journal.append(
            envelope,
            record.body,
            JournalEntryKind.DELTA_PUBLISH if envelope.is_delta else JournalEntryKind.PUBLISH,
            record.key,
            in_seconds(record.expires - record.timestamp) if record.expires else 0,
            record.correlation_id,
        )
        return self._apply_draft(record, txid, time_ns, envelope.bookmark)

    def _make_refusal(self, position: int, error: Exception, envelope: Envelope) -> MessageRefusal:
        if not isinstance(error, DuplicateError):
            self.journal.record_refusal(envelope, position)
        return super()._make_refusal(position, error, envelope)

    def republish(self, record: Record, publisher: ClientIdentity, now: float) -> None:
        """Record, store and announce a record once more, unchanged.

        Args:
            record: the record.
            publisher: the publisher to record it for.
            now: the time, in seconds since 1970.

        Raises:
            RecordStoreError: it cannot be stored.
            JournalUnavailableError: it cannot be recorded.
            EntryTooLargeError: it does not fit in any journal.
        """
        draft = record._replace(timestamp=to_nanoseconds(now))
        envelope = Envelope(publisher, now, record.correlation_id or None)
        self._sow.table.ensure_space((draft,))
        left = in_seconds(draft.expires - draft.timestamp)
        lifetime = max(left, 1) if draft.expires else 0
        txid, time_ns = self.journal.append(
            envelope, draft.body, key=draft.key, expiration=lifetime
        )
        self.announce(self._apply_draft(draft, txid, time_ns, envelope.bookmark), envelope, MATCH)
        self._sow_registry.mark_changed(self._sow)

    @property
    def accepts_metadata(self) -> bool:
        """See `RecordTopic.accepts_metadata`; queues need messages with metadata one by one."""
        return super().accepts_metadata and not self.journal.feeds

    @property
    def has_recipients(self) -> bool:
        """True if messages published here have any recipient."""
        return super().has_recipients or bool(self.journal.feeds)

    @property
    def table(self) -> RecordTable:
        """The records."""
        return self._sow.table

    def process_batch(self, arrivals: ReplicatedBatch) -> None:
        """Record, apply and announce some received entries of another instance."""
        try:
            self._applier.process_batch(arrivals)
        finally:
            self._sow_registry.mark_changed(self._sow)

    def draft_records(self, entries: EntryContents, positions: Sequence[int]) -> RecordDrafts:
        """Draft the records of messages of another instance.

        Raises:
            BatchRefusedError: they cannot be recorded all at once.
        """
        return self._applier.draft_records(entries, positions)

    def apply_recorded(
        self,
        entries: EntryContents,
        positions: Sequence[int],
        drafts: RecordDrafts,
        appended: AppendResult,
    ) -> Sequence[BatchFailure]:
        """Apply and announce messages of another instance, which have been recorded.

        With recipients (`has_recipients`), these messages are consecutive.
        """
        return self._applier.apply_recorded(entries, positions, drafts, appended)

    def finish_batch(self) -> None:
        """Note that all recorded messages have been applied, and records have changed."""
        self._sow_registry.mark_changed(self._sow)

    def _delete_named(self, body: bytes, envelope: Envelope) -> int:
        """See `SowTopic`; a duplicate is refused before anything else."""
        self.journal.refuse_duplicate_message(envelope)
        return super()._delete_named(body, envelope)

    def _sequence_deletion(self, records: Sequence[Record], envelope: Envelope) -> tuple[int, int]:
        """Record a deletion; its txid is its number in the instance's order of changes.

        The command may have arrived from another instance since it was found to be new, so this
        checks for a duplicate again.
        """
        self.journal.refuse_duplicate_message(envelope)
        self._sow.table.ensure_space_to_remove(records)
        keys = deletion_body([record.key for record in records])
        return self.journal.append(envelope, keys, JournalEntryKind.SOW_DELETE)

    def when_settled(self, then: StoreCallback) -> None:
        """Call back when everything published so far is settled."""
        self.journal.when_settled(partial(then, None))


def refuse_message(
    journal: TopicJournal, position: int, problem: Exception, envelope: Envelope
) -> MessageRefusal:
    """Return the refusal of a message that cannot be recorded, and note its number."""
    journal.record_refusal(envelope, position)
    return refusal_of(position, problem)


def refusal_of(position: int, problem: Exception) -> MessageRefusal:
    """Return the refusal of a message with a problem that has been recorded or noted."""
    return MessageRefusal(position, REASONS[type(problem)], str(problem))


def kinds_of(envelope: Envelope) -> FieldColumn:
    """Return the kinds of the entries of messages that become records, and of deletions."""
    kind = JournalEntryKind.DELTA_PUBLISH if envelope.is_delta else JournalEntryKind.PUBLISH
    if not (envelope.deltas or envelope.deletions):
        return kind
    kinds: list[int] = [
        JournalEntryKind.DELTA_PUBLISH if is_delta else JournalEntryKind.PUBLISH
        for is_delta in envelope.deltas
    ] or [kind] * len(envelope.deletions)
    for position, deletion in enumerate(envelope.deletions):
        if deletion is not None:
            kinds[position] = JournalEntryKind.SOW_DELETE
    return kinds


def lifetimes_of(envelope: Envelope) -> FieldColumn:
    """Return the lifetimes of messages without records in seconds, 0 for no limit."""
    return [seconds or 0 for seconds in envelope.lifetimes] or 0


def in_seconds(lifetime: int) -> int:
    """Return a record's lifetime as entries store it: nanoseconds as seconds, rounded up."""
    return -(-lifetime // NANOSECONDS)
