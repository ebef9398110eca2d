"""Views: topics with records that are computed from those of other topics.

A view follows its underlying topics. A change there becomes changes of rows (`sources`, `join`),
these change groups (`groups`), and each changed group becomes a record again, with a new body.
Subscribers and further views are notified of it as of any other record. A group without rows has no
record.

Nothing of a view is stored: at the start all groups are computed from the existing records, in the
order of their updates, so that fields which show the last value show it again. A view that comes
later computes them in steps, from the records as they are at one moment, while changes wait.

Inline conflation defers the computation until the server has read the commands waiting for it, and
merges all changes of a record in the meantime into one.

Source: AMPS User Guide, Understanding Views; Defining Views and Aggregations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from server.expressions import ContextKind, parse_identifier
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.query.query import Query, QuerySpec
from server.storage.sow.record_table import RecordTable
from server.storage.sow.record_table_options import RecordTableOptions
from server.storage.sow.records import Record, RecordChange, to_nanoseconds
from server.storage.views.aggregation import Aggregation
from server.storage.views.definition import CompiledView
from server.storage.views.sources import in_order
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.record_delivery import DELETED, MATCH

if TYPE_CHECKING:
    from config_schema.spec import TopicRef, ViewSpec
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.storage.views.groups import Group
    from server.topics.record_source import RecordFollower, RecordSource
    from server.topics.sow_registry import AnnounceChanges, SowRegistry
    from server.util.clock import Clock


_POPULATION_BATCH_SIZE: Final = 250
"""Records and groups that are computed in one step of a population beside traffic."""


class _PendingInputChange(NamedTuple):
    """A change of an underlying record that has not been processed.

    Attributes:
        input_index: the index of the underlying topic.
        change: the change.
        envelope: the origin of the change.
        reason: the reason why the record is gone, if it is.
    """

    input_index: int
    change: RecordChange
    envelope: Envelope
    reason: str


_InputKey: TypeAlias = "tuple[int, str, str]"
"""An underlying record: the index of its topic, its topic's name, and its SOW key."""


class _Input:
    """Receives the changes of one of a view's underlying topics."""

    __slots__ = ("_input_index", "_queue_change")

    def __init__(
        self, input_index: int, queue_change: Callable[[_PendingInputChange], None]
    ) -> None:
        self._input_index = input_index
        self._queue_change = queue_change

    def handle_change(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        """See `RecordFollower.handle_change`."""
        self._queue_change(_PendingInputChange(self._input_index, change, envelope, reason))


class View:
    """One `<View>` of the configuration.

    Args:
        spec: its description.
        find_topic: returns the topic of a reference.
        message_type: the type of its messages.
        functions: the functions that its expressions call.
        sow_registry: numbers its changes, and schedules it.
        clock: schedules deferred work.
        announce: notifies subscribers of its changes.
        flush: called after announcements that no command waits for.

    Raises:
        BodyError: its message type has no fields of such names.

    Attributes:
        spec: see above.
        name: its name in the configuration.
        type_name: the name of its message type.
        is_container: False: its records belong to one topic.
        key_fields: the fields that show the grouping.
        table: its records.
        inputs: its underlying topics, each with the receiver of its changes.
        changes: count of changes received from underlying topics.
        writes: count of resulting changes of its own records.
    """

    is_container: Final = False

    def __init__(
        self,
        spec: ViewSpec,
        find_topic: Callable[[TopicRef], RecordSource],
        message_type: MessageType,
        functions: Functions,
        sow_registry: SowRegistry,
        clock: Clock,
        announce: AnnounceChanges,
        flush: Callable[[], None],
    ) -> None:
        self.spec: Final = spec
        self.name: Final = spec.name
        self.type_name: Final = spec.message_type
        definition = CompiledView(
            spec, functions, lambda topic: find_topic(topic).table.message_type
        )
        sources = [find_topic(ref) for ref in definition.topics]
        self.inputs: Final[Sequence[tuple[RecordSource, RecordFollower]]] = [
            (source, _Input(index, self._queue_change)) for index, source in enumerate(sources)
        ]
        self._sow_registry: Final = sow_registry
        self._clock: Final = clock
        self._announce: Final = announce
        self._flush: Final = flush
        self._is_inline: Final = spec.inline_conflation
        self._rank: Final = sow_registry.derived_scheduler.register_topic()
        self._aggregation: Final = Aggregation(
            definition.projection,
            definition.make_row_source(),
            message_type,
            spec.key_domain,
            is_joined=len(sources) > 1,
        )
        shown = definition.shown_grouping
        self.key_fields: Final[Sequence[Path]] = [path for path in shown if path is not None]
        self.table: Final = RecordTable(
            MemoryStore(),
            message_type,
            RecordTableOptions(
                hash_indexes=tuple(
                    tuple(parse_identifier(text, ContextKind.PATH).path for text in index)
                    for index in spec.hash_indexes
                ),
                key_fields=tuple(self.key_fields) if None not in shown else (),
                key_domain=spec.key_domain,
                functions=functions,
            ),
        )
        self._pending: dict[_InputKey, _PendingInputChange] = {}
        self._is_populated = True  # unless it is being populated beside traffic
        self.changes = 0
        self.writes = 0

    @property
    def pending_count(self) -> int:
        """The number of changes of underlying records that have not been processed."""
        return len(self._pending)

    def covers_topic(self, name: str) -> bool:
        """See `RecordSource.covers_topic`."""
        return name == self.name

    def query(self, spec: QuerySpec, now: int) -> Query:
        """See `RecordSource.query`."""
        return Query(self.table, spec, now)

    def populate(self) -> None:
        """Create its records from existing ones, unannounced. Called once, at the start.

        The first topic comes last: then the records joined to its own are there already.
        """
        groups: dict[Group, int] = {}
        for input_index, (source, _) in reversed(list(enumerate(self.inputs))):
            for record in in_order(source.table.store):
                self._add_record(input_index, record, groups)
        for group, timestamp in groups.items():
            self._write_record(group, timestamp)

    def begin_population(self, now: int) -> Iterator[None]:
        """Begin to create its records beside traffic; the next changes of records wait.

        Args:
            now: the time in nanoseconds since 1970.

        Returns:
            The steps of the work, after which `finish_population` is to be called.
        """
        self._is_populated = False
        return self._populate([Query(source.table, QuerySpec(), now) for source, _ in self.inputs])

    def _populate(self, queries: Sequence[Query]) -> Iterator[None]:
        groups: dict[Group, int] = {}
        try:
            for input_index, query in reversed(list(enumerate(queries))):
                records: list[Record] = []
                for some in query:
                    records += some
                    yield
                order = np.argsort([record.sequence for record in records], kind="stable")
                for number, position in enumerate(order):
                    self._add_record(input_index, records[position], groups)
                    if number % _POPULATION_BATCH_SIZE == 0:
                        yield
        finally:
            for query in queries:
                query.close()
        for number, (group, timestamp) in enumerate(groups.items()):
            self._write_record(group, timestamp)
            if number % _POPULATION_BATCH_SIZE == 0:
                yield
        size = _POPULATION_BATCH_SIZE
        while len(self._pending) > size:
            keys = list(islice(self._pending, size))
            self._apply_unannounced({key: self._pending.pop(key) for key in keys})
            size += size // 8  # so that it ends, however fast records change
            yield

    def finish_population(self) -> None:
        """Process the changes that have waited, unannounced, and each one from now on."""
        pending, self._pending, self._is_populated = self._pending, {}, True
        self._apply_unannounced(pending)

    def _apply_unannounced(self, pending: Mapping[_InputKey, _PendingInputChange]) -> None:
        for change, envelope, reason in self._apply_changes(pending):
            for follower in self._sow_registry.followers(self):
                follower.handle_change(change, envelope, reason)

    def _add_record(self, input_index: int, record: Record, groups: dict[Group, int]) -> None:
        """Add an existing record to its groups, which become the last ones of `groups`.

        Args:
            input_index: the index of the record's topic.
            record: the record.
            groups: the groups to write, each with the time of its last record.
        """
        change = RecordChange(record.key, record.topic, None, record)
        for group in self._aggregation.apply_change(input_index, change, None):
            groups.pop(group, None)
            groups[group] = record.timestamp

    # ---- changes

    def _queue_change(self, pending: _PendingInputChange) -> None:
        """Queue a change of an underlying record; merge it with an earlier one of the record."""
        self.changes += 1
        if not self._pending and self._is_populated:
            if self._is_inline:
                self._clock.call_later(0, self._process_pending_and_flush)
            else:
                self._sow_registry.derived_scheduler.schedule(self._rank, self._process_pending)
        change = pending.change
        key = pending.input_index, change.topic, change.key
        earlier = self._pending.pop(key, None)
        if earlier is not None:
            change = change._replace(previous=earlier.change.previous)
            pending = pending._replace(change=change)
        self._pending[key] = pending

    def _process_pending_and_flush(self) -> None:
        self._process_pending()
        self._flush()

    def _process_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for change, envelope, reason in self._apply_changes(pending):
            self._announce(self.type_name, [change], envelope, reason)

    def _apply_changes(
        self, pending: Mapping[_InputKey, _PendingInputChange]
    ) -> Iterator[tuple[RecordChange, Envelope, str]]:
        """Update records one by one, and yield each change with its envelope and its reason."""
        changed_groups: dict[Group, _PendingInputChange] = {}
        for input_change in pending.values():
            for group in self._aggregation.apply_change(
                input_change.input_index, input_change.change, input_change.envelope
            ):
                changed_groups[group] = input_change
        for group, cause in changed_groups.items():
            received_s = cause.envelope.received_s
            change = self._write_record(group, to_nanoseconds(received_s))
            if change is not None:
                self.writes += 1
                removal_reason = DELETED if cause.reason == MATCH else cause.reason
                reason = MATCH if change.record is not None else removal_reason
                yield change, Envelope(None, received_s), reason

    def _write_record(self, group: Group, timestamp: int) -> RecordChange | None:
        """Update a group's record from its rows; return None if there was none and is none."""
        sequence = self._sow_registry.next_sequence()
        if not self._aggregation.remove_if_empty(group):
            return self.table.remove(group.sow_key, sequence, timestamp)
        body = self._aggregation.build_body(group)
        return self.table.put(Record(group.sow_key, body, self.name, timestamp, 0, sequence))
