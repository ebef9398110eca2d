"""Consecutive publishes of one client to several topics.

Publishers that send to many topics seldom send two messages to the same one in a row. So the log
takes the messages of all topics that are in it in one step, each topic with records takes all its
messages at once, and each connection gets its messages of all topics in one write, in their order.
`server/topics/replicated/multi_topic.py` does the same for messages of other instances.

The topic of a message is given by its key, an index in a list of topics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from server.replication.core.columns import by_value
from server.storage.journal import JournalEntryKind
from server.storage.journal.write.blocks import each, map_column, of_one, part_of
from server.storage.sow.record_batch import SowRecordBatch, expiry_times
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND
from server.storage.sow.store import RecordStoreError, cleaning_paused
from server.topics.journaled_topic import JournaledTopic, in_seconds, lifetimes_of, refusal_of
from server.topics.log_feed import RecordedBatch
from server.topics.sow_registry import AllSettled
from server.topics.sow_topic import SowTopic
from server.topics.topic_journal import append_publishes, encode_messages, uniform_ranges
from server.topics.transaction_log import SettledTopics

if TYPE_CHECKING:
    from server.storage.journal.write.blocks import FieldColumn
    from server.storage.sow.records import RecordChange
    from server.topics.interleaved_delivery import InterleavedDelivery
    from server.topics.journaled_topic import JournaledSowTopic
    from server.topics.sow_registry import DurabilityWait
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.message_refusal import MessageRefusal
    from server.topics.topic import Topic

_POSITION: Final = itemgetter(0)
_NO_TOPIC: Final = -1
"""The key of a message without recipients."""


LoggedTopic: TypeAlias = "JournaledTopic | JournaledSowTopic"
PlainTarget: TypeAlias = "LoggedTopic | SowTopic | Topic"


class _Recorded(NamedTuple):
    """Messages that have been recorded in one step.

    Positions are those among the messages of the batch that are for the log.

    Attributes:
        start: the position of the first one.
        end: the position behind the last one.
        txids: their txids.
        timestamp_us: the time of recording, in microseconds since 1970.
        publisher: the publisher's identity in their bookmarks.
        numbers: their numbers in bookmarks.
    """

    start: int
    end: int
    txids: Sequence[int]
    timestamp_us: int
    publisher: int
    numbers: Sequence[int]


class _RecordShare:
    """The messages to one topic with records that is in the log.

    Args:
        topic: the topic.
        positions: the positions of the messages among those for the log, ascending.
        drafts: their records, see `JournaledSowTopic.draft_publishes`.

    Attributes:
        topic: see above.
        is_put: whether records have been put that are still to be announced.
    """

    __slots__ = ("_announced", "_changes", "_drafts", "_positions", "_records", "is_put", "topic")

    def __init__(
        self, topic: JournaledSowTopic, positions: Sequence[int], drafts: SowRecordBatch
    ) -> None:
        self.topic = topic
        self._positions = positions
        self._drafts = drafts
        self._records = drafts  # in `put` those of recorded messages, to be announced
        self._changes: Sequence[RecordChange | None] = ()  # see `SowTopic.put_batch`
        self._announced = 0
        self.is_put = False

    def apply(
        self, start: int, end: int, recorded: _Recorded, envelope: Envelope, *, is_silent: bool
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Put and announce the records of recorded messages.

        Args:
            start: the position of the first message to apply.
            end: the position behind the last one.
            recorded: the messages that have been recorded in the same step.
            envelope: the publisher's metadata of the batch.
            is_silent: whether the caller delivers them; see `SowTopic.apply_batch`.

        Returns:
            The positions of records that cannot be stored, each with the reason.
        """
        begin, stop = bisect_left(self._positions, start), bisect_left(self._positions, end)
        if begin == stop:
            return ()
        records = self._recorded_part(begin, stop, recorded)
        problems = self.topic.apply_batch(records, envelope, is_silent=is_silent)
        return self._failures(begin, problems)

    def put(self, recorded: _Recorded) -> Sequence[tuple[int, RecordStoreError]]:
        """Put the records of recorded messages, to be announced by `announce_next`.

        Returns:
            See `apply`.
        """
        begin = bisect_left(self._positions, recorded.start)
        stop = bisect_left(self._positions, recorded.end)
        self.is_put, self._announced = True, 0
        self._records = self._recorded_part(begin, stop, recorded)
        problems, self._changes = self.topic.put_batch(self._records)
        return self._failures(begin, problems)

    def announce_next(self, count: int, envelope: Envelope) -> None:
        """Announce the next ones of the records that have been put.

        Args:
            count: the number of their messages.
            envelope: the publisher's metadata of the batch.
        """
        begin, self._announced = self._announced, self._announced + count
        if self._changes:
            self.topic.announce_changes(self._changes[begin : self._announced], envelope)
        else:
            self.topic.announce_batch(self._records.part(begin, self._announced), envelope)

    def _recorded_part(self, begin: int, stop: int, recorded: _Recorded) -> SowRecordBatch:
        """Return the records of some of the messages, which have been recorded."""
        drafts, first = self._drafts, recorded.start
        time_ns = recorded.timestamp_us * NANOSECONDS_IN_MICROSECOND
        indexes = [position - first for position in self._positions[begin:stop]]
        return SowRecordBatch(
            drafts.topic,
            drafts.keys[begin:stop],
            drafts.bodies[begin:stop],
            [recorded.txids[index] for index in indexes],
            time_ns,
            expiry_times(part_of(drafts.expires, begin, stop), time_ns),
            recorded.publisher,
            [recorded.numbers[index] for index in indexes],
            drafts.correlation_ids[begin:stop],
        )

    def _failures(
        self, begin: int, problems: Sequence[tuple[int, RecordStoreError]]
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Return problems by the positions of their messages, the first of which is `begin`."""
        return [(self._positions[begin + index], problem) for index, problem in problems]


class InterleavedPublishes:
    """Messages to several topics, in the transaction log or not, with records or without.

    Each topic with records applies all its messages at once. Subscribers see the order of messages
    across topics: if a topic with records has recipients, and another one has, too, the messages
    of all of them are delivered together behind that. If a recipient needs more than new states
    and plain headers, they are applied and delivered one batch of a topic after the other.

    Args:
        topics: the topics, by key.
        distinct_keys: the keys of the messages, each once.
        keys: the key of each message.
        bodies: the messages.

    Attributes:
        is_logged: whether any of the topics is in the log.
        has_unlogged_records: whether any that is not in the log has records.
    """

    __slots__ = (
        "_are_in_order",
        "_are_together",
        "_bodies",
        "_distinct_keys",
        "_envelope",
        "_expirations",
        "_given_bodies",
        "_keys",
        "_kinds",
        "_log_bodies",
        "_log_envelope",
        "_log_keys",
        "_log_rows",
        "_logged",
        "_record_topics",
        "_shares",
        "_sow_keys",
        "_subscribed_keys",
        "_topics",
        "has_unlogged_records",
        "is_logged",
    )

    def __init__(
        self,
        topics: Sequence[PlainTarget],
        distinct_keys: Sequence[int],
        keys: Sequence[int],
        bodies: Sequence[bytes],
    ) -> None:
        key_by_topic: dict[PlainTarget, int] = {}
        own_keys = {key: key_by_topic.setdefault(topics[key], key) for key in distinct_keys}
        if len(key_by_topic) < len(own_keys):  # one for each topic suffices
            distinct_keys, keys = [*key_by_topic.values()], [own_keys[key] for key in keys]
        self._topics = topics
        self._distinct_keys = distinct_keys
        self._keys = keys
        self._bodies = self._given_bodies = bodies
        self._logged: dict[int, LoggedTopic] = {}  # by key
        self._record_topics: dict[int, SowTopic] = {}  # likewise, those that are not in the log
        for key in distinct_keys:
            topic = topics[key]
            if topic.is_journaled:
                self._logged[key] = cast("LoggedTopic", topic)
            elif isinstance(topic, SowTopic):
                self._record_topics[key] = topic
        self.is_logged = bool(self._logged)
        self.has_unlogged_records = bool(self._record_topics)
        # The messages for the log: their positions in the batch, and what they are.
        self._log_rows: Sequence[int] = range(len(keys))
        self._log_keys, self._log_bodies = keys, bodies
        if len(self._logged) < len(distinct_keys):
            self._log_rows = rows = [row for row, key in enumerate(keys) if key in self._logged]
            self._log_keys = [keys[row] for row in rows]
            self._log_bodies = [bodies[row] for row in rows]
        self._shares: dict[int, _RecordShare] = {}  # by the key of a topic with records
        self._sow_keys: list[int] = []  # of the messages for the log, if any has a record
        self._expirations: FieldColumn = 0  # likewise, their lifetimes in seconds
        self._kinds: FieldColumn = JournalEntryKind.PUBLISH  # likewise, the kinds of their entries
        self._subscribed_keys: set[int] = set()  # of the topics with recipients
        self._are_in_order = False  # whether messages are applied in their order
        self._are_together = False  # whether all topics' messages are delivered together

    def prepare(self, delivery: InterleavedDelivery, envelope: Envelope) -> bool:
        """Prepare to publish the messages in one step; return whether that is possible.

        Args:
            delivery: the delivery that `publish` gets.
            envelope: the publisher's metadata of the messages.
        """
        logged = self._logged.values()
        if not all(topic.accepts_interleaved for topic in logged):
            return False
        if not self._accepts_metadata(envelope):
            return False
        self._envelope = self._log_envelope = envelope
        if logged and len(self._log_rows) < len(self._keys):
            self._log_envelope = envelope.part(self._log_rows)
        if logged and not next(iter(logged)).journal.is_batchable(self._log_envelope):
            return False
        self._expirations = lifetimes_of(self._log_envelope)
        tables = [topic.table for topic in logged if topic.table is not None]
        if tables:
            # Room is made for each topic by itself, of which a Pattern has several in one table:
            if len({*tables}) < len(tables):
                return False
            if not self._draft_records():
                return False
        self._subscribed_keys = subscribed = {
            key for key in self._distinct_keys if _is_heard(self._topics[key])
        }
        if envelope.correlation_ids:
            self._are_in_order = bool(subscribed)  # headers differ
        elif len(subscribed) > 1 and not all(map(self._is_plain, subscribed)):
            self._are_together = subscribed.isdisjoint(self._record_topics) and delivery.prepare(
                self._topics, [*subscribed], envelope
            )
            self._are_in_order = not self._are_together
        return True

    def _accepts_metadata(self, envelope: Envelope) -> bool:
        """Return whether messages can have metadata of their own, if they have any."""
        if not envelope.has_metadata_columns:
            return True
        topics = [self._topics[key] for key in self._distinct_keys]
        if envelope.sow_keys and not all(isinstance(topic, SowTopic) for topic in topics):
            return False  # entries of topics without records have them
        return all(topic.accepts_metadata for topic in topics)

    def _draft_records(self) -> bool:
        """Draft the records of the messages for the log; return whether that is possible."""
        bodies, deltas = self._log_bodies, self._log_envelope.deltas
        count = len(bodies)
        self._sow_keys, expirations = [0] * count, [*each(self._expirations, count)]
        record_bodies, all_bodies = ([*bodies], [*self._bodies]) if deltas else ([], [])
        for key, positions in by_value(self._log_keys):
            topic = self._logged[key]
            if topic.table is None:
                continue
            envelope = self._log_envelope.part(positions)
            records = topic.draft_publishes([bodies[position] for position in positions], envelope)
            if records is None:
                return False
            self._shares[key] = _RecordShare(topic, positions, records)
            lifetimes = each(map_column(records.expires, in_seconds), len(positions))
            for position, sow_key in zip(positions, records.keys, strict=True):
                self._sow_keys[position] = sow_key
            for position, lifetime in zip(positions, lifetimes, strict=True):
                expirations[position] = lifetime
            if deltas:
                for position, body in zip(positions, records.bodies, strict=True):
                    record_bodies[position] = all_bodies[self._log_rows[position]] = body
        self._expirations = expirations if any(expirations) else 0
        if deltas:
            self._log_bodies, self._bodies = record_bodies, all_bodies
            self._kinds = [
                JournalEntryKind.DELTA_PUBLISH
                if is_delta and key in self._shares
                else JournalEntryKind.PUBLISH
                for key, is_delta in zip(self._log_keys, deltas, strict=True)
            ]
        return True

    def publish(self, delivery: InterleavedDelivery) -> Sequence[MessageRefusal]:
        """Record messages, apply and deliver them, after `prepare`. See `Topic.publish`."""
        refusals: list[MessageRefusal] = []
        done, end = 0, len(self._keys)
        with cleaning_paused([share.topic.table.store for share in self._shares.values()]):
            if self._logged:
                done = self._publish_logged(delivery, refusals)
            is_refused = bool(refusals) and bool(self._log_envelope.deltas)
            if done < end and not is_refused:
                self._apply(done, end, None, delivery, refusals)
        for share in self._shares.values():
            share.topic.finish_batch()
        if is_refused:
            self._publish_one_by_one(done, refusals)
        if self._record_topics:
            self._publish_unlogged_records(refusals)
        refusals.sort(key=_POSITION)
        return refusals

    def _publish_one_by_one(self, start: int, refusals: list[MessageRefusal]) -> None:
        """Publish messages behind a refused one, on which the drafts of deltas may rely."""
        for row in range(start, len(self._keys)):
            key = self._keys[row]
            if key not in self._record_topics or key in self._keys_in_order:
                refusals += _publish_rows(
                    self._topics[key], (row,), self._given_bodies, self._envelope
                )

    def _publish_logged(self, delivery: InterleavedDelivery, refusals: list[MessageRefusal]) -> int:
        """Publish messages up to the last one that is refused, with deltas the first, or else all.

        Returns:
            The position reached.
        """
        rows, logged, envelope = self._log_rows, self._logged, self._log_envelope
        handles = {key: topic.journal.publish_handles(envelope) for key, topic in logged.items()}
        journal = next(iter(logged.values())).journal
        entries = encode_messages(self._log_bodies, envelope, self._expirations, self._kinds)
        start = reached = 0
        while start < len(rows):
            done = append_publishes(
                journal.log, handles, self._log_keys, envelope, entries, start, self._sow_keys
            )
            end = done.end
            until = rows[end] if end < len(rows) else len(self._keys)
            recorded = None
            if done.txids:
                bookmarks = journal.bookmark_parts(envelope, start, done.txids)
                recorded = _Recorded(start, end, done.txids, done.timestamp, *bookmarks)
            self._envelope.received_s = envelope.received_s
            self._apply(reached, until, recorded, delivery, refusals)
            if done.problem is not None:
                refused = logged[self._log_keys[end]].refuse_message(end, done.problem, envelope)
                refusals.append(refused._replace(position=until))
                end, until = end + 1, until + 1
            start, reached = end, until
            if done.problem is not None and bool(self._log_envelope.deltas):
                break
        return reached

    def _apply(
        self,
        begin: int,
        until: int,
        recorded: _Recorded | None,
        delivery: InterleavedDelivery,
        refusals: list[MessageRefusal],
    ) -> None:
        """Apply and deliver a range of the batch, in which some messages have been recorded."""
        failures: list[tuple[int, RecordStoreError]] = []
        subscribed, delivered = self._subscribed_keys, self._delivered_part(begin, until, recorded)
        if recorded is not None:
            self._notify_feeds(recorded)
            for key, share in self._shares.items():
                if self._are_in_order and key in subscribed:
                    if share.topic.announces_batches:
                        failures += share.put(recorded)
                else:
                    failures += share.apply(
                        recorded.start,
                        recorded.end,
                        recorded,
                        self._log_envelope,
                        is_silent=self._are_together,
                    )
        if self._are_in_order:
            self._apply_in_order(begin, until, recorded, delivered, failures, refusals)
        elif self._are_together:
            self._deliver_together(begin, until, failures, delivery, delivered)
        elif begin < until and any(self._is_plain(key) for key in subscribed):
            plain = [key for key in self._distinct_keys if self._is_plain(key)]
            topics = cast("Sequence[Topic]", self._topics)
            keys, bodies = self._keys[begin:until], self._bodies[begin:until]
            delivery.deliver(topics, plain, keys, bodies, delivered)
        rows = self._log_rows
        refusals += [refusal_of(rows[position], problem) for position, problem in failures]

    def _apply_in_order(
        self,
        begin: int,
        until: int,
        recorded: _Recorded | None,
        delivered: Envelope,
        failures: list[tuple[int, RecordStoreError]],
        refusals: list[MessageRefusal],
    ) -> None:
        """Apply and deliver the messages of a range, one batch of a topic after the other."""
        topics, rows, bodies, envelope = self._topics, self._log_rows, self._bodies, self._envelope
        for at, end, key in uniform_ranges(self._keys, begin, until):
            if key not in self._subscribed_keys:
                continue
            topic = topics[key]
            if key in self._record_topics:
                refusals += _publish_rows(topic, range(at, end), bodies, envelope)
            elif key not in self._shares:
                first, last = at - begin, end - begin
                numbers = delivered.numbers[first:last] if key in self._logged else ()
                part = delivered.recorded_part(first, last, delivered.bookmark_publisher, numbers)
                cast("Topic", topic).deliver(bodies[at:end], part)
            elif recorded is not None:
                share = self._shares[key]
                if share.is_put:
                    share.announce_next(end - at, self._log_envelope)
                    continue
                own = bisect_left(rows, at), bisect_left(rows, end)
                failures += share.apply(*own, recorded, self._log_envelope, is_silent=False)

    def _delivered_part(self, begin: int, until: int, recorded: _Recorded | None) -> Envelope:
        """Return the envelope of a range of the batch, with the bookmarks of recorded messages."""
        envelope = self._envelope
        if recorded is None:
            return envelope.recorded_part(begin, until, 0, ())
        numbers = recorded.numbers
        if len(self._log_rows) < len(self._keys):
            numbers = [0] * (until - begin)
            rows = self._log_rows[recorded.start : recorded.end]
            for row, number in zip(rows, recorded.numbers, strict=True):
                numbers[row - begin] = number
        return envelope.recorded_part(begin, until, recorded.publisher, numbers)

    def _deliver_together(
        self,
        begin: int,
        until: int,
        failures: Sequence[tuple[int, RecordStoreError]],
        delivery: InterleavedDelivery,
        delivered: Envelope,
    ) -> None:
        """Deliver a range of the batch to all its recipients; its records have been put."""
        rows, keys = self._log_rows, [*self._keys[begin:until]]
        for position, _ in failures:
            keys[rows[position] - begin] = _NO_TOPIC
        sow_keys = self._sow_keys
        if len(rows) < len(self._keys):
            sow_keys = [0] * len(self._keys)
            for row, sow_key in zip(rows, self._sow_keys, strict=True):
                sow_keys[row] = sow_key
        delivery.deliver_prepared(
            [*self._subscribed_keys],
            keys,
            self._bodies[begin:until],
            sow_keys[begin:until],
            delivered,
        )

    def _is_plain(self, key: int) -> bool:
        """Return whether a topic has no records."""
        return key not in self._shares and key not in self._record_topics

    @property
    def _keys_in_order(self) -> Collection[int]:
        """The keys of topics that apply their messages in the order of the whole batch."""
        return self._subscribed_keys if self._are_in_order else ()

    def _publish_unlogged_records(self, refusals: list[MessageRefusal]) -> None:
        """Publish messages to topics with records that are not in the log, each topic's at once.

        Those that have been published in their order are left out.
        """
        for key, topic in self._record_topics.items():
            if key not in self._keys_in_order:
                rows = [row for row, own_key in enumerate(self._keys) if own_key == key]
                refusals += _publish_rows(topic, rows, self._bodies, self._envelope)

    def _notify_feeds(self, recorded: _Recorded) -> None:
        """Notify the feeds of messages recorded in one step, each of all its topic's at once.

        A feed of several topics is notified in the order of the log.
        """
        feeds = [feed for topic in self._logged.values() for feed in topic.journal.feeds]
        if not feeds:
            return
        first, keys = recorded.start, self._log_keys[recorded.start : recorded.end]
        shares: Iterable[tuple[int, Sequence[int]]]
        if len({*map(id, feeds)}) < len(feeds):
            shares = [(key, range(at, to)) for at, to, key in uniform_ranges(keys, 0, len(keys))]
        else:
            shares = by_value(keys)
        for key, indexes in shares:
            journal = self._logged[key].journal
            if journal.feeds:
                has_records = key in self._shares
                journal.notify_feeds(
                    RecordedBatch(
                        journal.topic.name,
                        [self._log_bodies[first + index] for index in indexes],
                        self._log_envelope,
                        [recorded.txids[index] for index in indexes],
                        recorded.timestamp_us,
                        recorded.publisher,
                        [recorded.numbers[index] for index in indexes],
                        [self._sow_keys[first + index] for index in indexes] if has_records else (),
                        of_one(self._expirations, first + indexes[0]) if has_records else 0,
                    )
                )

    def settled(self) -> DurabilityWait:
        """Return what calls back when the messages are settled; see `Topic.when_settled`."""
        waits: list[DurabilityWait] = [topic.when_settled for topic in self._record_topics.values()]
        if self._logged:
            journals = [topic.journal for topic in self._logged.values()]
            logged = SettledTopics(
                journals[0].log, frozenset(journal.topic for journal in journals)
            )
            if not waits:
                return logged
            waits.append(logged)
        return AllSettled(frozenset(waits))


def _is_heard(topic: PlainTarget) -> bool:
    """Return whether a topic has subscribers, or other topics that follow it."""
    return topic.has_subscriptions or (isinstance(topic, SowTopic) and topic.has_followers)


def _publish_rows(
    topic: PlainTarget, rows: Sequence[int], bodies: Sequence[bytes], envelope: Envelope
) -> Iterator[MessageRefusal]:
    """Publish some messages of a batch, and yield those that are refused."""
    for refusal in topic.publish([bodies[row] for row in rows], envelope.part(rows)):
        yield refusal._replace(position=rows[refusal.position])
