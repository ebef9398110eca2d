"""A link as the checks see it: the topics sent over it, and their treatment at the other end.

A configuration may have thousands of topics, and a destination one Topic for each, so lookups per
topic are by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from config_schema.regex import matches
from config_schema.selection import Coverage, PatternIntersection, TopicPattern
from config_schema.topology.description import (
    Destination,
    InstanceDescription,
    ReplicatedTopic,
    SowDescription,
)

OnwardTopic: TypeAlias = tuple[Destination, ReplicatedTopic]


@dataclass(eq=False)
class TopologyLink:
    """A source and the instance at the other end, with the lookup tables of the topics.

    Attributes:
        source: the instance that sends.
        downstream: the instance that receives.
        return_destinations: the destinations of `downstream` that lead to `source`.
    """

    source: InstanceDescription
    downstream: InstanceDescription
    return_destinations: Sequence[Destination]

    @cached_property
    def source_logged(self) -> Coverage:
        """The topics that the source records."""
        return Coverage(topic.selection for topic in self.source.logged)

    @cached_property
    def downstream_logged(self) -> Coverage:
        """The topics that the other end records."""
        return Coverage(topic.selection for topic in self.downstream.logged)

    @cached_property
    def returned_topics(self) -> Coverage:
        """The topics that the other end sends back."""
        return Coverage(
            topic.selection
            for destination in self.return_destinations
            for topic in destination.topics
        )

    @cached_property
    def source_record_topics(self) -> dict[TopicPattern, SowDescription]:
        """The topics of the source that have records, and messages that can be replicated."""
        return {
            topic.selection: topic
            for topic in self.source.stored
            if topic.kind == "Topic" and self.source_logged.covers((topic.selection,))
        }

    @cached_property
    def source_shared_queues(self) -> dict[TopicPattern, SowDescription]:
        """The queues of the source that can be shared."""
        return {queue.selection: queue for queue in self.source.stored if queue.is_shared_queue}

    @cached_property
    def onward_destinations(self) -> list[tuple[Destination, Coverage]]:
        """The destinations of the other end, each with its topics."""
        return [
            (destination, Coverage(topic.selection for topic in destination.topics))
            for destination in self.downstream.destinations
        ]

    @cached_property
    def onward_by_name(self) -> dict[TopicPattern, list[OnwardTopic]]:
        """The onward Topics that name one topic each."""
        onward_topics: dict[TopicPattern, list[OnwardTopic]] = {}
        for destination in self.downstream.destinations:
            for topic in destination.topics:
                if not topic.selection.is_expression:
                    onward_topics.setdefault(topic.selection, []).append((destination, topic))
        return onward_topics

    @cached_property
    def onward_by_expression(self) -> list[OnwardTopic]:
        """The onward Topics that are expressions."""
        return [
            (destination, topic)
            for destination in self.downstream.destinations
            for topic in destination.topics
            if topic.selection.is_expression
        ]

    def find_downstream_topic(self, topic: SowDescription) -> SowDescription | None:
        """Return the definition at the other end with the topic's name."""
        return self._downstream_topics.get(topic.selection)

    def find_downstream_records(self, topic: SowDescription) -> SowDescription | None:
        """Return the Topic at the other end that stores the records of one of the source."""
        definition = self.find_downstream_topic(topic)
        if definition is not None:
            alike = definition.kind == "Topic" and definition.pattern == topic.pattern
            return definition if alike else None
        if topic.pattern is not None:
            return None
        covering = (
            pattern
            for pattern in self._downstream_patterns
            if pattern.message_type == topic.message_type
            and matches(pattern.pattern or "", topic.name)
        )
        return next(covering, None)

    @cached_property
    def _downstream_topics(self) -> dict[TopicPattern, SowDescription]:
        return {topic.selection: topic for topic in self.downstream.stored}

    @cached_property
    def _downstream_patterns(self) -> tuple[SowDescription, ...]:
        return tuple(topic for topic in self.downstream.stored if topic.pattern is not None)


@dataclass(frozen=True)
class DestinationTopic:
    """A Topic of a Destination: the topics of the source that it sends."""

    link: TopologyLink
    topic: ReplicatedTopic

    @cached_property
    def recorded_topics(self) -> tuple[PatternIntersection, ...]:
        """The recorded topics that are sent; of queues, the log has only the underlying topics."""
        queue = self.link.source_shared_queues.get(self.topic.selection)
        if queue is not None and queue.underlying_topic != queue.name:
            return ()
        return tuple(self.link.source_logged.intersections(self.topic.selection))

    @cached_property
    def record_topics(self) -> tuple[SowDescription, ...]:
        """The topics with records whose messages are sent."""
        return self._select_topics(self.link.source_record_topics)

    @cached_property
    def shared_queues(self) -> tuple[SowDescription, ...]:
        """The queues that are shared with the other end."""
        return self._select_topics(self.link.source_shared_queues)

    def onward_topics(self) -> Iterator[OnwardTopic]:
        """Return the Topics by which the other end replicates a part of this onward."""
        selection = self.topic.selection
        if not selection.is_expression:
            yield from self.link.onward_by_name.get(selection, ())
        else:
            for name, onward in self.link.onward_by_name.items():
                is_sent = (
                    self.link.source_logged.covers((name,))
                    or name in self.link.source_shared_queues
                )
                if is_sent and selection.includes(name):
                    yield from onward
        for destination, topic in self.link.onward_by_expression:
            if self._overlaps(topic.selection):
                yield destination, topic

    def _overlaps(self, other: TopicPattern) -> bool:
        return any(all(map(other.overlaps, part)) for part in self.recorded_topics) or any(
            other.includes(queue.selection) for queue in self.shared_queues
        )

    def _select_topics(
        self, topics: dict[TopicPattern, SowDescription]
    ) -> tuple[SowDescription, ...]:
        selection = self.topic.selection
        if not selection.is_expression:
            return (topics[selection],) if selection in topics else ()
        return tuple(topic for name, topic in topics.items() if selection.includes(name))
