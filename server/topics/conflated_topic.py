"""Conflated topics: copies of topics with records, in which each record changes once per interval.

The interval of a record begins with the first change that has not been copied, and ends with
copying the record's state at that time. All intervals of a topic are equal, so that records fall
due in the order in which they began to wait.

Source: AMPS User Guide, Conflated Topics.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.spec import ConflatedTopicSpec
from server.expressions import ContextKind, parse, parse_field, parse_identifier
from server.message_types.base import BodyError
from server.storage.sow.enrichment import EnrichmentStage
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.query.query import Query, QuerySpec
from server.storage.sow.query.record_filter import RecordFilter
from server.storage.sow.record_context import context_of
from server.storage.sow.record_table import RecordTable
from server.storage.sow.record_table_options import RecordTableOptions
from server.storage.sow.records import Record, RecordChange, to_nanoseconds
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.record_delivery import MATCH

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.paths import Path
    from server.storage.sow.query.query import OpenQuery
    from server.topics.record_source import RecordFollower, RecordSource
    from server.topics.sow_registry import AnnounceChanges, SowRegistry
    from server.util.clock import Clock

_NANOSECONDS: Final = 1e9
_NAME: Final = "%n"


class _PendingCopy(NamedTuple):
    """A change that waits to be copied.

    Attributes:
        due_s: the time to copy it, in seconds since 1970 on the steady clock.
        record: the record's present state, None if it is gone.
        envelope: the origin of its last change.
        reason: the reason why it is gone.
    """

    due_s: float
    record: Record | None
    envelope: Envelope
    reason: str


class ConflatedTopic:
    """One `<ConflatedTopic>` of the configuration.

    Args:
        spec: its description.
        source: the topic that it is a copy of.
        functions: the functions that its filter and enrichment call.
        sow_registry: numbers its changes.
        clock: the time, and timers.
        announce: notifies subscribers of its changes.
        flush: called after changes have been announced.

    Attributes:
        spec: see above.
        name: its name in the configuration.
        type_name: the name of its message type.
        is_container: whether it is a copy of many logical topics.
        key_fields: the fields that its SOW keys are made from, which are those of the source.
        table: its records.
        changes: count of changes received from the source.
        copies: count of changes that have been copied.
        check_count: count of checks for due changes.
        check_seconds: the total duration of these checks.
    """

    def __init__(
        self,
        spec: ConflatedTopicSpec,
        source: RecordSource,
        functions: Functions,
        sow_registry: SowRegistry,
        clock: Clock,
        announce: AnnounceChanges,
        flush: Callable[[], None],
    ) -> None:
        self.name: Final = spec.name
        self.type_name: Final = spec.message_type
        self.is_container: Final = source.is_container
        self.key_fields: Final[Sequence[Path]] = source.key_fields
        message_type = source.table.message_type
        self.table: Final = RecordTable(
            MemoryStore(), message_type, _table_options(spec, source, functions)
        )
        self.spec: Final = spec
        self._source: Final = source
        self._sow_registry: Final = sow_registry
        self._clock: Final = clock
        self._announce: Final = announce
        self._flush: Final = flush
        self._interval_s: Final = spec.interval / _NANOSECONDS
        filter_ = None if spec.filter is None else parse(spec.filter, ContextKind.FILTER, functions)
        self._filter: Final = RecordFilter(self.table, filter_)
        fields = [parse_field(text, ContextKind.ENRICHMENT, functions) for text in spec.enrichment]
        self._enrichment: Final = (
            EnrichmentStage(fields, message_type, functions) if fields else None
        )
        # Emptied from the front, where a plain dict would scan all entries removed before.
        self._pending: OrderedDict[str, _PendingCopy] = OrderedDict()
        self._is_populated = True  # unless it is being populated beside traffic
        self.changes = 0
        self.copies = 0
        self.check_count = 0
        self.check_seconds = 0.0

    @property
    def inputs(self) -> Sequence[tuple[RecordSource, RecordFollower]]:
        """Its source, with the receiver of the changes there."""
        return ((self._source, self),)

    def covers_topic(self, name: str) -> bool:
        """See `RecordSource.covers_topic`."""
        if not self.is_container:
            return name == self.name
        prefix, _, suffix = (self.spec.topic_format or _NAME).partition(_NAME)
        source_name = name[len(prefix) : len(name) - len(suffix)]
        return name == prefix + source_name + suffix and self._source.covers_topic(source_name)

    def query(self, spec: QuerySpec, now: int) -> Query:
        """See `RecordSource.query`."""
        return Query(self.table, spec, now)

    def handle_change(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        """See `RecordFollower.handle_change`."""
        self.changes += 1
        identity = self.table.make_identity(change.key, self._copied_name(change.topic))
        pending = self._pending.get(identity)
        due_s = self._clock.steady() + self._interval_s if pending is None else pending.due_s
        if not self._pending and self._is_populated:
            self._clock.call_later(self._interval_s, self._copy_due)
        self._pending[identity] = _PendingCopy(due_s, change.record, envelope, reason)

    def populate(self) -> None:
        """Create its records from existing ones, unannounced. Called once, at the start."""
        for _ in self.begin_population(to_nanoseconds(self._clock.now())):
            pass
        self.finish_population()

    def begin_population(self, now: int) -> Iterator[None]:
        """Begin to create its records beside traffic; the next changes of records wait.

        Args:
            now: the time in nanoseconds since 1970.

        Returns:
            The steps of the work, after which `finish_population` is to be called.
        """
        self._is_populated = False
        return self._populate(self._source.query(QuerySpec(), now))

    def _populate(self, query: OpenQuery) -> Iterator[None]:
        try:
            for records in query:
                for record in records:
                    copied_name = self._copied_name(record.topic)
                    self._copy(self.table.make_identity(record.key, copied_name), record)
                yield
        finally:
            query.close()

    def finish_population(self) -> None:
        """Copy changes after their interval from now on, the waiting ones as well."""
        self._is_populated = True
        if self._pending:
            self._clock.call_later(0, self._copy_due)

    def _copied_name(self, topic: str) -> str:
        """Return the name under which the records of a topic are copied."""
        if not self.is_container:
            return self.name
        return (self.spec.topic_format or _NAME).replace(_NAME, topic)

    def _copy_due(self) -> None:
        now = self._clock.steady()
        self.check_count += 1
        while self._pending:
            identity, first = next(iter(self._pending.items()))
            if first.due_s > now:
                self._clock.call_later(first.due_s - now, self._copy_due)
                break
            del self._pending[identity]
            change = self._copy(identity, first.record)
            if change is not None:
                self.copies += 1
                reason, envelope = first.reason, first.envelope
                if first.record is not None:  # a batch of messages shares the envelope
                    reason = MATCH
                    envelope = envelope.with_time_and_bookmark(
                        envelope.received_s, first.record.bookmark
                    )
                self._announce(self.type_name, [change], envelope, reason)
        self.check_seconds += self._clock.steady() - now
        self._flush()

    def _copy(self, identity: str, record: Record | None) -> RecordChange | None:
        """Update the copy of a record; return None if it is up to date already."""
        sequence = self._sow_registry.next_sequence()
        if record is not None and self._filter(record):
            copy = record._replace(
                body=self._enrich(record),
                topic=self._copied_name(record.topic),
                expires=0,
                sequence=sequence,
            )
            return self.table.put(copy)
        return self.table.remove(identity, sequence, to_nanoseconds(self._clock.now()))

    def _enrich(self, record: Record) -> bytes:
        if self._enrichment is None:
            return record.body
        try:
            return self._enrichment.apply(record.body, None, context_of(record))
        except BodyError:
            return record.body


def _table_options(
    spec: ConflatedTopicSpec, source: RecordSource, functions: Functions
) -> RecordTableOptions:
    """Return options with indexes on the fields of the source's key, and as configured."""
    source_options = source.table.options
    return RecordTableOptions(
        hash_indexes=tuple(
            tuple(parse_identifier(text, ContextKind.PATH).path for text in index)
            for index in spec.hash_indexes
        ),
        key_fields=() if spec.enrichment else source_options.key_fields,
        key_domain=source_options.key_domain,
        has_pattern=source.is_container,
        functions=functions,
    )
