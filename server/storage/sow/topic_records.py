"""A SOW topic as the engine uses it: prepares, applies and deletes its records.

A publish goes through these steps (AMPS User Guide, SOW Update and Enrichment Processing):

    preprocessing -> SOW key -> enrichment -> delta merge      `draft`: nothing has changed yet
    the engine writes the result to the journal
    -> the record store and all indexes                        `apply`

The result is stored, journaled and sent on, not the message as received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Final

from amperage.wire.header import json_text
from config_schema.regex import matches
from config_schema.spec.sow import TopicSpec
from server.expressions import ContextKind, parse_field
from server.expressions.functions.registry import Functions
from server.expressions.message_context import NO_CONTEXT, MessageContext
from server.message_types.base import BodyError, MessageType
from server.storage.journal.write.blocks import FieldColumn, each
from server.storage.sow.enrichment import EnrichmentStage
from server.storage.sow.keys.chaining import ChainingKeys
from server.storage.sow.keys.key_source import (
    EVENTS,
    NO_KEY,
    EventKeys,
    FieldKeys,
    KeySource,
    PublisherKeys,
    key_hash,
    nested_in_event,
)
from server.storage.sow.query.query import Query, QuerySpec
from server.storage.sow.record_batch import Deletion, KeyColumn, SowRecordBatch, TopicColumn
from server.storage.sow.record_table import RecordTable
from server.storage.sow.record_table_options import field_path, table_options
from server.storage.sow.records import NANOSECONDS, Record, RecordChange
from server.storage.sow.store import RecordStore

_MAX_KEY_SOURCES: Final = 1024
"""Maximum number of key domains of logical topics with a cached key source."""


class SowTopicRecords:
    """One `<Topic>` of the configuration.

    Args:
        spec: its description.
        message_type: its message type.
        store: its records.
        functions: implementations of the functions that its fields call.
        generator: its key generator, if it has one.

    Attributes:
        spec: its description; a reload replaces it by one with another lifetime of records.
        table: its records and indexes.
        key_fields: the fields that its SOW keys are made from; empty if they are made otherwise.
        needs_context: whether preprocessing or enrichment read the context of a message.
        reads_previous: whether enrichment reads the record that a message updates.
        reads_others: whether preprocessing or enrichment read the records of other topics.
    """

    def __init__(
        self,
        spec: TopicSpec,
        message_type: MessageType,
        store: RecordStore,
        functions: Functions,
        generator: KeySource | None = None,
    ) -> None:
        self.spec = spec
        self.table: Final = RecordTable(store, message_type, table_options(spec, functions))
        fields = [field_path(text) for text in spec.keys]
        self._has_events: Final = spec.name.startswith(EVENTS)
        if self._has_events:
            fields += nested_in_event(spec.name, fields)
        self.key_fields: Final = tuple(fields)
        self._type: Final = message_type
        self._preprocessing: Final = _stage(
            spec.preprocessing, ContextKind.PREPROCESSING, message_type, functions
        )
        self._enrichment: Final = _stage(
            spec.enrichment, ContextKind.ENRICHMENT, message_type, functions
        )
        stages = [one for one in (self._preprocessing, self._enrichment) if one is not None]
        self.needs_context: Final = any(stage.needs_context for stage in stages)
        self.reads_previous: Final = any(stage.reads_previous for stage in stages)
        self.reads_others: Final = any(stage.reads_others for stage in stages)
        self._generator: Final = generator
        # Only chains learn keys that were made elsewhere; key sources of libraries do not.
        self._chains: Final = generator if isinstance(generator, ChainingKeys) else None
        self._key_sources: dict[str, KeySource] = {}

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.spec.name

    @property
    def type_name(self) -> str:
        """The name of its message type."""
        return self.spec.message_type

    @property
    def is_container(self) -> bool:
        """True if it holds the records of many logical topics."""
        return self.spec.pattern is not None

    def covers_topic(self, name: str) -> bool:
        """Return whether it holds the records of a topic."""
        pattern = self.spec.pattern
        return name == self.spec.name if pattern is None else matches(pattern, name)

    @property
    def drafts_batches(self) -> bool:
        """True if messages that come together can become records together; see `draft_batch`.

        They cannot if one needs the records of other topics as the messages before it leave them.
        """
        return self._generator is None and not self._has_events and not self.reads_others

    @property
    def drafts_deletions(self) -> bool:
        """True if deletions by body can be in a batch of messages, too; see `draft_batch`."""
        is_plain = self._preprocessing is None and self._enrichment is None
        has_own_keys = self.drafts_batches and bool(self.key_fields)
        return is_plain and has_own_keys and not self.is_container and self.spec.history is None

    @property
    def changes_with_time(self) -> bool:
        """True if time changes its records, so that `next_expiry` is worth calling."""
        return self.spec.expiration_enabled or self.spec.history is not None

    # ---- publishing

    def prepare_record(
        self,
        body: bytes,
        now: int,
        sequence: int = 0,
        *,
        bookmark: str = "",
        topic: str | None = None,
        key: str | None = None,
        delta: bool = False,
        expiration: int | None = None,
        correlation_id: str = "",
        context: MessageContext | None = None,
    ) -> Record:
        """Return the record of a publish. This changes nothing, except that a chain learns new ids.

        Args:
            body: the message.
            now: the time in nanoseconds since 1970.
            sequence: the publish's position in the instance's order of changes, if already known.
            bookmark: its bookmark, if already known.
            topic: the topic published to, for a topic with a Pattern.
            key: the SOW key that the publisher provided.
            delta: whether the message has only the fields that change.
            expiration: lifetime of the message in seconds, 0 for no limit; None for the topic's
                default.
            correlation_id: the publisher's; a delta without one keeps the record's.
            context: the context that functions can read; SOW key and topic are filled in.

        Returns:
            The record to be stored.

        Raises:
            BodyError: the message has to be rewritten, but cannot be parsed.
            KeyRefusedError: the message has no SOW key.
            RecordStoreError: the key cannot be stored, or the earlier record cannot be read.
        """
        topic = topic or self.spec.name
        if self._preprocessing is not None or self._enrichment is not None:
            context = context or MessageContext()
            context.topic_name = topic
            if self._preprocessing is not None:
                body = self._preprocessing.apply(body, None, context)
        key = self.key_source(topic).key(body, key)
        previous = None
        if delta or self.reads_previous:
            previous = self.table.get(self.table.make_identity(key, topic))
        body = self._rewrite_body(
            body, key, previous.body if previous else None, context, delta=delta
        )
        if delta and previous is not None:
            correlation_id = correlation_id or previous.correlation_id
        expires = self.expiry_time(expiration, now)
        return Record(key, body, topic, now, expires, sequence, correlation_id, bookmark)

    def _rewrite_body(
        self,
        body: bytes,
        key: str,
        previous: bytes | None,
        context: MessageContext | None,
        *,
        delta: bool,
    ) -> bytes:
        """Return a message enriched, and merged with the record that it updates."""
        if self._enrichment is not None:
            context = context or MessageContext()
            if self.needs_context:
                context.sow_key, context.sow_key_hash = key, key_hash(key)
            body = self._enrichment.apply(body, previous, context)
        if delta and previous is not None and self._type.capabilities.delta:
            return self._merge_delta(previous, body)
        return body

    def _merge_delta(self, stored: bytes, delta: bytes) -> bytes:
        """Merge a delta into the record that it updates.

        Raises:
            BodyError: one of them cannot be parsed; the text names it.
        """
        try:
            return self._type.merge(stored, delta)
        except BodyError:
            self._type.merge(delta, delta)  # raises the error of a delta that cannot be parsed
            raise BodyError(
                "the record that is stored with this key cannot be parsed, so that no delta can be"
                " merged into it: publish it whole"
            ) from None

    def topic_column(self, topic: str, count: int) -> TopicColumn:
        """Return the topic of records that are put together, all of one topic, as a column."""
        return [topic] * count if self.is_container else topic

    def draft_batch(
        self,
        topic: TopicColumn,
        bodies: Sequence[bytes],
        given_keys: Sequence[str],
        deltas: Sequence[bool],
        lifetimes: FieldColumn,
        correlation_ids: Sequence[str],
        deletions: Sequence[Deletion | None],
        contexts: Sequence[MessageContext],
    ) -> SowRecordBatch | None:
        """Return the records that messages become, if `drafts_batches` is true.

        For a deletion, the body is that of its entry in the transaction log, see `deletion_body`.

        Args:
            topic: the topics published to.
            bodies: the messages, at least one.
            given_keys: the SOW keys that the publisher provided, "" for none; empty if there are
                none.
            deltas: whether each has only the fields that change; empty if none has.
            lifetimes: their lifetimes in nanoseconds, 0 for no limit.
            correlation_ids: their correlation ids, "" for none; empty if there are none.
            deletions: the deletions among them; empty if there are none.
            contexts: the context of each that functions can read; empty if `needs_context` is
                false.

        Returns:
            The records, with lifetimes in place of expiry times, and without positions in the
            order of changes; None if messages need to be published one by one: a delta keeps the
            correlation id of its record, a deletion names no record, or there are deletions while
            `drafts_deletions` is false.

        Raises:
            BodyError: a message has to be rewritten, but cannot be parsed.
            RecordStoreError: an earlier record cannot be read.
        """
        if deletions:
            if not self.drafts_deletions:
                return None
            pairs = zip(each(lifetimes, len(bodies)), deletions, strict=True)
            lifetimes = [0 if deletion else lifetime for lifetime, deletion in pairs]
        if self._preprocessing is not None:
            bodies = [
                self._preprocessing.apply(body, None, contexts[row] if contexts else NO_CONTEXT)
                for row, body in enumerate(bodies)
            ]
        batch = SowRecordBatch(
            topic,
            self._batch_keys(bodies, topic, given_keys),
            bodies,
            range(len(bodies)),
            0,
            lifetimes,
            correlation_ids=correlation_ids,
            deletions=deletions,
        )
        if deltas or deletions or self._enrichment is not None:
            return self._rewrite_batch(batch, deltas, contexts)
        return batch

    def _rewrite_batch(
        self,
        batch: SowRecordBatch,
        deltas: Sequence[bool],
        contexts: Sequence[MessageContext],
    ) -> SowRecordBatch | None:
        """Return messages enriched, and merged with the records that they update.

        See `draft_batch`.
        """
        correlation_ids, identities = batch.correlation_ids, [*batch.identities()]
        states: dict[str, tuple[bytes | None, str]] = {}  # of records after the messages so far
        if deltas or self.reads_previous:
            is_needed: Iterable[bool] = repeat(True) if self.reads_previous else deltas
            for identity, record in self.table.get_all(compress(identities, is_needed)).items():
                states[identity] = record.body, record.correlation_id
        rewritten: list[bytes] = []
        for position, identity in enumerate(identities):
            if batch.deletions and batch.deletions[position] is not None:
                if not batch.bodies[position]:
                    return None
                state = states.get(identity)
                exists = self._has_record(identity) if state is None else state[0] is not None
                rewritten.append(deletion_body([str(batch.keys[position])] if exists else []))
                states[identity] = None, ""
                continue
            is_delta = bool(deltas) and deltas[position]
            correlation_id = correlation_ids[position] if correlation_ids else ""
            previous: bytes | None = None
            if is_delta or self.reads_previous:
                previous, kept_id = states.get(identity) or (None, "")
                if is_delta and kept_id and not correlation_id:
                    return None
            body = self._rewrite_body(
                batch.bodies[position],
                str(batch.keys[position]),
                previous,
                contexts[position] if contexts else None,
                delta=is_delta,
            )
            states[identity] = body, correlation_id
            rewritten.append(body)
        return batch.with_bodies(rewritten)

    def _has_record(self, identity: str) -> bool:
        """Return whether there is a record."""
        return self.table.store.find_row(identity) is not None

    @property
    def has_given_keys(self) -> bool:
        """True if SOW keys are the texts that publishers provide."""
        return isinstance(self.key_source(self.name), PublisherKeys)

    def _batch_keys(
        self, bodies: Sequence[bytes], topic: TopicColumn, given_keys: Sequence[str]
    ) -> KeyColumn:
        """Return the SOW keys of messages; see `draft_batch`."""
        source = self.key_source(topic if isinstance(topic, str) else topic[0])
        if isinstance(source, PublisherKeys):
            return [key or NO_KEY for key in given_keys] or [NO_KEY] * len(bodies)
        return self._numbers_from(source, bodies, topic)

    def key_numbers(self, bodies: Sequence[bytes], topic: TopicColumn) -> Sequence[int]:
        """Return the SOW keys of messages that are made from fields, as numbers.

        Args:
            bodies: the messages, at least one.
            topic: the topics published to.
        """
        source = self.key_source(topic if isinstance(topic, str) else topic[0])
        return self._numbers_from(source, bodies, topic)

    def _numbers_from(
        self, source: KeySource, bodies: Sequence[bytes], topic: TopicColumn
    ) -> Sequence[int]:
        assert isinstance(source, FieldKeys)  # noqa: S101 - the callers know
        has_domains = not isinstance(topic, str) and self.spec.key_domain == self.spec.name
        return source.key_numbers(bodies, topic if has_domains else ())

    def expiry_time(self, expiration: int | None, now: int) -> int:
        """Return when a message expires, in nanoseconds since 1970; 0 for never.

        Args:
            expiration: its lifetime in seconds, 0 for no limit; None for the topic's default.
            now: the time in nanoseconds since 1970.
        """
        if expiration is not None:
            return now + expiration * NANOSECONDS if expiration else 0
        if self.spec.expiration_enabled and self.spec.expiration:
            return now + self.spec.expiration
        return 0

    def apply(self, record: Record) -> RecordChange:
        """Store a record: prepared, journaled, or received over replication, unchanged.

        Args:
            record: the record with its sequence and bookmark.

        Raises:
            RecordStoreError: it cannot be stored; nothing has changed.
        """
        return self.table.put(record)

    @property
    def learns_keys(self) -> bool:
        """True if `learn_key` does anything."""
        return self._chains is not None

    def learn_key(self, body: bytes, key: str) -> None:
        """Learn the SOW key that a message got at another instance.

        Raises:
            RecordStoreError: the key cannot be stored.
        """
        if self._chains is not None:
            self._chains.learn_key(body, key)

    def key_source(self, topic: str) -> KeySource:
        """Return a topic's key source; the default key domain is the logical topic."""
        domain = topic if self.spec.key_domain == self.spec.name else self.spec.key_domain
        source = self._key_sources.get(domain)
        if source is None:
            if self._generator is not None:
                source = self._generator
            elif self.spec.keys:
                fields = [field_path(text) for text in self.spec.keys]
                if self._has_events:
                    source = EventKeys(domain, self._type, fields, self.spec.name)
                else:
                    source = FieldKeys(domain, self._type, fields)
            else:
                source = PublisherKeys()
            if domain == self.spec.name or len(self._key_sources) < _MAX_KEY_SOURCES:
                self._key_sources[domain] = source
        return source

    # ---- deleting

    def find_by_keys(
        self, keys: Sequence[str], topic_predicate: Callable[[str], bool] | None = None
    ) -> list[Record]:
        """Return the records of some SOW keys.

        Args:
            keys: the keys.
            topic_predicate: tests whether a logical topic counts, for a topic with a Pattern; None
                for all.
        """
        records = map(self.table.get, self.table.identities(keys, topic_predicate))
        return [record for record in records if record is not None]

    def find_by_body(self, body: bytes, topic: str | None = None) -> list[Record]:
        """Return the record that a publish of `body` would update, if there is one.

        Raises:
            BodyError: the message has to be preprocessed, but cannot be parsed.
            KeyRefusedError: the message has no SOW key.
            RecordStoreError: the key cannot be stored, or the record cannot be read.
        """
        topic = topic or self.spec.name
        if self._preprocessing is not None:
            body = self._preprocessing.apply(body, None, MessageContext())
        key = self.key_source(topic).key(body, None)
        record = self.table.get(self.table.make_identity(key, topic))
        return [] if record is None else [record]

    def remove(self, record: Record, sequence: int, now: int) -> RecordChange | None:
        """Delete a record.

        Args:
            record: the record.
            sequence: the deletion's position in the instance's order of changes.
            now: the time in nanoseconds since 1970.

        Returns:
            The change; None if the record does not exist any more.

        Raises:
            RecordStoreError: the deletion cannot be stored; nothing has changed.
        """
        return self.table.remove(self.table.make_identity(record.key, record.topic), sequence, now)

    def find_unchanged(self, states: Iterable[tuple[str, int]], topic: str) -> list[Record]:
        """Return the records that have not changed since they were found.

        Args:
            states: their SOW keys, each with the sequence of the state that was found.
            topic: the topic that they were published to.

        Raises:
            RecordStoreError: one of them cannot be read.
        """
        records = []
        for key, sequence in states:
            record = self.table.get(self.table.make_identity(key, topic))
            if record is not None and record.sequence == sequence:
                records.append(record)
        return records

    # ---- time

    def next_expiry(self) -> int | None:
        """Return the next time for `expire`, in nanoseconds since 1970; None for never."""
        return self.table.next_expiry()

    def shift_times(self, step: int) -> None:
        """Shift expiry times and past states by a step of the wall clock, in nanoseconds."""
        self.table.shift_times(step)

    def correct_stored_times(self, now: int, steps: Sequence[tuple[int, int]]) -> None:
        """Correct the times of records that were stored before the start. See `RecordTable`."""
        self.table.correct_stored_times(now, self.spec.expiration or 0, steps)

    def expire(self, now: int, sequence: int) -> RecordChange | None:
        """Remove one expired record. Also called at the start, for records that expired meanwhile.

        Args:
            now: the time in nanoseconds since 1970.
            sequence: the removal's position in the instance's order of changes.

        Returns:
            The change; None if no record is due: then some past states that are too old have been
            dropped.

        Raises:
            RecordStoreError: the removal cannot be stored; nothing has changed.
        """
        record = self.table.find_expired(now)
        if record is None:
            self.table.trim(now)
            return None
        return self.remove(record, sequence, now)

    # ---- reading and maintenance

    def query(self, spec: QuerySpec, now: int) -> Query:
        """Begin a query of the state at this moment.

        Args:
            spec: the query's parameters.
            now: the time in nanoseconds since 1970.
        """
        return Query(self.table, spec, now)

    def compact(self) -> Iterator[None]:
        """Free unused space, in slices between which the topic can be used.

        Raises:
            RecordStoreError: there is no space to work in.
        """
        return self.table.store.compact()


def deletion_body(keys: Sequence[str]) -> bytes:
    """Return the body of a deletion's entry in the transaction log: the SOW keys of the records."""
    return json_text(keys)


def _stage(
    fields: Sequence[str], kind: ContextKind, message_type: MessageType, functions: Functions
) -> EnrichmentStage | None:
    if not fields:
        return None
    parsed = [parse_field(text, kind, functions) for text in fields]
    return EnrichmentStage(parsed, message_type, functions)
