"""Temporary views of an instance's topics, so that SQL can refer to them by name.

The protocol has no command that lists topics; the configuration lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from config_schema.spec import ConflatedTopicSpec, InstanceSpec, TopicRef, TopicSpec, ViewSpec
from pipeline.amps.source import AmpsDataSource
from pipeline.amps.uri import with_message_type
from pipeline.configuration import read_configuration
from pipeline.inference import TYPED_MODULES, SchemaInferenceError
from pipeline.rows import default_schema


def make_catalogue(
    spark: SparkSession, server: str, config: str, *, sample: int, options: Mapping[str, Any]
) -> list[str]:
    """Create the views; see `pipeline.catalogue`."""
    topics = list(_topics(read_configuration(config)))
    common = {name: str(value) for name, value in options.items()}
    times = Counter(topic.name for topic in topics)
    view_names = []
    for topic in topics:
        name = topic.name if times[topic.name] == 1 else f"{topic.name}!{topic.message_type}"
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


def _topics(spec: InstanceSpec) -> Iterator[TopicRef]:
    """Yield the topics with records that the configuration names."""
    for topic in spec.sow:
        match topic:
            case TopicSpec(pattern=None) | ViewSpec() | ConflatedTopicSpec(topic_format=None):
                yield topic.ref


def _schema(view_options: Mapping[str, str], topic: TopicRef, sample: int) -> StructType:
    """Return the fields of records, if they can be inferred; else the schema of whole bodies."""
    if topic.message_type in TYPED_MODULES:
        try:
            return AmpsDataSource({**view_options, "sample": str(sample)}).schema()
        except SchemaInferenceError:
            pass
    return default_schema(topic.message_type)
