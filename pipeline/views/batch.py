"""A view as a DataFrame, computed from the records of its topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from config_schema.spec import ConflatedTopicSpec, InstanceSpec, TopicRef, ViewSpec
from pipeline.errors import PipelineError
from pipeline.expressions import Environment
from pipeline.views.conflated import conflated_records
from pipeline.views.definition import ViewDefinition
from pipeline.views.groups import grouped, rows_of_parts, rows_of_records
from pipeline.views.rows import join_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RecordsOf: TypeAlias = "Callable[[TopicRef], DataFrame]"
"""Returns the records of a topic that clients publish to; see `records.SCHEMA`."""


def view_records(
    spec: InstanceSpec, view: TopicRef, records_of: RecordsOf, moment: float | None = None
) -> DataFrame:
    """Compute a view.

    Underlying views and conflated topics are computed as well, from their own underlying topics.

    Args:
        spec: the instance.
        view: the view.
        records_of: returns the records of a topic: from its SOW or from journals, of the present or
            of the past.
        moment: the time for functions that use it, in seconds since 1970; the present if it is not
            given.

    Returns:
        The view's records; see `records.SCHEMA`.

    Raises:
        PipelineError: there is no such view, or Spark cannot compute an underlying topic.
    """
    environment = Environment(spec, moment)
    topics = {topic.ref: topic for topic in spec.sow}

    def computed(ref: TopicRef) -> DataFrame:
        topic = topics.get(ref)
        if isinstance(topic, ViewSpec):
            return _of_view(ViewDefinition(topic, environment), computed)
        if isinstance(topic, ConflatedTopicSpec):
            return conflated_records(topic, environment, computed(topic.underlying))
        return records_of(ref)

    if not isinstance(topics.get(view), ViewSpec):
        known = ", ".join(str(ref) for ref, topic in topics.items() if isinstance(topic, ViewSpec))
        raise PipelineError(f"view: the configuration has no view {view}; it has {known or 'none'}")
    return computed(view)


def _of_view(view: ViewDefinition, records_of: RecordsOf) -> DataFrame:
    topics = [records_of(ref) for ref in view.compiled.topics]
    if len(topics) == 1:
        return grouped(view, topics[0], rows_of_records)
    return grouped(view, join_parts(view, topics), rows_of_parts)
