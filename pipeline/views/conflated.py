"""Conflated topics below a view, in the state after all pending records have been copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from config_schema.spec import ConflatedTopicSpec
from pipeline.expressions import Environment, Message, matches
from pipeline.views.records import SCHEMA, batch_of, records_in
from server.expressions import ContextKind, parse_field
from server.message_types.base import BodyError
from server.storage.sow.enrichment import EnrichmentStage
from server.storage.sow.record_context import context_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from server.storage.sow.records import Record


def conflated_records(
    spec: ConflatedTopicSpec, environment: Environment, source: DataFrame
) -> DataFrame:
    """Return the records of a conflated topic.

    Args:
        spec: the topic.
        environment: the instance that it belongs to.
        source: the records of its underlying topic.
    """
    records = source
    if spec.filter is not None:
        records = records.where(copy_condition(spec, environment))
    return records.mapInArrow(_Copies(spec, environment), SCHEMA)


def copy_condition(spec: ConflatedTopicSpec, environment: Environment) -> Column:
    """Return a condition that selects the records to copy; the topic has a filter.

    Args:
        spec: the topic.
        environment: the instance that it belongs to.
    """
    context = {
        "topic_name": F.col("topic"),
        "sow_key": F.col("key"),
        "bookmark": F.col("bookmark"),
        "correlation_id": F.col("correlation_id"),
        "last_updated": F.col("timestamp") / 1e9,
    }
    message = Message(F.col("body"), spec.message_type, context=context)
    return matches(spec.filter or "", message, environment)


def copier(spec: ConflatedTopicSpec, environment: Environment) -> Callable[[Record], Record]:
    """Return a function that copies records, with the topic's enrichment.

    Args:
        spec: the topic.
        environment: the instance that it belongs to.
    """
    functions = environment.functions()
    fields = [
        parse_field(text, ContextKind.CONFLATED_ENRICHMENT, functions) for text in spec.enrichment
    ]
    message_type = environment.message_type(spec.message_type)
    stage = EnrichmentStage(fields, message_type, functions) if fields else None

    def copy(record: Record) -> Record:
        body = record.body
        if stage is not None:
            with suppress(BodyError):  # the server copies a body that it cannot parse unchanged
                body = stage.apply(body, None, context_of(record))
        return record._replace(body=body, topic=spec.name)

    return copy


class _Copies:
    """Copies records; runs in the workers."""

    def __init__(self, spec: ConflatedTopicSpec, environment: Environment) -> None:
        self._spec = spec
        self._environment = environment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy batches of records."""
        copy = copier(self._spec, self._environment)
        for batch in batches:
            yield batch_of([copy(record) for record in records_in([batch])])
