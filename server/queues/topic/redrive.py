"""Redrives dead letters: returns their messages to the queues that they have left.

Any client that may publish to the topic of dead letters can forge a letter. So a letter is trusted
only if the configuration confirms it: the queue that it names publishes its letters to this topic,
and is fed by the topic that it names. Other messages are not treated as letters.

A queue over the topic of dead letters holds them. Redriving a letter publishes its message again to
the original topic, and then acknowledges the letter. Both are in the log, in this order, so that
the message cannot be lost in between. Other queues that the same topic feeds have had the message
already. They recognize it by its author, which is different for each queue, and do not take it
(`Enqueuer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from server.queues.topic.dead_letters import DeadLetter, ServerPublisher
from server.replication.core import hops
from server.topics.subscriptions.delivery.envelope import Envelope

if TYPE_CHECKING:
    from server.expressions.message_context import MessageContext
    from server.queues.core import Queue
    from server.queues.topic.acknowledgement import AckTerms, QueueAckHandler
    from server.queues.topic.context import QueueServices
    from server.queues.topic.message_cache import CachedMessage
    from server.queues.topic.queue_topic import QueueTopic


MayPublish: TypeAlias = "Callable[[str, bytes, MessageContext], bool]"
"""Returns True if a client may publish a message to a topic."""

_MAX_PATHS: Final = 4096


def redrive_publisher(message_type: str, queue: str) -> ServerPublisher:
    """Return the author of messages that are redriven into a queue."""
    return ServerPublisher(f"redriven to {message_type} queue {queue}", message_type)


class RedrivePublishers:
    """Knows the publishers of messages that are only for other queues of the same topics.

    Args:
        authors: the authors of messages that are redriven into these queues.
        instance: the name of this instance.
    """

    def __init__(self, authors: Iterable[ServerPublisher], instance: str) -> None:
        self._authors: Final = list(authors)
        self._instance: Final = instance
        self._parts_by_path: Final[dict[str, frozenset[int]]] = {}

    def add(self, author: ServerPublisher) -> None:
        """Add the author of messages that are redriven into another queue."""
        self._authors.append(author)
        self._parts_by_path.clear()

    def remove(self, author: ServerPublisher) -> None:
        """Remove the author of messages that were redriven into a queue that is removed."""
        self._authors.remove(author)
        self._parts_by_path.clear()

    def publisher_parts(self, path: str) -> frozenset[int]:
        """Return the publisher parts of their bookmarks, for messages published at one instance.

        See `publisher_part`.

        Args:
            path: the instances that the messages have passed through, as in the log.
        """
        parts = self._parts_by_path.get(path)
        if parts is None:
            if len(self._parts_by_path) >= _MAX_PATHS:
                self._parts_by_path.clear()
            publisher = hops(path)[0].name if path else self._instance
            parts = frozenset(author.publisher_part(publisher) for author in self._authors)
            self._parts_by_path[path] = parts
        return parts


class DeadLetterRedrive:
    """Redrives the dead letters in one queue, and moves messages to other queues.

    Args:
        core: the queue, which holds the letters.
        message_type: the name of its message type.
        read: reads messages by their txids; None for a message that is damaged in the log.
        ack_handler: executes acknowledgements for the queue.
        services: the server's services for the queue.
    """

    def __init__(
        self,
        core: Queue,
        message_type: str,
        read: Callable[[Sequence[int]], list[CachedMessage | None]],
        ack_handler: QueueAckHandler,
        services: QueueServices,
    ) -> None:
        self._core: Final = core
        self._message_type: Final = message_type
        self._read: Final = read
        self._ack_handler: Final = ack_handler
        self._services: Final = services

    def redrive(self, offsets: Sequence[int], terms: AckTerms, may_publish: MayPublish) -> int:
        """Redrive letters.

        Messages that are not letters, or cannot be published to the original topic, stay.

        Args:
            offsets: the offsets of the letters in the queue.
            terms: the acknowledgement, with the requesting client.
            may_publish: returns True if the client may publish a message to a topic.

        Returns:
            The number of redriven letters.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
            JournalUnavailableError: as for `QueueAckHandler.acknowledge`.
        """
        return self._publish_again(
            offsets, terms, lambda message: self._republish(message, may_publish)
        )

    def move(self, offsets: Sequence[int], target: QueueTopic, terms: AckTerms) -> int:
        """Move messages to another queue; other queues over its topics do not take them.

        Args:
            offsets: the offsets of the messages in the queue.
            target: the other queue, of the same message type.
            terms: the acknowledgement.

        Returns:
            The number of moved messages.

        Raises:
            JournalUnreadableError: the log cannot be read at the moment.
            JournalUnavailableError: as for `QueueAckHandler.acknowledge`.
        """
        topic = target.publish_target

        def publish(message: CachedMessage) -> bool:
            correlation_id = message.context.correlation_id or None
            return not topic.publish(
                (message.body,), self._envelope(target.name, message, correlation_id)
            )

        return self._publish_again(offsets, terms, publish)

    def _publish_again(
        self, offsets: Sequence[int], terms: AckTerms, publish: Callable[[CachedMessage], bool]
    ) -> int:
        """Publish messages again, and acknowledge those for which `publish` returns True."""
        acknowledgeable = [
            offset for offset in offsets if self._core.refusal_reason(offset, terms.client) is None
        ]
        txids = self._core.lifecycle.entries.txids(acknowledgeable)
        published: list[int] = []
        try:
            for offset, message in zip(acknowledgeable, self._read(txids), strict=True):
                if message is not None and publish(message):
                    published.append(offset)
        finally:  # published messages must not stay, too
            count = self._ack_handler.acknowledge_offsets(published, terms)
        return count

    def _envelope(self, queue: str, message: CachedMessage, correlation_id: str | None) -> Envelope:
        """Return the envelope of a message that only one queue takes."""
        author = redrive_publisher(self._message_type, queue)
        user = message.context.user or ""
        return Envelope(replace(author, user=user), self._services.clock.now(), correlation_id)

    def _republish(self, message: CachedMessage, may_publish: MayPublish) -> bool:
        """Publish a letter's message again; return True on success."""
        context = message.context
        letter = DeadLetter.from_text(context.correlation_id or "")
        if letter is None:
            return False
        topics, message_type = self._services.topics, self._message_type
        original_topic, letter_topic = letter.topic, context.topic_name
        if letter_topic is None or not topics.may_be_dead_letter(
            message_type, letter.queue, original_topic, letter_topic
        ):
            return False
        if not may_publish(original_topic, message.body, context):
            return False
        envelope = self._envelope(letter.queue, message, letter.correlation_id or None)
        return not topics.find(message_type, original_topic).publish((message.body,), envelope)
