"""Conflated topics below a view: as they are once all that was waiting has been copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from config_schema.spec import ConflatedTopicSpec
from pipeline.expressions import Environment, Message, matches
from pipeline.views.records import SCHEMA, batch_of, records_in
from server.expressions import Kind, parse_field
from server.message_types.base import BodyError
from server.sow.enrichment import FieldStage
from server.sow.record_context import context_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def conflated_records(
    spec: ConflatedTopicSpec, environment: Environment, source: DataFrame
) -> DataFrame:
    """The records of a conflated topic.

    Args:
        spec: the topic.
        environment: the instance that it belongs to.
        source: the records of the topic that it is a copy of.
    """
    records = source
    if spec.filter is not None:
        context = {
            "topic_name": F.col("topic"),
            "sow_key": F.col("key"),
            "bookmark": F.col("bookmark"),
            "correlation_id": F.col("correlation_id"),
            "last_updated": F.col("timestamp") / 1e9,
        }
        message = Message(F.col("body"), spec.message_type, context=context)
        records = records.where(matches(spec.filter, message, environment))
    return records.mapInArrow(_Copies(spec, environment), SCHEMA)


class _Copies:
    """Copies records, with what the topic adds to them; runs in the workers."""

    def __init__(self, spec: ConflatedTopicSpec, environment: Environment) -> None:
        self._spec = spec
        self._environment = environment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Copy batches of records."""
        functions = self._environment.functions()
        message_type = self._environment.message_type(self._spec.message_type)
        fields = [
            parse_field(text, Kind.CONFLATED_ENRICHMENT, functions)
            for text in self._spec.enrichment
        ]
        stage = FieldStage(fields, message_type, functions) if fields else None
        for batch in batches:
            copies = []
            for record in records_in([batch]):
                body = record.body
                if stage is not None:
                    with suppress(BodyError):  # the server copies what it cannot parse as it is
                        body = stage.apply(body, None, context_of(record))
                copies.append(record._replace(body=body, topic=self._spec.name))
            yield batch_of(copies)
