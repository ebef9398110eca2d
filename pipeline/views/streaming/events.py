"""Events of the records of topics, as rows of a streaming DataFrame.

    key, body, topic, timestamp, sequence, correlation_id, bookmark, is_gone, expires

The first seven are those of `pipeline.views.records`. An event has the new state of a record, or
that it was removed (`is_gone`): then the body is its last one, or NULL if that is unknown. Within a
micro-batch, `sequence` is the order of events; a later micro-batch has later events. `expires` is
the time at which the record expires, in milliseconds since 1970; NULL for never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from pipeline.views import records
from pipeline.views.conflated import copier, copy_condition
from pipeline.views.records import records_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from config_schema.spec import ConflatedTopicSpec
    from pipeline.expressions import Environment

SCHEMA: Final = f"{records.SCHEMA}, is_gone boolean, expires long"


def conflated_events(
    spec: ConflatedTopicSpec, environment: Environment, source: DataFrame
) -> DataFrame:
    """Return the events of a conflated topic, after all pending records have been copied.

    Args:
        spec: the topic.
        environment: the instance that it belongs to.
        source: the events of its underlying topic.
    """
    if spec.filter is not None:
        is_gone = F.col("is_gone") | ~copy_condition(spec, environment)
        source = source.withColumn("is_gone", is_gone)
    return source.mapInArrow(_Copies(spec, environment), SCHEMA)


class _Copies:
    """Copies events; runs in the workers."""

    def __init__(self, spec: ConflatedTopicSpec, environment: Environment) -> None:
        self._spec = spec
        self._environment = environment

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        copy = copier(self._spec, self._environment)
        for batch in batches:
            removals = batch.column("is_gone").to_pylist()
            bodies = [
                None if is_gone else copy(record).body
                for record, is_gone in zip(records_in([batch]), removals, strict=True)
            ]
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns["body"] = pa.array(bodies, pa.binary())
            columns["topic"] = pa.array([self._spec.name] * len(bodies), pa.string())
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
