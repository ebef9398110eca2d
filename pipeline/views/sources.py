"""Sources of the records below a view: a running server, or journals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from config_schema.spec import InstanceSpec, QueueSpec, TopicRef, TopicSpec
from pipeline.amps.uri import with_message_type
from pipeline.entries import EntrySource, state_of
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

_SERVER_COLUMNS: Final = (
    "body binary, topic string, sow_key string, bookmark string, timestamp timestamp,"
    " correlation_id string"
)


def server_records(spark: SparkSession, server: str, ref: TopicRef) -> DataFrame:
    """Return the current records of a topic of a server; see `records.SCHEMA`.

    Args:
        spark: the session.
        server: the server's URI: `tcp://host:port/amps`; its message type is ignored.
        ref: the topic.
    """
    reader = spark.read.format("amps").schema(_SERVER_COLUMNS)
    records = reader.load(server=with_message_type(server, ref.message_type), topic=ref.name)
    return _as_records(records, F.unix_micros("timestamp"))


def journal_records(
    spark: SparkSession,
    spec: InstanceSpec,
    ref: TopicRef,
    path: Path,
    archive: Path | None = None,
    bookmark: str = "",
    moment: datetime | None = None,
) -> DataFrame:
    """Return the records that a topic had, from its journals; see `records.SCHEMA`.

    Args:
        spark: the session.
        spec: the instance.
        ref: the topic.
        path: the directory of journals.
        archive: the directory of archived journals.
        bookmark: the part of the log to use, from its beginning; all of it if empty.
        moment: the time at which lifetimes are checked; see `state_of`.

    Raises:
        PipelineError: the journals do not have the topic, by the configuration.
    """
    if any(isinstance(topic, QueueSpec) and topic.ref == ref for topic in spec.sow):
        raise PipelineError(
            f"{path}: {ref} is a queue; journals have its published messages, not those that"
            " wait in it: compute the view from the server (--server)"
        )
    if spec.transaction_log is not None and not spec.is_journaled(ref.message_type, ref.name):
        raise PipelineError(
            f"{path}: topic {ref} is not in the TransactionLog of the configuration, so that"
            " journals have no entries of it"
        )
    topic = names_of(spec, ref)
    source = EntrySource(
        path, archive, topic, bookmark, message_type=ref.message_type, instance=spec.name
    )
    records = state_of(spark, source, moment)
    return _as_records(records, F.col("txid"))


def names_of(spec: InstanceSpec, ref: TopicRef) -> str:
    """Return a regular expression of the names under which messages for a topic are published.

    Args:
        spec: the instance.
        ref: the topic.
    """
    topics = {topic.ref: topic for topic in spec.sow if isinstance(topic, TopicSpec)}
    pattern = topics[ref].pattern if ref in topics else None
    return pattern or f"^{re.escape(ref.name)}$"


def _as_records(records: DataFrame, sequence: Column) -> DataFrame:
    return records.select(
        F.col("sow_key").alias("key"),
        F.col("body").cast("binary").alias("body"),
        "topic",
        (F.unix_micros("timestamp") * 1000).alias("timestamp"),
        sequence.alias("sequence"),
        "correlation_id",
        "bookmark",
    )
