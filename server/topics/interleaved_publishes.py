"""Consecutive publishes of one client to several topics.

Publishers that send to many topics seldom send two messages to the same one in a row. So the log
takes the messages of all topics that are in it in one step, each topic with records takes all its
messages at once, and each connection gets its messages of all topics in one write, in their order.
`server/topics/replicated/multi_topic.py` does the same for messages of other instances.

The topic of a message is given by its key, an index in a list of topics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from enum import Enum, auto
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from server.replication.core.columns import by_value
from server.storage.journal import JournalEntryKind
from server.storage.journal.write.blocks import each, of_one
from server.storage.sow.store import RecordStoreError, cleaning_paused
from server.topics.interleaved_delivery import NO_TOPIC
from server.topics.journaled_topic import (
    JournaledTopic,
    in_seconds,
    kinds_of,
    lifetimes_of,
    refusal_of,
    refuse_message,
)
from server.topics.log_feed import RecordedBatch
from server.topics.sow_registry import AllSettled
from server.topics.sow_topic import SowTopic
from server.topics.table_batch import RecordedStep, TableBatch
from server.topics.topic_journal import append_publishes, encode_messages, uniform_ranges
from server.topics.transaction_log import SettledTopics

if TYPE_CHECKING:
    from server.storage.journal.write.blocks import FieldColumn
    from server.storage.sow.record_batch import TopicColumn
    from server.storage.sow.record_table import RecordTable
    from server.topics.interleaved_delivery import InterleavedDelivery
    from server.topics.journaled_topic import JournaledSowTopic
    from server.topics.sow_registry import DurabilityWait
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.message_refusal import MessageRefusal
    from server.topics.topic import Topic

_POSITION: Final = itemgetter(0)

LoggedTopic: TypeAlias = "JournaledTopic | JournaledSowTopic"
PlainTarget: TypeAlias = "LoggedTopic | SowTopic | Topic"


class _DeliveryMode(Enum):
    """The order of deliveries.

    Attributes:
        BY_TOPIC: each topic with records announces its messages at once; those to topics without
            records are delivered together.
        TOGETHER: the messages of all topics are delivered together, after all records have changed.
        IN_ORDER: messages are announced and delivered in their order, one batch of a topic after
            the other.
    """

    BY_TOPIC = auto()
    TOGETHER = auto()
    IN_ORDER = auto()


class InterleavedPublishes:
    """Messages to several topics, in the transaction log or not, with records or without.

    Each topic with records applies all its messages at once. Subscribers see the order of messages
    across topics: if a topic with records has recipients, and another one has, too, the messages
    of all of them are delivered together behind that. If a recipient needs more than new states
    and plain headers, they are applied and delivered one batch of a topic after the other.

    The row of a message is its index among all messages, its position that among those for the log.

    Args:
        topics: the topics, by key.
        distinct_keys: the keys of the messages, each once.
        keys: the key of each message.
        bodies: the messages.

    Attributes:
        is_logged: whether any of the topics is in the log.
        has_unlogged_records: whether any that is not in the log has records.
    """

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
        # The messages for the log: their rows, and what they are.
        self._log_rows: Sequence[int] = range(len(keys))
        self._log_keys, self._log_bodies = keys, bodies
        if len(self._logged) < len(distinct_keys):
            self._log_rows = rows = [row for row, key in enumerate(keys) if key in self._logged]
            self._log_keys = [keys[row] for row in rows]
            self._log_bodies = [bodies[row] for row in rows]
        self._table_batches: dict[int, TableBatch] = {}  # by the key of a topic with records
        self._sow_keys: list[int | str] = []  # of the messages for the log, if any has one
        self._expirations: FieldColumn = 0  # likewise, their lifetimes in seconds
        self._kinds: FieldColumn = JournalEntryKind.PUBLISH  # likewise, the kinds of their entries
        self._subscribed_keys: set[int] = set()  # of the topics with recipients
        self._are_dependent = False  # whether records may depend on those of earlier messages
        self._mode = _DeliveryMode.BY_TOPIC
        self._ordered_keys: set[int] = set()  # of topics that apply messages in the order of rows

    def prepare(self, delivery: InterleavedDelivery, envelope: Envelope) -> bool:
        """Prepare to publish the messages in one step; return whether that is possible.

        Args:
            delivery: the delivery that `publish` gets.
            envelope: the publisher's metadata of the messages.
        """
        if not self._accepts(envelope):
            return False
        logged = self._logged.values()
        self._envelope = self._log_envelope = envelope
        if logged and len(self._log_rows) < len(self._keys):
            self._log_envelope = envelope.part(self._log_rows)
        if logged and not next(iter(logged)).journal.is_batchable(self._log_envelope):
            return False
        self._expirations = lifetimes_of(self._log_envelope)
        self._sow_keys = [*self._log_envelope.sow_keys]
        if any(topic.table is not None for topic in logged) and not self._draft_records():
            return False
        if logged:
            self._entries = encode_messages(
                self._log_bodies, self._log_envelope, self._expirations, self._kinds, self._sow_keys
            )
        self._choose_mode(delivery)
        return True

    def _accepts(self, envelope: Envelope) -> bool:
        """Return whether all topics accept messages that are recorded together, with metadata."""
        if not all(topic.accepts_interleaved for topic in self._logged.values()):
            return False
        if any(topic.records.reads_others for topic in self._record_topics.values()):
            return False  # in the state after the messages before
        return not envelope.has_metadata_columns or all(
            self._topics[key].accepts_metadata for key in self._distinct_keys
        )

    def _choose_mode(self, delivery: InterleavedDelivery) -> None:
        """Choose the order of deliveries; see `prepare`."""
        self._subscribed_keys = subscribed = {
            key for key in self._distinct_keys if _is_heard(self._topics[key])
        }
        if self._envelope.correlation_ids:
            if subscribed:
                self._mode = _DeliveryMode.IN_ORDER  # headers differ
        elif len(subscribed) > 1 and not all(map(self._is_plain, subscribed)):
            can_deliver_together = (
                subscribed.isdisjoint(self._record_topics)
                and not any(batch.announces_deletions for batch in self._table_batches.values())
                and delivery.prepare(self._topics, [*subscribed], self._envelope)
            )
            self._mode = _DeliveryMode.TOGETHER if can_deliver_together else _DeliveryMode.IN_ORDER
        if self._mode is _DeliveryMode.IN_ORDER:
            self._ordered_keys = {*subscribed}
            for key in subscribed & self._table_batches.keys():
                if not self._table_batches[key].announces_batches:
                    self._ordered_keys.update(self._table_batches[key].topics)

    def _draft_records(self) -> bool:
        """Draft the records of the messages for the log; return whether that is possible."""
        bodies, count = self._log_bodies, len(self._log_bodies)
        self._sow_keys = self._sow_keys or [0] * count
        expirations = [*each(self._expirations, count)]
        envelope = self._log_envelope
        is_uniform = envelope.is_uniform
        rewritten: list[tuple[int, bytes]] = []
        self._are_dependent = envelope.depends_on_records
        for keys, positions in self._rows_by_table():
            topics = {key: cast("JournaledSowTopic", self._logged[key]) for key in keys}
            sow = topics[keys[0]].records
            own_keys: FieldColumn = keys[0]
            names: TopicColumn = sow.name
            if sow.is_container:
                own_keys = log_keys = [self._log_keys[position] for position in positions]
                names = [topics[key].name for key in log_keys]
            self._are_dependent |= sow.reads_previous
            own_bodies = [bodies[position] for position in positions]
            own_envelope = envelope if is_uniform else envelope.part(positions)
            drafts = topics[keys[0]].draft_batch(names, own_bodies, own_envelope)
            if drafts is None:
                return False
            batch = TableBatch(topics, own_keys, positions, drafts)
            for key in keys:
                self._table_batches[key] = batch
            lifetimes, logged_keys = drafts.expires, drafts.logged_keys
            for index, position in enumerate(positions):
                self._sow_keys[position] = logged_keys[index]
                expirations[position] = in_seconds(of_one(lifetimes, index))
            if drafts.bodies is not own_bodies:
                rewritten += zip(positions, drafts.bodies, strict=True)
        if rewritten:
            self._log_bodies, self._bodies = log_bodies, all_bodies = [*bodies], [*self._bodies]
            for position, body in rewritten:
                log_bodies[position] = all_bodies[self._log_rows[position]] = body
        self._expirations = expirations if any(expirations) else 0
        if envelope.depends_on_records:
            own = copy(envelope)
            pairs = zip(self._log_keys, own.deltas or [False] * count, strict=True)
            own.deltas = [is_delta and key in self._table_batches for key, is_delta in pairs]
            self._kinds = kinds_of(own)
        return True

    def _rows_by_table(self) -> Sequence[tuple[list[int], list[int]]]:
        """Return the keys of the topics of each table, and the positions of their messages."""
        tables: dict[RecordTable, tuple[list[int], list[int]]] = {}
        positions_by_key: dict[int, list[int]] = {}
        for key, topic in self._logged.items():
            table = topic.table
            if table is not None:
                keys, positions = tables.setdefault(table, ([], []))
                keys.append(key)
                positions_by_key[key] = positions
        for position, key in enumerate(self._log_keys):
            own_positions = positions_by_key.get(key)
            if own_positions is not None:
                own_positions.append(position)
        return [*tables.values()]

    def publish(self, delivery: InterleavedDelivery) -> Sequence[MessageRefusal]:
        """Record messages, apply and deliver them, after `prepare`. See `Topic.publish`."""
        refusals: list[MessageRefusal] = []
        done, end = 0, len(self._keys)
        tables = {*self._table_batches.values()}
        with cleaning_paused([batch.table.store for batch in tables]):
            if self._logged:
                done = self._publish_logged(delivery, refusals)
            is_refused = bool(refusals) and self._are_dependent
            if done < end and not is_refused:
                self._apply(done, end, None, delivery, refusals)
        for batch in tables:
            next(iter(batch.topics.values())).finish_batch()
        if is_refused:
            self._publish_one_by_one(done, refusals)
        if self._record_topics:
            self._publish_unlogged_records(refusals)
        refusals.sort(key=_POSITION)
        return refusals

    def _publish_one_by_one(self, start: int, refusals: list[MessageRefusal]) -> None:
        """Publish messages behind a refused one, on which their drafts may depend."""
        for row in range(start, len(self._keys)):
            key = self._keys[row]
            if key not in self._record_topics or key in self._ordered_keys:
                refusals += _publish_rows(
                    self._topics[key], (row,), self._given_bodies, self._envelope
                )

    def _publish_logged(self, delivery: InterleavedDelivery, refusals: list[MessageRefusal]) -> int:
        """Publish messages up to the first one that is refused, if others may depend on it, or all.

        Returns:
            The row reached.
        """
        rows, logged, envelope = self._log_rows, self._logged, self._log_envelope
        handles = {key: topic.journal.publish_handles(envelope) for key, topic in logged.items()}
        journal = next(iter(logged.values())).journal
        start = reached = 0
        while start < len(rows):
            done = append_publishes(
                journal.log, handles, self._log_keys, envelope, self._entries, start
            )
            end = done.end
            until = rows[end] if end < len(rows) else len(self._keys)
            recorded = None
            if done.txids:
                bookmarks = journal.bookmark_parts(envelope, start, done.txids)
                recorded = RecordedStep(start, end, done.txids, done.timestamp, *bookmarks)
            self._envelope.received_s = envelope.received_s
            self._apply(reached, until, recorded, delivery, refusals)
            if done.problem is not None:
                refused = refuse_message(
                    logged[self._log_keys[end]].journal, end, done.problem, envelope
                )
                refusals.append(refused._replace(position=until))
                end, until = end + 1, until + 1
            start, reached = end, until
            if done.problem is not None and self._are_dependent:
                break
        return reached

    def _apply(
        self,
        begin: int,
        until: int,
        recorded: RecordedStep | None,
        delivery: InterleavedDelivery,
        refusals: list[MessageRefusal],
    ) -> None:
        """Apply and deliver a range of rows, in which some messages have been recorded."""
        failures: list[tuple[int, RecordStoreError]] = []
        subscribed, delivered = self._subscribed_keys, self._delivered_part(begin, until, recorded)
        if recorded is not None:
            self._notify_feeds(recorded)
            step = recorded.start, recorded.end, recorded
            for batch in dict.fromkeys(self._table_batches.values()):
                if self._ordered_keys.isdisjoint(batch.topics):
                    failures += batch.apply(
                        *step, self._log_envelope, is_silent=self._mode is _DeliveryMode.TOGETHER
                    )
                elif batch.announces_batches:
                    failures += batch.put(*step)
        if self._mode is _DeliveryMode.IN_ORDER:
            self._apply_in_order(begin, until, recorded, delivered, failures, refusals)
        elif self._mode is _DeliveryMode.TOGETHER:
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
        recorded: RecordedStep | None,
        delivered: Envelope,
        failures: list[tuple[int, RecordStoreError]],
        refusals: list[MessageRefusal],
    ) -> None:
        """Apply and deliver a range of rows, one batch of a topic after the other."""
        topics, rows, bodies, envelope = self._topics, self._log_rows, self._bodies, self._envelope
        for at, end, key in uniform_ranges(self._keys, begin, until):
            if key not in self._ordered_keys:
                continue
            topic = topics[key]
            if key in self._record_topics:
                refusals += _publish_rows(topic, range(at, end), bodies, envelope)
            elif key not in self._table_batches:
                first, last = at - begin, end - begin
                numbers = delivered.numbers[first:last] if key in self._logged else ()
                part = delivered.recorded_part(first, last, delivered.bookmark_publisher, numbers)
                cast("Topic", topic).deliver(bodies[at:end], part)
            elif recorded is not None:
                batch, start, count = self._table_batches[key], at, end - at
                if len(rows) < len(self._keys):
                    start = bisect_left(rows, at)
                if batch.has_unannounced:
                    batch.announce(start, count, self._log_envelope)
                else:
                    failures += batch.apply(
                        start, start + count, recorded, self._log_envelope, is_silent=False
                    )

    def _delivered_part(self, begin: int, until: int, recorded: RecordedStep | None) -> Envelope:
        """Return the envelope of a range of rows, with the bookmarks of recorded messages."""
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
        """Deliver a range of rows to all its recipients; its records have been put."""
        rows, keys = self._log_rows, [*self._keys[begin:until]]
        for position, _ in failures:
            keys[rows[position] - begin] = NO_TOPIC
        for index, deletion in enumerate(self._envelope.deletions[begin:until]):
            if deletion is not None:
                keys[index] = NO_TOPIC
        sow_keys = self._entries.sow_keys
        if len(rows) < len(self._keys):
            sow_keys = [0] * len(self._keys)
            for row, sow_key in zip(rows, self._entries.sow_keys, strict=True):
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
        return key not in self._table_batches and key not in self._record_topics

    def _publish_unlogged_records(self, refusals: list[MessageRefusal]) -> None:
        """Publish messages to topics with records that are not in the log, each topic's at once.

        Those that have been published in their order are left out.
        """
        rows_by_key: dict[int, list[int]] = {
            key: [] for key in self._record_topics if key not in self._ordered_keys
        }
        for row, key in enumerate(self._keys):
            rows = rows_by_key.get(key)
            if rows is not None:
                rows.append(row)
        for key, rows in rows_by_key.items():
            refusals += _publish_rows(self._topics[key], rows, self._bodies, self._envelope)

    def _notify_feeds(self, recorded: RecordedStep) -> None:
        """Notify the feeds of messages recorded in one step, each of all its topic's at once.

        A feed of several topics is notified in the order of the log.
        """
        feeds = [feed for topic in self._logged.values() for feed in topic.journal.feeds]
        if not feeds:
            return
        sow_keys = self._entries.sow_keys
        first, keys = recorded.start, self._log_keys[recorded.start : recorded.end]
        shares: Iterable[tuple[int, Sequence[int]]]
        if len({*map(id, feeds)}) < len(feeds):
            shares = [(key, range(at, to)) for at, to, key in uniform_ranges(keys, 0, len(keys))]
        else:
            shares = by_value(keys)
        for key, indexes in shares:
            journal = self._logged[key].journal
            if journal.feeds:
                has_records = key in self._table_batches
                journal.notify_feeds(
                    RecordedBatch(
                        journal.topic.name,
                        [self._log_bodies[first + index] for index in indexes],
                        self._log_envelope,
                        [recorded.txids[index] for index in indexes],
                        recorded.timestamp_us,
                        recorded.publisher,
                        [recorded.numbers[index] for index in indexes],
                        [sow_keys[first + index] for index in indexes] if has_records else (),
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
