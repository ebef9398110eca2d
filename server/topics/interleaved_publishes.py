"""Consecutive publishes of one client to several topics, recorded in one step.

Publishers that send to many topics seldom send two messages to the same one in a row. The log takes
the messages of all topics at once; then each message goes to the subscribers of its topic, in the
order of the log. `server/topics/replicated/multi_topic.py` does the same for messages of other
instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from server.topics.topic_journal import append_publishes, encode_messages

if TYPE_CHECKING:
    from server.storage.sow.store import StoreCallback
    from server.topics.journaled_topic import JournaledTopic
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.rejection import Rejection


@dataclass(frozen=True, slots=True)
class SettledTopics:
    """Calls back when everything published to some topics so far is settled.

    Attributes:
        topics: the topics.
    """

    topics: frozenset[JournaledTopic]

    def __call__(self, then: StoreCallback, /) -> None:
        """Call back when everything is settled."""
        log = next(iter(self.topics)).journal.log
        log.when_settled(partial(then, None), *(one.journal.topic for one in self.topics))


def can_interleave(topics: Sequence[JournaledTopic], envelope: Envelope) -> bool:
    """Return whether messages can be recorded in one step.

    Args:
        topics: their topics.
        envelope: the publisher's metadata of the messages.
    """
    is_accepted = all(topic.accepts_interleaved for topic in topics)
    return is_accepted and topics[0].journal.is_batchable(envelope)


def publish_interleaved(
    distinct_topics: Sequence[JournaledTopic],
    topics: Sequence[JournaledTopic],
    bodies: Sequence[bytes],
    envelope: Envelope,
) -> Sequence[Rejection]:
    """Record messages and deliver them, if `can_interleave`. See `Topic.publish`.

    Args:
        distinct_topics: the topics.
        topics: the topic of each message.
        bodies: the messages.
        envelope: the publisher's metadata of the messages.
    """
    keys = {topic: key for key, topic in enumerate(distinct_topics)}
    handles = {key: topic.journal.publish_handles(envelope) for topic, key in keys.items()}
    handle_keys = [keys[topic] for topic in topics]
    has_recipients = any(topic.has_recipients for topic in keys)
    entries = encode_messages(bodies, envelope, 0)
    log = topics[0].journal.log
    rejections: list[Rejection] = []
    start = 0
    while start < len(bodies):
        done = append_publishes(log, handles, handle_keys, envelope, entries, start)
        end = done.end
        if has_recipients:
            for position in range(start, end):
                topics[position].deliver(bodies[position : position + 1], envelope)
        if done.problem is not None:
            rejections.append(topics[end].reject(end, done.problem, envelope))
            end += 1
        start = end
    return rejections
