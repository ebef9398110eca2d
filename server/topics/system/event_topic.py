"""Event topics: messages that the server itself publishes, in each client's own message type.

An event is a message like any other: it can be filtered, a regular expression may match its topic,
and a topic with records of its name stores it. It is built once for each message type with a
subscriber.

Source: AMPS User Guide, Event Topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.message_types.base import Value
from server.message_types.paths import Path
from server.topics.subscriptions.delivery.envelope import Envelope
from server.util.counters import TrafficCounter

if TYPE_CHECKING:
    from server.message_types.base import MessageType
    from server.topics.topic_table import AnyTopic, TopicTable


class EventField(NamedTuple):
    """A field of an event.

    Attributes:
        name: its name in JSON and similar types.
        xml_name: its name in XML.
        tag: its tag in FIX.
        unified_tag: its tag in FIX if the configuration selects the tags that all event topics
            share (AMPSVersionCompliance 5); `tag` if empty.
    """

    name: str
    xml_name: str
    tag: str
    unified_tag: str = ""


class TypedEventTopic(NamedTuple):
    """An event topic of one message type.

    Attributes:
        topic: the topic that events are published to.
        module: the type's module, which decides on field names.
        has_unified_tags: whether FIX tags are those that all event topics share.
    """

    topic: AnyTopic
    module: str
    has_unified_tags: bool


class EventTopic:
    """Publishes the events of one name.

    Args:
        topics: finds subscribers.
        types: the message types to build events in.
        name: the topic's name.
        root_element: the name of the element that holds the fields, in types that have one.
    """

    def __init__(
        self, topics: TopicTable, types: EventMessageTypes, name: str, root_element: str
    ) -> None:
        self._topics = topics
        self._types = types
        self._name = name
        self._root_element = root_element
        self._found_topics: list[
            AnyTopic
        ] = []  # by message type, as long as topics are not forgotten
        self._generation = -1

    @property
    def has_recipients(self) -> bool:
        """True if a client of any message type has subscribed, or events are stored."""
        topics = self._topics
        if self._generation != topics.generation:
            self._generation = topics.generation
            self._found_topics = [
                topics.find(message_type.name, self._name)
                for message_type in self._types.message_types
            ]
        for topic in self._found_topics:  # noqa: SIM110 - tested at each subscribe, with one topic or two
            if topic.has_subscriptions or topic.is_persistent:
                return True
        return False

    def listeners(self) -> list[TypedEventTopic]:
        """Return the message types that have a subscriber, or store events."""
        typed_topics = []
        for message_type in self._types.message_types:
            topic = self._topics.find(message_type.name, self._name)
            if topic.has_subscriptions or topic.is_persistent:
                has_unified_tags = message_type.name in self._types.unified_tag_types
                typed_topics.append(
                    TypedEventTopic(topic, self._types.modules[message_type.name], has_unified_tags)
                )
        return typed_topics

    def publish(
        self,
        listener: TypedEventTopic,
        fields: Iterable[EventField],
        values: Mapping[str, Value],
        event_s: float,
    ) -> None:
        """Publish an event in one message type.

        Args:
            listener: the event topic of that type.
            fields: the event's fields, in order.
            values: their values, by their names in JSON; NULL where there is none.
            event_s: the time of the event, in seconds since 1970.
        """
        topic, named_values = listener.topic, list(self._named_values(listener, fields, values))
        try:
            body = topic.message_type.build(named_values)
            self._types.published_counter.add(1, len(body))
            topic.publish([body], Envelope(None, event_s))
        except Exception as error:  # of any kind: the client concerned must not be affected
            topic.end_subscriptions(error)

    def _named_values(
        self, listener: TypedEventTopic, fields: Iterable[EventField], values: Mapping[str, Value]
    ) -> Iterable[tuple[Path, Value]]:
        for field in fields:
            value = values.get(field.name)
            if listener.module == "xml":
                yield (self._root_element, field.xml_name), value
            elif listener.module in ("fix", "nvfix"):
                tag = field.unified_tag if listener.has_unified_tags else ""
                if value is not None:
                    yield (tag or field.tag if listener.module == "fix" else field.name,), value
            else:
                yield (self._root_element, field.name), value


class EventMessageTypes:
    """The message types to build events in.

    Args:
        message_types: the message types that clients speak, by name.
        modules: the module of each of these types, by the type's name.
        unified_tag_types: the names of the types that use the same FIX tags in all event topics.

    Attributes:
        message_types: those of them that can hold events.
        published_counter: counts events.
    """

    def __init__(
        self,
        message_types: Mapping[str, MessageType],
        modules: Mapping[str, str],
        unified_tag_types: frozenset[str],
    ) -> None:
        self.message_types: Sequence[MessageType] = [
            message_type
            for message_type in message_types.values()
            if message_type.capabilities.build and message_type.capabilities.events
        ]
        self.modules = modules
        self.unified_tag_types = unified_tag_types
        self.published_counter: Final = TrafficCounter()
