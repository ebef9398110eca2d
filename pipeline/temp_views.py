"""Temporary views of an instance's topics, so that SQL can refer to them by name.

The protocol has no command that lists topics; the configuration lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from config_schema.spec import (
    ConflatedTopicSpec,
    InstanceSpec,
    QueueSpec,
    TopicRef,
    TopicSpec,
    ViewSpec,
)
from config_schema.table_names import table_names
from pipeline.amps.source import AmpsDataSource
from pipeline.amps.uri import with_message_type
from pipeline.configuration import read_configuration
from pipeline.inference import TYPED_MODULES, SchemaInferenceError
from pipeline.rows import default_schema


def make_catalogue(
    spark: SparkSession, server: str, config: str, *, sample: int, options: Mapping[str, Any]
) -> list[str]:
    """Create the views; see `pipeline.catalogue`."""
    topics = named_topics(read_configuration(config))
    common = {name: str(value) for name, value in options.items()}
    view_names = []
    for name, topic in topics.items():
        view_options = {
            **common,
            "server": with_message_type(server, topic.message_type),
            "topic": topic.name,
        }
        reader = spark.read.format(AmpsDataSource.name()).schema(
            _schema(view_options, topic, sample)
        )
        reader.load(**view_options).createOrReplaceTempView(f"`{name.replace('`', '``')}`")
        view_names.append(name)
    return view_names


def named_topics(spec: InstanceSpec) -> dict[str, TopicRef]:
    """Return the topics with records that the configuration names, by the names of their views.

    These are the names of their tables for clients of SQL, where queues and topics with a Pattern
    are tables, too.
    """
    topics = [topic for topic in spec.sow if isinstance(topic, _TABLES)]
    names = table_names((topic.ref.name, topic.ref.message_type) for topic in topics)
    found: dict[str, TopicRef] = {}
    for name, topic in zip(names, topics, strict=True):
        match topic:
            case TopicSpec(pattern=None) | ViewSpec() | ConflatedTopicSpec(topic_format=None):
                found[str(name)] = topic.ref
    return found


_TABLES = (TopicSpec, ViewSpec, ConflatedTopicSpec, QueueSpec)


def _schema(view_options: Mapping[str, str], topic: TopicRef, sample: int) -> StructType:
    """Return the fields of records, if they can be inferred; else the schema of whole bodies."""
    if topic.message_type in TYPED_MODULES:
        try:
            return AmpsDataSource({**view_options, "sample": str(sample)}).schema()
        except SchemaInferenceError:
            pass
    return default_schema(topic.message_type)
