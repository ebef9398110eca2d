"""The queues of an instance, and the topics that feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from server.expressions.topic_names import select_topics
from server.queues.topic.queue_topic import QueueTopic
from server.queues.topic.redrive import RedrivePublishers, redrive_publisher

if TYPE_CHECKING:
    from config_schema.spec import QueueSpec
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.queues.topic.context import QueueServices


class QueueTable:
    """All queues.

    Args:
        specs: their configurations.
        message_types: the message types that parse bodies, by name.
        functions: the functions that expressions may call.
        instance: the name of this instance.
        services: the server's services for queues.

    Attributes:
        is_delivery_paused: whether consumers get no messages, because the instance is being
            drained.
    """

    def __init__(
        self,
        specs: Iterable[QueueSpec],
        message_types: Mapping[str, MessageType],
        functions: Functions,
        instance: str,
        services: QueueServices,
    ) -> None:
        self.is_delivery_paused = False
        self._message_types = message_types
        self._functions = functions
        self._instance = instance
        self._services = services
        self._topics: dict[tuple[str, str], QueueTopic] = {}
        self._redrive_publishers: dict[QueueTopic, RedrivePublishers] = {}
        for spec in specs:
            self.add(self.make(spec))

    def make(self, spec: QueueSpec) -> QueueTopic:
        """Return a new queue, which is to be recovered and added."""
        author = redrive_publisher(spec.message_type, spec.name)
        publishers = RedrivePublishers(
            (
                redrive_publisher(other.message_type.name, other.name)
                for other in self._redrive_publishers
            ),
            self._instance,
        )
        for others in self._redrive_publishers.values():
            others.add(author)
        queue = QueueTopic(
            spec,
            self._message_types[spec.message_type],
            self._functions,
            self._instance,
            select_topics(spec.underlying_topic, literal=not spec.underlying_is_regex),
            publishers,
            self._services,
        )
        self._redrive_publishers[queue] = publishers
        return queue

    def add(self, queue: QueueTopic) -> None:
        """Add a queue."""
        self._topics[queue.message_type.name, queue.name] = queue

    def remove(self, queue: QueueTopic) -> None:
        """Remove a queue that has been made, and perhaps added, and close it."""
        self._topics.pop((queue.message_type.name, queue.name), None)
        del self._redrive_publishers[queue]
        author = redrive_publisher(queue.message_type.name, queue.name)
        for others in self._redrive_publishers.values():
            others.remove(author)
        queue.close()

    def __iter__(self) -> Iterator[QueueTopic]:
        return iter(self._topics.values())

    def find(self, message_type: str, name: str) -> QueueTopic | None:
        """Return the queue with a name, None if there is none."""
        return self._topics.get((message_type, name))

    def set_delivery_paused(self, is_paused: bool) -> None:
        """Pause or resume deliveries of all queues; messages that consumers hold stay leased."""
        self.is_delivery_paused = is_paused
        for queue in self:
            for consumer in tuple(queue.core.dispatch.slots):
                consumer.set_paused(is_paused)

    def when_recorded(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the log has accepted all events so far, or at once if it has."""
        pending_queue = next(
            (queue for queue in self if not queue.queue_journal.is_up_to_date), None
        )
        if pending_queue is None:
            callback()
        else:
            pending_queue.queue_journal.when_durable(lambda: self.when_recorded(callback))

    def fed_by(self, message_type: str, name: str) -> list[QueueTopic]:
        """Return the queues that take the messages of a topic."""
        return [
            queue
            for queue in self._topics.values()
            if queue.message_type.name == message_type and queue.source.matches(name)
        ]
