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
        stores: has the topics.
    """

    resource = CONFLATED_TOPICS

    def __init__(self, specs: Iterable[SowSpec], stores: SowRegistry) -> None:
        described = {
            (one.name, one.message_type): one
            for one in specs
            if isinstance(one, ConflatedTopicSpec)
        }
        topics = [one for one in stores.sources if isinstance(one, ConflatedTopic)]
        ids = topic_ids((one.name, one.type_name) for one in topics)
        self._topics = [
            (name, topic, _conflation(described[topic.name, topic.type_name], stores))
            for name, topic in zip(ids, topics, strict=True)
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for name, topic, fixed in self._topics:
            seconds = round(topic.check_seconds * _MICROSECONDS)
            yield StatisticsEntry(
                name, fixed, (_ratio(topic.changes, topic.copies), topic.check_count, seconds)
            )


class ViewsSource:
    """The views.

    Args:
        specs: the descriptions of all topics.
        stores: has the topics.
    """

    resource = VIEWS

    def __init__(self, specs: Iterable[SowSpec], stores: SowRegistry) -> None:
        described = {
            (one.name, one.message_type): one for one in specs if isinstance(one, ViewSpec)
        }
        views = [one for one in stores.sources if isinstance(one, View)]
        ids = topic_ids((one.name, one.type_name) for one in views)
        self._views = [
            (name, view, _definition(described[view.name, view.type_name]))
            for name, view in zip(ids, views, strict=True)
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for name, view, fixed in self._views:
            yield StatisticsEntry(
                name, fixed, (_ratio(view.changes, view.writes), view.pending_count)
            )


def _ratio(changes: int, made: int) -> float:
    """Return the changes per update passed on; 0 as long as there has been none."""
    return round(changes / made, 6) if made else 0.0


def _conflation(spec: ConflatedTopicSpec, stores: SowRegistry) -> tuple[StatisticValue, ...]:
    source = stores.find_configured(spec.underlying)
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
        ",".join(one.name for one in spec.underlying),
    )
