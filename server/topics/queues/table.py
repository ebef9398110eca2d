"""The queues of an instance, and which topics feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from server.expressions.topic_names import select_topics
from server.topics.queues.redriving import Strangers, redriver
from server.topics.queues.topic import QueueTopic

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.topics.queues.surroundings import Surroundings


class Queues:
    """All queues.

    Args:
        specs: their descriptions.
        message_types: how bodies are read, by name.
        functions: what expressions may call.
        instance: the name of this instance.
        surroundings: what queues need of the server.
    """

    def __init__(
        self,
        specs: Iterable[QueueSpec],
        message_types: Mapping[str, MessageType],
        functions: Functions,
        instance: str,
        surroundings: Surroundings,
    ) -> None:
        specs = list(specs)
        redrivers = {spec.ref: redriver(spec.message_type, spec.name) for spec in specs}
        self._topics = {
            (spec.message_type, spec.name): QueueTopic(
                spec,
                message_types[spec.message_type],
                functions,
                instance,
                select_topics(spec.underlying_topic, literal=not spec.underlying_is_regex),
                Strangers((redrivers[one.ref] for one in specs if one is not spec), instance),
                surroundings,
            )
            for spec in specs
        }

    def __iter__(self) -> Iterator[QueueTopic]:
        return iter(self._topics.values())

    def find(self, message_type: str, name: str) -> QueueTopic | None:
        """The queue with a name, if there is one."""
        return self._topics.get((message_type, name))

    def when_recorded(self, then: Callable[[], None]) -> None:
        """Call back when the log has been given all that has happened so far; at once if it has."""
        behind = next((queue for queue in self if not queue.recording.is_up_to_date), None)
        if behind is None:
            then()
        else:
            behind.recording.when_stored(lambda: self.when_recorded(then))

    def fed_by(self, message_type: str, name: str) -> list[QueueTopic]:
        """The queues that take the messages of a topic."""
        return [
            queue
            for queue in self._topics.values()
            if queue.message_type.name == message_type and queue.source.matches(name)
        ]
