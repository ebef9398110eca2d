"""Consecutive publishes of one client to several topics.

Publishers that send to many topics seldom send two messages to the same one in a row. So the log
takes the messages of all topics in one step, each topic with records takes all its messages at
once, and each connection gets its messages of all topics in one write, in their order.
`server/topics/replicated/multi_topic.py` does the same for messages of other instances.

The topic of a message is given by its key, an index in a list of topics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from amperage.wire.frame_slices import HeaderParts, framed_by_key
from server.replication.core.columns import by_value
from server.storage.journal.write.blocks import of_one, part_of
from server.storage.sow.record_batch import SowRecordBatch, expiry_times
from server.storage.sow.records import NANOSECONDS, NANOSECONDS_IN_MICROSECOND
from server.storage.sow.store import RecordStoreError, cleaning_paused
from server.topics.journaled_topic import refusal_of
from server.topics.log_feed import RecordedBatch
from server.topics.subscriptions.delivery.delivery import pays_by_connection
from server.topics.topic_journal import append_publishes, encode_messages, uniform_ranges
from server.topics.transaction_log import SettledTopics

if TYPE_CHECKING:
    from server.storage.journal import AppendResult
    from server.topics.journaled_topic import JournaledSowTopic, JournaledTopic
    from server.topics.sow_topic import SowTopic
    from server.topics.subscriptions.delivery.delivery import DirectDelivery, FrameWriter
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.message_refusal import MessageRefusal
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.topic import Topic

_POSITION: Final = itemgetter(0)


class InterleavedDelivery:
    """Delivers messages of several topics to their subscribers.

    Connections that get every message of a topic get those of all topics in one write. The parts of
    headers are prepared for each connection and topic. They are valid as long as a topic has the
    same deliveries, of which it makes a new list when subscriptions change.

    Subscriptions by regular expressions give many topics the same subscriptions with filters. These
    are decided once for the messages of all of them.
    """

    __slots__ = ("_deliveries", "_filtered", "_header_keys", "_parts", "_topics")

    def __init__(self) -> None:
        self._topics: Sequence[Topic] = ()  # those that the keys are of
        self._deliveries: dict[int, Sequence[DirectDelivery]] = {}  # by key
        self._filtered: dict[int, Sequence[Subscription] | None] = {}  # likewise, with filters
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
            topics: the topics, by key; a list that is another one after any change.
            distinct_keys: the keys of the messages to deliver, each once.
            keys: the key of each message; those with another key are left out.
            bodies: the messages.
            envelope: the publisher's metadata of the messages.
        """
        if topics is not self._topics or envelope.header_keys != self._header_keys:
            self._deliveries.clear()
            self._filtered.clear()
            self._parts.clear()
            self._topics, self._header_keys = topics, envelope.header_keys
        if self._prepare(topics, distinct_keys):
            for outbox, parts in self._parts.items():
                frames, count = framed_by_key(bodies, keys, parts)
                if count:
                    outbox.write_run(frames, count)
            filtered_keys = [key for key in distinct_keys if self._filtered[key]]
            if filtered_keys:
                self._deliver_filtered(topics, frozenset(filtered_keys), keys, bodies, envelope)
        else:
            wanted = frozenset(distinct_keys)
            for key, body in zip(keys, bodies, strict=True):
                if key in wanted:
                    topics[key].deliver((body,), envelope)

    def _deliver_filtered(
        self,
        topics: Sequence[Topic],
        filtered_keys: frozenset[int],
        keys: Sequence[int],
        bodies: Sequence[bytes],
        envelope: Envelope,
    ) -> None:
        """Deliver messages to subscriptions with filters, which all their topics share."""
        rows = [row for row, key in enumerate(keys) if key in filtered_keys]
        if len(rows) < len(keys):
            keys, bodies = [keys[row] for row in rows], [bodies[row] for row in rows]
        own_topics = [topics[key] for key in keys]
        own_topics[0].deliver_filtered(bodies, envelope, own_topics)

    def _prepare(self, topics: Sequence[Topic], distinct_keys: Sequence[int]) -> bool:
        """Prepare for messages of some topics; return whether they can be delivered together."""
        shared: Sequence[Subscription] = ()  # those with filters, of all topics that have any
        covered = heard = 0
        for key in distinct_keys:
            deliveries = topics[key].plain_deliveries()
            if deliveries is None:
                return False
            if deliveries is not self._deliveries.get(key):
                self._replace(key, deliveries)
                self._filtered[key] = topics[key].filtered_subscriptions()
            covered += len(deliveries)
            heard += bool(deliveries)
            filtered = self._filtered[key]
            if filtered is None:
                return False
            if filtered and filtered is not shared:
                if shared and filtered != shared:
                    return False
                shared = self._filtered[key] = shared or filtered
        # Connections get their messages without filters first:
        if any(one.outbox in self._parts for one in shared):
            return False
        return pays_by_connection(covered, len(self._parts), heard)

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


LoggedTopic: TypeAlias = "JournaledTopic | JournaledSowTopic"


def publish_records(
    topics: Sequence[SowTopic],
    distinct_keys: Sequence[int],
    keys: Sequence[int],
    bodies: Sequence[bytes],
    envelope: Envelope,
) -> Sequence[MessageRefusal] | None:
    """Publish messages to topics with records that are not in the log. See `Topic.publish`.

    Each topic gets all its messages at once, which nothing shows: only recipients of several topics
    see in which order their messages came.

    Args:
        topics: the topics, by key.
        distinct_keys: the keys of the messages, each once.
        keys: the key of each message.
        bodies: the messages.
        envelope: the publisher's metadata of the messages.

    Returns:
        The messages that are refused; None if several topics have recipients, and nothing has been
        published.
    """
    if sum(topic.has_recipients for topic in {topics[key] for key in distinct_keys}) > 1:
        return None
    rows_by_topic: dict[SowTopic, list[int]] = {}  # several keys may be of one topic
    for row, key in enumerate(keys):
        rows_by_topic.setdefault(topics[key], []).append(row)
    refusals: list[MessageRefusal] = []
    for topic, rows in rows_by_topic.items():
        own = topic.publish([bodies[row] for row in rows], envelope)
        refusals += [refusal._replace(position=rows[refusal.position]) for refusal in own]
    return sorted(refusals, key=_POSITION)


class _Recorded(NamedTuple):
    """Messages that have been recorded in one step.

    Attributes:
        start: the position of the first one in the batch.
        txids: their txids.
        timestamp_us: the time of recording, in microseconds since 1970.
        publisher: the publisher's identity in their bookmarks.
        numbers: their numbers in bookmarks.
    """

    start: int
    txids: Sequence[int]
    timestamp_us: int
    publisher: int
    numbers: Sequence[int]


class _RecordShare:
    """The messages to one topic with records.

    Args:
        topic: the topic.
        rows: the positions of the messages in the batch, ascending.
        drafts: their records, see `JournaledSowTopic.draft_publishes`.

    Attributes:
        topic: see above.
    """

    __slots__ = ("_drafts", "_rows", "topic")

    def __init__(
        self, topic: JournaledSowTopic, rows: Sequence[int], drafts: SowRecordBatch
    ) -> None:
        self.topic = topic
        self._rows = rows
        self._drafts = drafts

    def apply(
        self, start: int, end: int, recorded: _Recorded, envelope: Envelope
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Put and announce the records of recorded messages.

        Args:
            start: the position of the first message of the batch to apply.
            end: the position behind the last one.
            recorded: the messages that have been recorded in the same step.
            envelope: the publisher's metadata of the batch.

        Returns:
            The positions of records that cannot be stored, each with the reason.
        """
        rows, drafts, first = self._rows, self._drafts, recorded.start
        begin, stop = bisect_left(rows, start), bisect_left(rows, end)
        if begin == stop:
            return ()
        moment = recorded.timestamp_us * NANOSECONDS_IN_MICROSECOND
        places = [row - first for row in rows[begin:stop]]
        records = SowRecordBatch(
            drafts.topic,
            drafts.keys[begin:stop],
            drafts.bodies[begin:stop],
            [recorded.txids[place] for place in places],
            moment,
            expiry_times(part_of(drafts.expires, begin, stop), moment),
            recorded.publisher,
            [recorded.numbers[place] for place in places],
        )
        problems = self.topic.apply_run(records, envelope)
        return [(rows[begin + place], problem) for place, problem in problems]


class InterleavedPublishes:
    """Messages to several topics in the transaction log, with records or without.

    Subscribers see the order of the log across topics. So if a topic with records has recipients,
    and another one has, too, their messages are applied and delivered in that order. Otherwise each
    topic with records applies all its messages at once.

    Args:
        topics: the topics, by key.
        distinct_keys: the keys of the messages, each once.
        keys: the key of each message.
        bodies: the messages.
        envelope: the publisher's metadata of the messages.
    """

    __slots__ = (
        "_are_in_order",
        "_bodies",
        "_distinct_keys",
        "_envelope",
        "_expirations",
        "_has_feeds",
        "_has_shared_feeds",
        "_heard_keys",
        "_keys",
        "_shares",
        "_sow_keys",
        "_topics",
    )

    def __init__(
        self,
        topics: Sequence[LoggedTopic],
        distinct_keys: Sequence[int],
        keys: Sequence[int],
        bodies: Sequence[bytes],
        envelope: Envelope,
    ) -> None:
        self._topics = topics
        self._distinct_keys = distinct_keys
        self._keys = keys
        self._bodies = bodies
        self._envelope = envelope
        self._shares: dict[int, _RecordShare] = {}  # by the key of a topic with records
        self._sow_keys: list[int] = []  # of all messages, if any has a record
        self._expirations: list[int] = []  # likewise, their lifetimes in seconds
        self._heard_keys: set[int] = set()  # of the topics with recipients
        feeds = [feed for key in distinct_keys for feed in topics[key].journal.feeds]
        self._has_feeds = bool(feeds)
        self._has_shared_feeds = len({*map(id, feeds)}) < len(feeds)
        self._are_in_order = False  # whether messages are applied in the order of the log

    def prepare(self) -> bool:
        """Prepare to record the messages in one step; return whether that is possible."""
        topics = [self._topics[key] for key in self._distinct_keys]
        self._heard_keys = {
            key
            for key, topic in zip(self._distinct_keys, topics, strict=True)
            if topic.has_subscriptions or (topic.table is not None and topic.has_followers)
        }
        if not (
            all(topic.accepts_interleaved for topic in topics)
            and topics[0].journal.is_batchable(self._envelope)
        ):
            return False
        tables = [topic.table for topic in topics if topic.table is not None]
        if not tables:
            return True
        # Room is made for each key by itself, which may be another one of the same topic:
        if len({*tables}) < len(tables):
            return False
        try:
            self._draft_records()
        except RecordStoreError:
            return False
        self._are_in_order = len(self._heard_keys) > 1 and any(
            key in self._shares for key in self._heard_keys
        )
        return True

    def _draft_records(self) -> None:
        """Draft the records of the messages.

        Raises:
            RecordStoreError: there is no room for all of them.
        """
        bodies, count = self._bodies, len(self._bodies)
        self._sow_keys, self._expirations = [0] * count, [0] * count
        for key, rows in by_value(self._keys):
            topic = self._topics[key]
            if topic.table is None:
                continue
            records = topic.draft_publishes([bodies[row] for row in rows], self._envelope)
            self._shares[key] = _RecordShare(topic, rows, records)
            for place, row in enumerate(rows):
                self._sow_keys[row] = records.keys[place]
                self._expirations[row] = -(-of_one(records.expires, place) // NANOSECONDS)

    def publish(self, delivery: InterleavedDelivery) -> Sequence[MessageRefusal]:
        """Record messages, apply and deliver them, after `prepare`. See `Topic.publish`."""
        topics, bodies, envelope = self._topics, self._bodies, self._envelope
        handles = {
            key: topics[key].journal.publish_handles(envelope) for key in self._distinct_keys
        }
        expirations = self._expirations if any(self._expirations) else 0
        entries = encode_messages(bodies, envelope, expirations)
        log = topics[self._keys[0]].journal.log
        refusals: list[MessageRefusal] = []
        start = 0
        with cleaning_paused([share.topic.table.store for share in self._shares.values()]):
            while start < len(bodies):
                done = append_publishes(
                    log, handles, self._keys, envelope, entries, start, self._sow_keys
                )
                end = done.end
                if done.txids:
                    self._apply(start, done, delivery, refusals)
                if done.problem is not None:
                    refusals.append(
                        topics[self._keys[end]].refuse_message(end, done.problem, envelope)
                    )
                    end += 1
                start = end
        for share in self._shares.values():
            share.topic.finish_batch()
        return refusals

    def _apply(
        self,
        start: int,
        done: AppendResult,
        delivery: InterleavedDelivery,
        refusals: list[MessageRefusal],
    ) -> None:
        """Apply and deliver messages that have been recorded in one step."""
        topics, envelope = self._topics, self._envelope
        bodies, keys = self._bodies[start : done.end], self._keys[start : done.end]
        recorded = _Recorded(
            start,
            done.txids,
            done.timestamp,
            *topics[keys[0]].journal.bookmark_parts(envelope, start, done.txids),
        )
        if self._has_feeds:
            self._notify_feeds(recorded, done.end)
        failures: list[tuple[int, RecordStoreError]] = []
        heard = self._heard_keys
        for key, share in self._shares.items():
            if not (self._are_in_order and key in heard):
                failures += share.apply(start, done.end, recorded, envelope)
        if not self._are_in_order:
            if any(key not in self._shares for key in heard):
                plain = [key for key in self._distinct_keys if key not in self._shares]
                delivery.deliver(cast("Sequence[Topic]", topics), plain, keys, bodies, envelope)
        else:
            for at, end, key in uniform_ranges(self._keys, start, done.end):
                if key in self._shares:
                    if key in heard:
                        failures += self._shares[key].apply(at, end, recorded, envelope)
                elif key in heard:
                    cast("Topic", topics[key]).deliver(self._bodies[at:end], envelope)
        refusals += [refusal_of(row, problem) for row, problem in sorted(failures, key=_POSITION)]

    def _notify_feeds(self, recorded: _Recorded, end: int) -> None:
        """Notify the feeds of messages recorded in one step, each of all its topic's at once.

        A feed of several topics is notified in the order of the log.
        """
        first, keys = recorded.start, self._keys[recorded.start : end]
        shares: Iterable[tuple[int, Sequence[int]]]
        if self._has_shared_feeds:
            shares = [(key, range(at, to)) for at, to, key in uniform_ranges(keys, 0, len(keys))]
        else:
            shares = by_value(keys)
        for key, places in shares:
            journal = self._topics[key].journal
            if journal.feeds:
                has_records = key in self._shares
                journal.notify_feeds(
                    RecordedBatch(
                        journal.topic.name,
                        [self._bodies[first + place] for place in places],
                        self._envelope,
                        [recorded.txids[place] for place in places],
                        recorded.timestamp_us,
                        recorded.publisher,
                        [recorded.numbers[place] for place in places],
                        [self._sow_keys[first + place] for place in places] if has_records else (),
                        self._expirations[first + places[0]] if has_records else 0,
                    )
                )

    def settled_topics(self) -> SettledTopics:
        """Return what calls back when the messages are settled."""
        journals = [self._topics[key].journal for key in self._distinct_keys]
        return SettledTopics(journals[0].log, frozenset(one.topic for one in journals))
