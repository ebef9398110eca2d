"""Compares the views of a server with the same views computed by Spark.

Both are read while clients may be publishing. A view that differs is read again after a pause; only
the differences of the last comparison are reported.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config_schema.spec import InstanceSpec, TopicRef, ViewSpec
from pipeline.views.batch import view_records
from pipeline.views.sources import server_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_ATTEMPTS: Final = 3
_RETRY_INTERVAL_S: Final = 1.0
"""Seconds between two attempts."""


@dataclass(frozen=True)
class ViewDifference:
    """A record that differs between server and Spark.

    Attributes:
        key: its SOW key.
        server: its body in the server, None if there is no such record.
        spark: its body in Spark, None if there is no such record.
    """

    key: str
    server: bytes | None
    spark: bytes | None


@dataclass(frozen=True)
class ViewCheck:
    """The result of the check of one view.

    Attributes:
        view: the view.
        records: the number of records that the server has.
        differences: the differing records.
    """

    view: TopicRef
    records: int
    differences: Sequence[ViewDifference]


def check_views(spark: SparkSession, spec: InstanceSpec, server: str) -> list[ViewCheck]:
    """Compare all views of a configuration.

    Args:
        spark: the session that computes them.
        spec: the configuration.
        server: the URI of an instance that runs it, without the message type:
            `tcp://host:port/amps`.

    Raises:
        PipelineError: the server cannot be read.
    """
    views = [topic.ref for topic in spec.sow if isinstance(topic, ViewSpec)]
    return [_check(spark, spec, server, view) for view in views]


def _check(spark: SparkSession, spec: InstanceSpec, server: str, view: TopicRef) -> ViewCheck:
    verdict = _compare(spark, spec, server, view)
    for _ in range(_MAX_ATTEMPTS - 1):
        if not verdict.differences:
            break
        time.sleep(_RETRY_INTERVAL_S)
        verdict = _compare(spark, spec, server, view)
    return verdict


def _compare(spark: SparkSession, spec: InstanceSpec, server: str, view: TopicRef) -> ViewCheck:
    in_spark = _bodies(view_records(spec, view, lambda ref: server_records(spark, server, ref)))
    in_server = _bodies(server_records(spark, server, view))
    differences = [
        ViewDifference(key, in_server.get(key), in_spark.get(key))
        for key in sorted(in_server.keys() | in_spark.keys())
        if in_server.get(key) != in_spark.get(key)
    ]
    return ViewCheck(view, len(in_server), differences)


def _bodies(records: DataFrame) -> dict[str, bytes]:
    return {row["key"]: bytes(row["body"]) for row in records.select("key", "body").collect()}
