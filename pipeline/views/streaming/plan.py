"""A view as a streaming DataFrame, composed of its stages.

    events of a topic  ->  latest  \\
    events of a topic  ->  latest  ->  joins  ->  groups  ->  events of the view

Underlying views become the events of a topic in the same way; conflated topics copy their events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from config_schema.spec import ConflatedTopicSpec, InstanceSpec, TopicRef, TopicSpec, ViewSpec
from pipeline.errors import PipelineError
from pipeline.expressions import Environment
from pipeline.views.definition import ViewDefinition
from pipeline.views.streaming.events import conflated_events
from pipeline.views.streaming.groups import group_events
from pipeline.views.streaming.joins import join_rows
from pipeline.views.streaming.latest import latest_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EventsOf: TypeAlias = "Callable[[TopicSpec], DataFrame]"
"""Returns the events of a topic that clients publish to; see `events.SCHEMA`."""


def topics_below(spec: InstanceSpec, view: TopicRef) -> list[TopicSpec]:
    """Return the topics that clients publish to below a view.

    Args:
        spec: the instance.
        view: the view.

    Raises:
        PipelineError: a topic cannot be followed: it has no SOW, or is not in the log.
    """
    topics = {topic.ref: topic for topic in spec.sow}
    needed_topics: dict[TopicRef, TopicSpec] = {}

    def visit(ref: TopicRef) -> None:
        topic = topics.get(ref)
        if isinstance(topic, ViewSpec):
            for below in topic.underlying:
                visit(below)
        elif isinstance(topic, ConflatedTopicSpec):
            visit(topic.underlying)
        elif isinstance(topic, TopicSpec):
            _require_log(spec, view, topic)
            needed_topics[ref] = topic
        else:
            raise PipelineError(f"view {view}: {ref} is not a topic with records")

    visit(view)
    return list(needed_topics.values())


def _require_log(spec: InstanceSpec, view: TopicRef, topic: TopicSpec) -> None:
    if not spec.is_journaled(topic.message_type, topic.name):
        raise PipelineError(
            f"view {view}: its topic {topic.ref} is not in the TransactionLog of the configuration,"
            " so that it cannot be followed; compute the view once, without --follow"
        )


def view_events(spec: InstanceSpec, view: TopicRef, events_of: EventsOf) -> DataFrame:
    """Return the events of a view's records.

    Args:
        spec: the instance.
        view: the view; see `topics_below` for its requirements.
        events_of: returns the events of underlying topics.

    Returns:
        Events; see `events.SCHEMA`; each record at most once in a micro-batch.
    """
    environment = Environment(spec)
    topics = {topic.ref: topic for topic in spec.sow}

    def events(ref: TopicRef) -> DataFrame:
        topic = topics[ref]
        if isinstance(topic, ViewSpec):
            return of_view(ViewDefinition(topic, environment))
        if isinstance(topic, ConflatedTopicSpec):
            return conflated_events(topic, environment, events(topic.underlying))
        assert isinstance(topic, TopicSpec)  # noqa: S101 - see topics_below
        return events_of(topic)

    def of_view(definition: ViewDefinition) -> DataFrame:
        rows: DataFrame | None = None
        for place, ref in enumerate(definition.compiled.topics):
            latest = latest_rows(definition, place, events(ref), expire=_expires(topics[ref]))
            rows = latest if rows is None else join_rows(definition, rows, latest)
        assert rows is not None  # noqa: S101 - a view has a topic
        return group_events(definition, rows)

    return events(view)


def _expires(topic: object) -> bool:
    return isinstance(topic, TopicSpec) and topic.expiration_enabled
