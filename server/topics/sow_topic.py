"""A topic with records: stores the messages published to it, and announces the changes.

A `<Topic>` with a Pattern has one of these for each name in use; they share the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from server.message_types.base import BodyError
from server.storage.journal import EntryTooLargeError, JournalUnavailableError
from server.storage.sow.batch_changes import put_row, put_with_changes
from server.storage.sow.keys.key_source import KeyRefusedError
from server.storage.sow.record_batch import SowRecordBatch, TopicColumn
from server.storage.sow.records import RecordChange, to_nanoseconds
from server.storage.sow.store import (
    RecordStoreError,
    RecordTooLargeError,
    StoreCallback,
    cleaning_paused,
)
from server.topics.refused_sequences import RefusedSequenceError
from server.topics.subscriptions.delivery.record_delivery import DELETED, MATCH
from server.topics.subscriptions.message_refusal import MessageRefusal
from server.topics.subscriptions.record_fanout import RecordFanout
from server.topics.transaction_log import DUPLICATE, DuplicateError

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.expressions.message_context import MessageContext
    from server.storage.journal.write.blocks import FieldColumn
    from server.storage.sow.records import Record
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.record_source import RecordSource
    from server.topics.sow_registry import SowRegistry
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import OutboxRecordFramer


class DeletionError(Exception):
    """A deletion selects no records."""


NO_SELECTION: Final = (
    "a sow_delete needs one of these, and no more than one: a filter (1=1 for all records),"
    " sow_keys, or a message"
)
"""The text of a `DeletionError`, for the client."""


REASONS: Final[dict[type[Exception], str]] = {
    BodyError: "invalid message",
    DeletionError: "invalid command",
    KeyRefusedError: "invalid sow key",
    RecordStoreError: "not stored",
    RecordTooLargeError: "not stored",
    JournalUnavailableError: "not stored",
    EntryTooLargeError: "not stored",
    RefusedSequenceError: "not stored",
    DuplicateError: DUPLICATE,
}
"""Errors that can affect a single message -> the phrase for its publisher."""


class RecordTopic(RecordFanout):
    """One topic that has records, under one name.

    Args:
        keeper: the records.
        name: the topic's name.
        functions: the functions that filters may call.
        sow_registry: knows the topics derived from this one.
    """

    is_persistent = True
    """True if messages go to stable storage."""
    accepts_slices = False
    """True if bodies may be slices of the bytes read from a client; here they are retained."""
    is_journaled = False
    """True if messages are in the transaction log."""

    def __init__(
        self, keeper: RecordSource, name: str, functions: Functions, sow_registry: SowRegistry
    ) -> None:
        table = keeper.table
        super().__init__(
            table.message_type,
            name,
            functions,
            sow_registry.delta_encoder(keeper),
            lambda key: table.get(table.make_identity(key, name)),
        )
        self._followers = sow_registry.followers(keeper)
        self._derived_scheduler = sow_registry.derived_scheduler

    @property
    def has_followers(self) -> bool:
        """True if other topics are derived from this one."""
        return bool(self._followers)

    @property
    def has_recipients(self) -> bool:
        """True if changes of its records have any recipient."""
        return self.has_subscriptions or self.has_followers

    @property
    def accepts_metadata(self) -> bool:
        """True if messages of a batch may have correlation ids, SOW keys and lifetimes."""
        return False

    def announce(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        """Notify subscribers, and the topics that follow this one.

        See `RecordFanout.announce`.
        """
        super().announce(change, envelope, reason)
        if self._followers:
            self._derived_scheduler.announce_change(self._followers, change, envelope, reason)


class DerivedTopic(RecordTopic):
    """A topic whose records are derived from those of another one; clients cannot publish to it."""

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:  # noqa: ARG002 - above
        """Refuse messages (AMPS User Guide, Conflated Topics; Understanding Views)."""
        detail = f"the records of topic {self.name!r} are made from those of another one"
        return [
            MessageRefusal(position, "invalid topic", detail) for position in range(len(bodies))
        ]

    def when_settled(self, then: StoreCallback) -> None:
        """Call back at once: nothing has to be stored."""
        then(None)


class SowTopic(RecordTopic):
    """A topic that stores the messages published to it as records.

    Messages that arrive together become records together (`record_batch.py`), unless a generator
    makes their keys.

    Args:
        sow: the records.
        name: the topic's name.
        functions: the functions that filters may call.
        sow_registry: is notified of every change.
    """

    def __init__(
        self, sow: SowTopicRecords, name: str, functions: Functions, sow_registry: SowRegistry
    ) -> None:
        super().__init__(sow, name, functions, sow_registry)
        self._sow = sow
        self._sow_registry = sow_registry
        self._drafts_batches = sow.drafts_batches

    @property
    def accepts_metadata(self) -> bool:
        """See `RecordTopic.accepts_metadata`."""
        return self._drafts_batches

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:
        """Store messages, and notify subscribers of the records that change.

        Args:
            bodies: the bodies of one or more messages, in order.
            envelope: the metadata that they share.

        Returns:
            The messages that could not be stored, each with the reason.
        """
        if self._is_batchable(bodies, envelope):
            return self._publish_batch(bodies, envelope)
        return self._publish_one_by_one(bodies, envelope)

    def _is_batchable(self, bodies: Sequence[bytes], envelope: Envelope) -> bool:  # noqa: ARG002 - for recorded topics
        """Return whether messages can be stored together, as they are or merged as deltas."""
        is_alone = bool(envelope.correlation_id) or envelope.deletion is not None
        return self._drafts_batches and not is_alone

    def _publish_batch(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Sequence[MessageRefusal]:
        sow, count, time_ns = self._sow, len(bodies), to_nanoseconds(envelope.received_s)
        drafts = self.draft_batch(sow.topic_column(self.name, count), bodies, envelope)
        if drafts is None:
            return self._publish_one_by_one(bodies, envelope)
        batch = drafts.recorded(self._sow_registry.next_sequences(count), time_ns, 0, ())
        with cleaning_paused([sow.table.store]):  # it would use the space that has been reserved
            problems = self.apply_batch(batch, envelope)
        self._sow_registry.mark_changed(sow)
        return [self._make_refusal(index, problem, envelope) for index, problem in problems]

    def draft_batch(
        self, topic: TopicColumn, bodies: Sequence[bytes], envelope: Envelope
    ) -> SowRecordBatch | None:
        """Return the records of messages that are published together.

        Args:
            topic: the topics of the messages, which may be others of the same table.
            bodies: the messages.
            envelope: the publisher's metadata of these messages; sequence numbers do not matter.

        Returns:
            The records, for which there is room, with lifetimes in place of expiry times, and
            without positions in the order of changes; None if messages need to be published one by
            one.
        """
        sow, lifetimes = self._sow, envelope.lifetimes
        expires: FieldColumn = sow.expiry_time(envelope.expiration, 0)
        if lifetimes:
            expires = [sow.expiry_time(lifetime, 0) for lifetime in lifetimes]
        deltas = envelope.deltas or ([True] * len(bodies) if envelope.is_delta else ())
        correlation_ids, given_keys = envelope.correlation_ids, envelope.sow_keys
        if envelope.sow_key:
            given_keys = [envelope.sow_key] * len(bodies)
        contexts = _contexts(topic, bodies, envelope) if sow.needs_context else ()
        try:
            drafts = sow.draft_batch(
                topic,
                bodies,
                given_keys,
                deltas,
                expires,
                correlation_ids,
                envelope.deletions,
                contexts,
            )
            if drafts is not None:
                sow.table.ensure_space_for_batch(drafts)
        except (BodyError, RecordStoreError):
            return None  # some of them may be stored
        return drafts

    def plain_deliveries(self) -> Sequence[OutboxRecordFramer] | None:
        """See `RecordFanout.plain_deliveries`.

        None, too, if topics follow this one, or SOW keys are texts.
        """
        if self._sow.has_given_keys or self._followers:
            return None
        return super().plain_deliveries()

    def apply_batch(
        self, batch: SowRecordBatch, envelope: Envelope, *, is_silent: bool = False
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Put the records of a batch, and announce the changes.

        Args:
            batch: the records.
            envelope: their origin.
            is_silent: whether the caller delivers them itself, by `plain_deliveries`.

        Returns:
            The indexes of the records that cannot be stored, each with the reason.
        """
        if not self.announces_batches:
            return self._apply_each(batch, envelope)
        problems, changes = put_with_changes(
            self._sow.table,
            batch,
            needs_changes=self.needs_changes,
            needs_removals=self.needs_removals,
        )
        if not is_silent:
            self.announce_rows(batch, changes, envelope)
        return problems

    def announce_rows(
        self, batch: SowRecordBatch, changes: Sequence[RecordChange | None], envelope: Envelope
    ) -> None:
        """Announce records that have been put or deleted, if `announces_batches` is true.

        Args:
            batch: the records.
            changes: their changes, see `put_with_changes`.
            envelope: their origin; it has the bookmark of one of them in the end.
        """
        if not self._subscriptions:
            return
        for index, change in enumerate(changes):
            if change is not None:
                self.announce_row(change, batch.bookmark_at(index), envelope)
        if not changes and (records := batch.without_deletions()).bodies:
            self.announce_batch(records, envelope)

    @property
    def announces_batches(self) -> bool:
        """True if changes may be announced after later ones have been made."""
        return not (self._followers or self.needs_current_records)

    def announce_row(self, change: RecordChange, bookmark: str, envelope: Envelope) -> None:
        """Announce a change, with a bookmark of its own."""
        record = change.record
        own = envelope.with_correlation_id("" if record is None else record.correlation_id)
        own.bookmark = bookmark
        self.announce(change, own, DELETED if record is None else MATCH)

    def _apply_each(
        self, batch: SowRecordBatch, envelope: Envelope
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Put and announce records one by one, for recipients of changes, not of new states.

        See `apply_batch`.
        """
        is_heard = self.has_recipients
        problems: list[tuple[int, RecordStoreError]] = []
        for index in range(len(batch.bodies)):
            try:
                change = put_row(self._sow.table, batch, index)
            except RecordStoreError as error:
                problems.append((index, error))
                continue
            if is_heard and change is not None:
                self.announce_row(change, batch.bookmark_at(index), envelope)
        return problems

    def apply_record(self, record: Record, envelope: Envelope) -> None:
        """Put a record and announce it.

        Args:
            record: the record.
            envelope: its origin; it has the bookmark of the record in the end.

        Raises:
            RecordStoreError: it cannot be stored; nothing has changed.
        """
        change = self._sow.apply(record)
        if self.has_recipients:
            self.announce_row(change, record.bookmark, envelope)

    def _publish_one_by_one(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Sequence[MessageRefusal]:
        refusals: list[MessageRefusal] = []
        for position, body in enumerate(bodies):
            own = envelope.for_message(position)
            try:
                if own.deletion is not None:
                    own.deletion.count = self._delete_named(body, own)
                    continue
                change = self._store_message(body, own)
            except tuple(REASONS) as error:
                refusals.append(self._make_refusal(position, error, envelope))
            else:
                self.announce(change, own, MATCH)
        self._sow_registry.mark_changed(self._sow)
        return refusals

    def _make_refusal(self, position: int, error: Exception, envelope: Envelope) -> MessageRefusal:  # noqa: ARG002 - for recorded topics
        """Return the refusal of a message."""
        return MessageRefusal(position, REASONS[type(error)], str(error))

    @property
    def records(self) -> SowTopicRecords:
        """The records, which other names may share."""
        return self._sow

    def delete(self, states: Sequence[tuple[str, int]], envelope: Envelope) -> int:
        """Delete records, and notify subscribers of each before the next one is deleted.

        Args:
            states: the records, by their SOW keys and the sequences of their states; records that
                are gone already, or have another state by now, are skipped.
            envelope: the origin of the command.

        Returns:
            The number of records deleted.

        Raises:
            RecordStoreError: the deletions cannot be stored; none has been made.
            JournalUnavailableError: nothing can be recorded.
        """
        records = self._sow.find_unchanged(states, self.name)
        sequence, now = self._sequence_deletion(records, envelope)
        deleted = 0
        try:
            for record in records:
                change = self._sow.remove(record, sequence, now)
                if change is not None:
                    self.announce(change, envelope, DELETED)
                    deleted += 1
        finally:
            self._sow_registry.mark_changed(self._sow)
        return deleted

    def _delete_named(self, body: bytes, envelope: Envelope) -> int:
        """Delete the record that a publish of a message would update; see `delete`.

        Raises:
            DeletionError: there is no message.
            BodyError: it has no SOW key.
        """
        if not body:
            raise DeletionError(NO_SELECTION)
        try:
            records = self._sow.find_by_body(body, self.name)
        except KeyRefusedError as error:
            raise BodyError(str(error)) from None
        return self.delete([(record.key, record.sequence) for record in records], envelope)

    def _sequence_deletion(self, records: Sequence[Record], envelope: Envelope) -> tuple[int, int]:
        """Return a deletion's number in the instance's order of changes, and its time."""
        self._sow.table.ensure_space_to_remove(records)
        return self._sow_registry.next_sequence(), to_nanoseconds(envelope.received_s)

    def _store_message(self, body: bytes, envelope: Envelope) -> RecordChange:
        return self._sow.apply(
            self._prepare_record(body, envelope, self._sow_registry.next_sequence())
        )

    def _prepare_record(self, body: bytes, envelope: Envelope, sequence: int = 0) -> Record:
        """Return the record of a message; see `SowTopicRecords.prepare_record`."""
        sow = self._sow
        return sow.prepare_record(
            body,
            to_nanoseconds(envelope.received_s),
            sequence,
            topic=self.name,
            key=envelope.sow_key,
            delta=envelope.is_delta,
            expiration=envelope.expiration,
            correlation_id=envelope.correlation_id or "",
            context=envelope.context(self.name, body) if sow.needs_context else None,
        )

    def when_settled(self, then: StoreCallback) -> None:
        """Call back after putting everything published so far on stable storage, or failing to."""
        self._sow_registry.when_settled((self._sow,), then)


def _contexts(
    topic: TopicColumn, bodies: Sequence[bytes], envelope: Envelope
) -> list[MessageContext]:
    """Return the contexts of messages, for the functions that fields of their topics call."""
    contexts: list[MessageContext] = []
    for row, body in enumerate(bodies):
        context = envelope.context(topic if isinstance(topic, str) else topic[row], body)
        if envelope.correlation_ids:
            context.correlation_id = envelope.correlation_ids[row] or None
        contexts.append(context)
    return contexts
