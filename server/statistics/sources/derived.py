"""The topics that are computed from others: views and conflated topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.statistics.resources import CONFLATED_TOPICS, VIEWS
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import interval, topic_ids
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.conflated_topic import ConflatedTopic
from server.topics.view_topic import View
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from config_schema.spec import ConflatedTopicSpec, ViewSpec
    from server.statistics.schema import StatisticValue
    from server.topics.sow_registry import SowRegistry


class ConflatedTopicsSource:
    """The conflated topics.

    Args:
        sow_registry: has the topics.
    """

    resource = CONFLATED_TOPICS

    def __init__(self, sow_registry: SowRegistry) -> None:
        self._sow_registry = sow_registry

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        sources = self._sow_registry.sources
        topics = [source for source in sources if isinstance(source, ConflatedTopic)]
        ids = topic_ids((topic.name, topic.type_name) for topic in topics)
        for entry_id, topic in zip(ids, topics, strict=True):
            seconds = round(topic.check_seconds * MICROSECONDS_PER_SECOND)
            yield StatisticsEntry(
                entry_id,
                _conflation(topic.spec, self._sow_registry),
                (_ratio(topic.changes, topic.copies), topic.check_count, seconds),
            )


class ViewsSource:
    """The views.

    Args:
        sow_registry: has the topics.
    """

    resource = VIEWS

    def __init__(self, sow_registry: SowRegistry) -> None:
        self._sow_registry = sow_registry

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        views = [source for source in self._sow_registry.sources if isinstance(source, View)]
        ids = topic_ids((view.name, view.type_name) for view in views)
        for entry_id, view in zip(ids, views, strict=True):
            yield StatisticsEntry(
                entry_id,
                _definition(view.spec),
                (_ratio(view.changes, view.writes), view.pending_count),
            )


def _ratio(changes: int, updates: int) -> float:
    """Return the changes per update passed on; 0 as long as there has been none."""
    return round(changes / updates, 6) if updates else 0.0


def _conflation(spec: ConflatedTopicSpec, sow_registry: SowRegistry) -> tuple[StatisticValue, ...]:
    source = sow_registry.find_configured(spec.underlying)
    pattern = source.spec.pattern if isinstance(source, SowTopicRecords) else None
    return (
        spec.filter or "",
        interval(spec.interval),
        spec.message_type,
        pattern or "",
        spec.name,
        spec.topic_format or "",
        spec.underlying.name,
    )


def _definition(spec: ViewSpec) -> tuple[StatisticValue, ...]:
    return (
        "inline" if spec.inline_conflation else "none",
        ",".join(spec.grouping),
        spec.message_type,
        ",".join(spec.projection),
        spec.name,
        ",".join(topic.name for topic in spec.underlying),
    )
