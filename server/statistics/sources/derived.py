"""The topics that are computed from others: views and conflated topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from config_schema.spec import ConflatedTopicSpec, ViewSpec
from server.statistics.resources import CONFLATED_TOPICS, VIEWS
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.names import topic_ids
from server.statistics.sources.texts import interval
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.conflated_topic import ConflatedTopic
from server.topics.view_topic import View

if TYPE_CHECKING:
    from config_schema.spec import SowSpec
    from server.statistics.schema import StatisticValue
    from server.topics.sow_registry import SowRegistry

_MICROSECONDS = 1_000_000


class ConflatedTopicsSource:
    """The conflated topics.

    Args:
        specs: the descriptions of all topics.
        sow_registry: has the topics.
    """

    resource = CONFLATED_TOPICS

    def __init__(self, specs: Iterable[SowSpec], sow_registry: SowRegistry) -> None:
        described = {
            (spec.name, spec.message_type): spec
            for spec in specs
            if isinstance(spec, ConflatedTopicSpec)
        }
        topics = [spec for spec in sow_registry.sources if isinstance(spec, ConflatedTopic)]
        ids = topic_ids((spec.name, spec.type_name) for spec in topics)
        self._topics = [
            (name, topic, _conflation(described[topic.name, topic.type_name], sow_registry))
            for name, topic in zip(ids, topics, strict=True)
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for name, topic, static_values in self._topics:
            seconds = round(topic.check_seconds * _MICROSECONDS)
            yield StatisticsEntry(
                name,
                static_values,
                (_ratio(topic.changes, topic.copies), topic.check_count, seconds),
            )


class ViewsSource:
    """The views.

    Args:
        specs: the descriptions of all topics.
        sow_registry: has the topics.
    """

    resource = VIEWS

    def __init__(self, specs: Iterable[SowSpec], sow_registry: SowRegistry) -> None:
        described = {
            (spec.name, spec.message_type): spec for spec in specs if isinstance(spec, ViewSpec)
        }
        views = [spec for spec in sow_registry.sources if isinstance(spec, View)]
        ids = topic_ids((spec.name, spec.type_name) for spec in views)
        self._views = [
            (name, view, _definition(described[view.name, view.type_name]))
            for name, view in zip(ids, views, strict=True)
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for name, view, static_values in self._views:
            yield StatisticsEntry(
                name, static_values, (_ratio(view.changes, view.writes), view.pending_count)
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
