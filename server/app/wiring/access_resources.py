"""Finds the entitlement resource of a topic from the configuration alone.

In a running instance, `server.topics.sow_registry.SowRegistry.entitlement_resource` finds it from
the existing topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config_schema.regex import matches
from config_schema.spec import ConflatedTopicSpec, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from config_schema.spec import InstanceSpec, SowSpec


def resource_of(spec: InstanceSpec, name: str, message_type: str | None) -> str:
    """Return the name that a topic's permissions are for: for topics of a Pattern, its `Name`.

    Args:
        spec: the instance.
        name: the topic.
        message_type: that of the transport; None if clients choose: the first topic found counts.
    """
    topics = [topic for topic in spec.sow if message_type in (None, topic.message_type)]
    match = next((topic for topic in topics if _stores(topic, name, topics)), None)
    if match is None:
        return name
    if not is_container(match, topics):
        return match.name
    for topic in topics:
        if (
            isinstance(topic, ConflatedTopicSpec)
            and topic.underlying == match.ref
            and _stores(topic, name, topics)
        ):
            match = topic
    return match.name


def _source(topic: ConflatedTopicSpec, topics: Sequence[SowSpec]) -> SowSpec | None:
    return next((candidate for candidate in topics if candidate.ref == topic.underlying), None)


def is_container(topic: SowSpec, topics: Sequence[SowSpec]) -> bool:
    """Return whether a topic of the configuration has a Pattern, or copies one that has."""
    if isinstance(topic, ConflatedTopicSpec):
        source = _source(topic, topics)
        return source is not None and is_container(source, topics)
    return isinstance(topic, TopicSpec) and topic.pattern is not None


def _stores(topic: SowSpec, name: str, topics: Sequence[SowSpec]) -> bool:
    """Return whether a topic of the configuration stores the records of topic `name`."""
    if isinstance(topic, TopicSpec) and topic.pattern is not None:
        return matches(topic.pattern, name)
    if not isinstance(topic, ConflatedTopicSpec) or not is_container(topic, topics):
        return name == topic.name
    before, _, after = (topic.topic_format or "%n").partition("%n")
    inner = name[len(before) : len(name) - len(after)]
    source = _source(topic, topics)
    return name == before + inner + after and source is not None and _stores(source, inner, topics)
