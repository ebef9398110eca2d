"""Consecutive publishes of one client to several topics.

Publishers that send to many topics seldom send two messages to the same one in a row. So the log
takes the messages of all topics in one step, and each connection gets its messages of all topics in
one write, in their order. `server/topics/replicated/multi_topic.py` does the same for messages of
other instances.

The topic of a message is given by its key, an index in a list of topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from amperage.wire.frame_slices import HeaderParts, framed_by_key
from server.topics.topic_journal import append_publishes, encode_messages

if TYPE_CHECKING:
    from server.storage.sow.store import StoreCallback
    from server.topics.journaled_topic import JournaledTopic
    from server.topics.subscriptions.delivery.delivery import DirectDelivery, FrameWriter
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.rejection import Rejection
    from server.topics.topic import Topic

_MIN_COVERAGE: Final = 0.25
"""The share of the messages that connections must get on average, so that going through all of them
for each connection pays."""


class InterleavedDelivery:
    """Delivers messages of several topics to the connections that get every message of a topic.

    The parts of their headers are prepared for each connection and topic. They are valid as long as
    a topic has the same deliveries, of which it makes a new list when subscriptions change.
    """

    __slots__ = ("_deliveries", "_header_keys", "_parts")

    def __init__(self) -> None:
        self._deliveries: dict[int, Sequence[DirectDelivery]] = {}  # by key
        self._parts: dict[FrameWriter, HeaderParts] = {}  # by connection
        self._header_keys = b""  # the keys that envelopes add to headers

    def deliver(
        self,
        topics: Sequence[Topic],
        distinct_keys: Sequence[int],
        keys: Sequence[int],
        bodies: Sequence[bytes],
        envelope: Envelope,
    ) -> None:
        """Deliver messages to every subscription that they match.

        Args:
            topics: the topics, by key.
            distinct_keys: the keys of the messages, each once.
            keys: the key of each message.
            bodies: the messages.
            envelope: the publisher's metadata of the messages.
        """
        if self._prepare(topics, distinct_keys, envelope.header_keys):
            for outbox, parts in self._parts.items():
                frames, count = framed_by_key(bodies, keys, parts)
                if count:
                    outbox.write_run(frames, count)
        else:
            for key, body in zip(keys, bodies, strict=True):
                topics[key].deliver((body,), envelope)

    def _prepare(
        self, topics: Sequence[Topic], distinct_keys: Sequence[int], header_keys: bytes
    ) -> bool:
        """Prepare for messages of some topics; return whether they can be framed together."""
        if header_keys != self._header_keys:
            self._deliveries.clear()
            self._parts.clear()
            self._header_keys = header_keys
        covered = 0
        for key in distinct_keys:
            deliveries = topics[key].plain_deliveries()
            if deliveries is None:
                return False
            if deliveries is not self._deliveries.get(key):
                self._replace(key, deliveries)
            covered += len(deliveries)
        return covered >= _MIN_COVERAGE * len(self._parts) * len(distinct_keys)

    def _replace(self, key: int, deliveries: Sequence[DirectDelivery]) -> None:
        """Replace the deliveries of messages with a key."""
        for delivery in self._deliveries.get(key, ()):
            parts = self._parts[delivery.outbox]
            parts.discard(key)
            if not len(parts):
                del self._parts[delivery.outbox]
        for delivery in deliveries:
            parts = self._parts.setdefault(delivery.outbox, HeaderParts())
            parts.set(key, delivery.header_start, self._header_keys + delivery.header_end)
        self._deliveries[key] = deliveries


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


class InterleavedPublishes:
    """Messages to several topics in the transaction log.

    Args:
        topics: the topics, by key.
        distinct_keys: the keys of the messages, each once.
        keys: the key of each message.
    """

    __slots__ = ("_distinct_keys", "_keys", "_topics")

    def __init__(
        self, topics: Sequence[JournaledTopic], distinct_keys: Sequence[int], keys: Sequence[int]
    ) -> None:
        self._topics = topics
        self._distinct_keys = distinct_keys
        self._keys = keys

    def can_record(self, envelope: Envelope) -> bool:
        """Return whether the messages can be recorded in one step.

        Args:
            envelope: the publisher's metadata of the messages.
        """
        topics = self._topics
        is_accepted = all(topics[key].accepts_interleaved for key in self._distinct_keys)
        return is_accepted and topics[self._keys[0]].journal.is_batchable(envelope)

    def publish(
        self, bodies: Sequence[bytes], envelope: Envelope, delivery: InterleavedDelivery
    ) -> Sequence[Rejection]:
        """Record messages and deliver them, if `can_record`. See `Topic.publish`."""
        topics, keys = self._topics, self._keys
        distinct = self._distinct_keys
        handles = {key: topics[key].journal.publish_handles(envelope) for key in distinct}
        has_recipients = any(topics[key].has_recipients for key in distinct)
        entries = encode_messages(bodies, envelope, 0)
        log = topics[keys[0]].journal.log
        rejections: list[Rejection] = []
        start = 0
        while start < len(bodies):
            done = append_publishes(log, handles, keys, envelope, entries, start)
            end = done.end
            if has_recipients and end > start:
                here = slice(start, end)
                delivery.deliver(topics, distinct, keys[here], bodies[here], envelope)
            if done.problem is not None:
                rejections.append(topics[keys[end]].reject(end, done.problem, envelope))
                end += 1
            start = end
        return rejections

    def settled_topics(self) -> SettledTopics:
        """Return what calls back when the messages are settled."""
        return SettledTopics(frozenset(self._topics[key] for key in self._distinct_keys))
