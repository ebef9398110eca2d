"""The topics with records: SOW topics, views, conflated topics, queues."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from server.statistics.resources import SOW
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import interval, topic_ids
from server.storage.sow.topic_records import SowTopicRecords

if TYPE_CHECKING:
    from server.queues.topic.queue_topic import QueueTopic
    from server.statistics.schema import StatisticValue
    from server.topics.record_source import RecordSource
    from server.topics.sow_registry import SowRegistry
    from server.topics.topic_table import TopicTable

_RECORD_SIZE: Final = 512
"""Bytes: AMPS reports this for any topic since records have no slots of one size."""

_RESIDENT_SECONDS: Final = 60.0
"""Interval between two measurements of a file's share in memory."""


class SowSource:
    """The topics with records. Create it after their recovery: counts begin there.

    Counts of topics that come later begin when they are first listed.

    Args:
        sow_registry: has them.
        topics: has the queues among them.
        elapsed: returns seconds, monotonic.
    """

    resource = SOW

    def __init__(
        self, sow_registry: SowRegistry, topics: TopicTable, elapsed: Callable[[], float]
    ) -> None:
        self._sow_registry = sow_registry
        self._topics = topics
        self._elapsed = elapsed
        self._version = -1
        self._entries: dict[RecordSource, _StoreEntry | _QueueEntry] = {}
        self._ids: list[str] = []
        self._list_topics()

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        if self._version != self._sow_registry.version:
            self._list_topics()
        for entry_id, topic in zip(self._ids, self._entries.values(), strict=True):
            yield topic.entry(entry_id)

    def _list_topics(self) -> None:
        self._version = self._sow_registry.version
        known, sources = self._entries, list(self._sow_registry.sources)
        self._entries = {source: known.get(source) or self._entry_of(source) for source in sources}
        self._ids = topic_ids((source.name, source.type_name) for source in sources)

    def _entry_of(self, source: RecordSource) -> _StoreEntry | _QueueEntry:
        queue = _queue_of(source, self._topics)
        return _StoreEntry(source, self._elapsed) if queue is None else _QueueEntry(queue, source)


def _queue_of(source: RecordSource, topics: TopicTable) -> QueueTopic | None:
    queue = None if topics.queues is None else topics.queues.find(source.type_name, source.name)
    return queue if queue is not None and queue.browser.records is source else None


class _StoreEntry:
    """A topic with a store of its own."""

    def __init__(self, source: RecordSource, elapsed: Callable[[], float]) -> None:
        table = source.table
        self._static_values = _static_values_of(source)
        self._table = table
        self._elapsed = elapsed
        self._baseline = len(table), table.updates, table.deletes  # counts of the recovery
        self._resident_checked_s = -_RESIDENT_SECONDS
        self._cached_resident = 100.0

    def entry(self, entry_id: str) -> StatisticsEntry:
        """Return its present entry."""
        table = self._table
        store = table.store
        statistics = store.statistics
        records, updates, deletes = self._baseline
        now = len(table)
        deleted = table.deletes - deletes
        dynamic_values = (
            deleted,
            now - records + deleted,
            table.memory_bytes,
            statistics.maps,
            table.queries,
            self._resident_percent(),
            statistics.slabs,
            statistics.stored_bytes,
            table.updates - updates,
            now,
        )
        return StatisticsEntry(entry_id, self._static_values, dynamic_values)

    def _resident_percent(self) -> float:
        now = self._elapsed()
        if now - self._resident_checked_s >= _RESIDENT_SECONDS:
            self._resident_checked_s = now
            self._cached_resident = round(100 * self._table.store.resident_share(), 2)
        return self._cached_resident


class _QueueEntry:
    """The messages of a queue, as records."""

    def __init__(self, queue: QueueTopic, source: RecordSource) -> None:
        counters = queue.core.counters
        self._static_values = _static_values_of(source)
        self._queue = queue
        self._table = source.table
        self._baseline = counters.enqueued, counters.acknowledged + counters.expired

    def entry(self, entry_id: str) -> StatisticsEntry:
        """Return its present entry."""
        core, cached_bytes = self._queue.core, self._queue.bytes_cached
        counters = core.counters
        enqueued, left = self._baseline
        deleted = counters.acknowledged + counters.expired - left
        inserted = counters.enqueued - enqueued
        queries = self._table.queries
        dynamic_values = (
            deleted,
            inserted,
            cached_bytes,
            0,
            queries,
            100.0,
            0,
            cached_bytes,
            0,
            core.depth,
        )
        return StatisticsEntry(entry_id, self._static_values, dynamic_values)


def _static_values_of(source: RecordSource) -> tuple[StatisticValue, ...]:
    statistics = source.table.store.statistics
    history = source.spec.history if isinstance(source, SowTopicRecords) else None
    return (
        _device_of(statistics.path),
        "" if history is None else interval(history.granularity),
        "" if history is None else interval(history.window),
        source.type_name,
        statistics.path,
        _RECORD_SIZE,
        statistics.slab_size,
        source.name,
    )


def _device_of(path: str) -> str:
    """Return the name of the device that a file is on; empty if there is none."""
    if not path:
        return ""
    try:
        number = os.stat(path).st_dev
    except OSError:
        return ""
    link = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    return os.path.basename(os.path.realpath(link)) if os.path.exists(link) else ""
