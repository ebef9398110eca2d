"""The tables of an instance: sources of records, and the columns learned for each permit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from server.sql.query.lru_cache import LruCache
from server.sql.query.tables import Table, TableKind
from server.sql.tables.columns import FieldColumn, Metadata, TopicColumns
from server.sql.tables.history_table import InstanceHistory
from server.sql.tables.queue_table import QueueColumns, QueueSource
from server.sql.tables.segment_cache import SegmentCache
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.conflated_topic import ConflatedTopic
from server.topics.view_topic import View
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.security.permissions import Permit
    from server.topics.record_source import RecordSource

SourceColumns: TypeAlias = TopicColumns | QueueColumns
"""The columns of a table that the record store or a queue answers for."""

_MAX_COLUMN_SETS: Final = 2_000
"""Sets of columns that are kept: one per topic, and one more per permitted filter and fields."""


_RELEARN_SECONDS: Final = 1.0
"""Minimum time between two such samples."""


class SessionTopic(NamedTuple):
    """A topic as a user sees it.

    Attributes:
        source: the topic, or the queue.
        permit: the user's permit to read it.
        columns: its columns.
        table: it as a table.
        outputs: the columns of the table by name.
    """

    source: RecordSource
    permit: Permit
    columns: SourceColumns
    table: Table
    outputs: Mapping[str, FieldColumn | Metadata]


class InstanceTables:
    """The columns of the topics of an instance. All calls come from the engine's thread.

    Args:
        engine: the engine.

    Attributes:
        engine: the engine.
        history: the topics of the transaction log.
        segments: the segments that are kept for further queries.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine
        self.segments: Final = SegmentCache()
        self._column_sets: Final = LruCache[tuple[int, str, str], SourceColumns](_MAX_COLUMN_SETS)
        self.history: Final = InstanceHistory(engine)
        self._sources: list[tuple[RecordSource, TableKind]] = []
        self._version = -1  # of the topics, when they were listed
        self._last_learned_s = 0.0

    @property
    def sources(self) -> Sequence[tuple[RecordSource, TableKind]]:
        """The topics with records and the queues, and their kinds."""
        sow_registry = self.engine.sow_registry
        if self._version != sow_registry.version:
            self._version = sow_registry.version
            self._sources = []
            known: set[tuple[str, str]] = set()
            for source in sow_registry.sources:
                kind = _kind_of(source)
                name = source.type_name, source.name
                if kind is not None and name not in known:
                    known.add(name)
                    self._sources.append((source, kind))
            self._sources += [(queue, TableKind.QUEUE) for queue in self._make_queue_sources()]
        return self._sources

    def _make_queue_sources(self) -> Iterator[QueueSource]:
        engine = self.engine
        for queue in engine.topics.queues or ():
            assert engine.transaction_log is not None  # noqa: S101 - queues need it
            yield QueueSource(
                queue,
                engine.transaction_log,
                lambda: round(engine.clock.wall_offset_s * MICROSECONDS_PER_SECOND),
            )

    def columns_of(self, source: RecordSource, permit: Permit) -> SourceColumns:
        """Return the columns of a topic, as learned from the records that a permit covers."""
        key = id(source), permit.filter_text, permit.select_text
        columns = self._column_sets.get(key)
        if columns is None:
            log, filter_, select = self.engine.log, permit.filter, permit.select
            columns = (
                QueueColumns(source, log, filter_, select)
                if isinstance(source, QueueSource)
                else TopicColumns(source, log, filter_, select)
            )
            self._column_sets.put(key, columns)
        return columns

    def may_learn_again(self) -> bool:
        """Return whether changed records may be sampled again now; if so, note the time."""
        now = self.engine.clock.steady()
        if now - self._last_learned_s < _RELEARN_SECONDS:
            return False
        self._last_learned_s = now
        return True


def _kind_of(source: RecordSource) -> TableKind | None:
    if isinstance(source, SowTopicRecords):
        return TableKind.TOPIC
    if isinstance(source, View):
        return TableKind.VIEW
    return TableKind.CONFLATED if isinstance(source, ConflatedTopic) else None
