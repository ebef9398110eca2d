"""A view as a DataFrame, made from the records of its topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from config_schema.spec import ConflatedTopicSpec, InstanceSpec, TopicRef, ViewSpec
from pipeline.errors import PipelineError
from pipeline.expressions import Environment
from pipeline.views.conflated import conflated_records
from pipeline.views.definition import ViewDefinition
from pipeline.views.groups import grouped, rows_of_parts, rows_of_records
from pipeline.views.rows import joined_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RecordsOf: TypeAlias = "Callable[[TopicRef], DataFrame]"
"""Gives the records of a topic that clients publish to, see `records.SCHEMA`."""


def view_records(
    spec: InstanceSpec, view: TopicRef, records_of: RecordsOf, moment: float | None = None
) -> DataFrame:
    """Compute a view.

    Views and conflated topics below it are computed as well, from the topics below them.

    Args:
        spec: the instance.
        view: the view.
        records_of: gives what it is computed from: from SOW topics, from journals, of the present
            or of the past.
        moment: the time for functions that ask for it, in seconds since 1970; the present if it is
            not given.

    Returns:
        The view's records, see `records.SCHEMA`.

    Raises:
        PipelineError: there is no such view, or it is over something that Spark cannot compute.
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
        raise PipelineError(f"view: {view} is none of the configuration: {known or 'it has none'}")
    return computed(view)


def _of_view(view: ViewDefinition, records_of: RecordsOf) -> DataFrame:
    topics = [records_of(ref) for ref in view.compiled.topics]
    if len(topics) == 1:
        return grouped(view, topics[0], rows_of_records)
    return grouped(view, joined_parts(view, topics), rows_of_parts)
