"""Topics fed from the log: they match, frame and conflate entries for bookmark subscriptions.

Each reader of the log has topics of its own, for the subscriptions that it reads for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from server.engine.replays.deletions import (
    WITH_DELETIONS,
    DeletionDelivery,
    is_plain,
    lifetime_key,
)
from server.expressions.message_context import NO_CONTEXT
from server.expressions.regex.budget import SearchAllowance, TooCostlyError
from server.security.permissions import Permit
from server.storage.journal import MESSAGES, JournalEntryKind
from server.topics.subscriptions.delivery.delivery import (
    DirectDelivery,
    deliver_batch,
    deliver_to_all,
    is_cheaper_by_connection,
)
from server.topics.subscriptions.delivery.logged_batch import (
    LoggedBatch,
    LoggedEnvelope,
    LoggedHeader,
    logged_frames,
    logged_header,
)
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.topics.topic import Topic

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.expressions.regex.budget import SearchCounter
    from server.storage.journal import JournalEntry, JournalTopic, RawEntryRange
    from server.storage.journal.format.records import FileDefinitions
    from server.topics.subscriptions.delivery.delivery import Delivery, FrameWriter, Recipient
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.subscription import Subscription

_MAX_CACHED_TOPICS: Final = 8_192
_MIN_INTERLEAVED_KINDS: Final = 2
_NO_PERMIT: Final = Permit(False)


class ReplayTopic(Topic):
    """A topic fed from the log."""

    __slots__ = ()

    def _writer_for(self, subscription: Subscription) -> FrameWriter:
        """See `Topic`."""
        if subscription.conflater is not None:
            return super()._writer_for(subscription)
        outbox = subscription.outbox
        return outbox.counting_writer(outbox.traffic.bookmark)

    def deliver_batch(self, batch: LoggedBatch) -> None:
        """Deliver messages to every subscription that they match. See `Topic.publish`."""
        _send(
            batch,
            self._prepare() if self._unfiltered_recipients is None else self._unfiltered_recipients,
        )
        if self._filters:
            self._deliver_filtered(batch)

    def verbatim_deliveries(self) -> Sequence[tuple[Outbox, DirectDelivery]] | None:
        """Return the deliveries of every message, with their connections.

        Returns:
            None if filters decide, bodies change, or a connection has several deliveries.
        """
        recipients = (
            self._prepare() if self._unfiltered_recipients is None else self._unfiltered_recipients
        )
        found = [
            (subscriptions[0].outbox, delivery)
            for delivery, subscriptions in recipients
            if isinstance(delivery, DirectDelivery) and not delivery.presentation.changes_bodies
        ]
        is_together = len({outbox for outbox, _ in found}) == len(recipients)
        return None if self._filters or not is_together else found

    def _deliver_filtered(self, batch: LoggedBatch) -> None:
        """Deliver filtered messages; consecutive ones for the same subscriptions go together."""
        match, context = self._filters.match, NO_CONTEXT
        self._filters.count_messages(len(batch))
        batch_recipients: Sequence[Recipient] = ()
        positions: list[int] = []
        for position, body in enumerate(batch.bodies):
            if self._filters.needs_context:
                context = batch.envelope(position).context(self.name, body)
            recipients = self._recipients_of(match(body, context))
            if not recipients:
                continue
            if recipients is not batch_recipients:
                _send_some(batch, positions, batch_recipients)
                batch_recipients, positions = recipients, []
            positions.append(position)
        _send_some(batch, positions, batch_recipients)


class _Lane:
    """A connection that gets every message of some kinds; see `RawEntryRange.kinds`.

    Args:
        writer: takes frames for the connection.

    Attributes:
        writer: see above.
        headers: the headers of its messages, by kind.
    """

    __slots__ = ("headers", "writer")

    def __init__(self, writer: FrameWriter) -> None:
        self.writer = writer
        self.headers: dict[int, LoggedHeader] = {}


class ReplayTopics:
    """Delivers entries of the log to the subscriptions of a reader.

    Entries that follow each other in the log are mostly of different topics. So a connection whose
    subscriptions have no filters gets the messages of all its topics in one write.

    Args:
        engine: has the topics, the settings for parsing bodies, and the functions of filters.

    Attributes:
        entry_kinds: the kinds of entries that the attached subscriptions need.
    """

    def __init__(self, engine: Engine) -> None:
        self.entry_kinds = MESSAGES
        self._settings = engine.settings
        self._topic_table = engine.topics
        self._subscriptions: dict[Subscription, None] = {}
        self._topics: dict[JournalTopic, ReplayTopic | None] = {}
        self._definitions: FileDefinitions | None = None  # of the file whose kinds these are:
        self._lane_counts: dict[int, int | None] = {}  # None: it is delivered by itself
        self._lanes: dict[Outbox, _Lane] = {}

    def attach(self, subscription: Subscription) -> None:
        """Start delivering to a subscription."""
        self._subscriptions[subscription] = None
        self._definitions = None
        if subscription.sends_deletions:
            self.entry_kinds = WITH_DELETIONS
        search_counter = SearchAllowance()
        for name, topic in list(self._topics.items()):
            permit = self._get_permit(subscription, name, search_counter)
            if permit.is_allowed:
                if topic is None:
                    self._topics[name] = self._make_topic(name, {subscription: permit})
                else:
                    topic.attach(subscription, permit)

    def detach(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription."""
        del self._subscriptions[subscription]
        self._definitions = None
        for topic in self._topics.values():
            if topic is not None:
                topic.detach(subscription)

    def filter_costs(self, subscription: Subscription) -> Iterator[FilterCost]:
        """Yield the costs of a subscription's filter, topic by topic."""
        for topic in self._topics.values():
            cost = None if topic is None else topic.cost_of(subscription)
            if cost is not None:
                yield cost

    def wants_topic(self, name: JournalTopic) -> bool:
        """Return whether any subscription is to a topic."""
        topic = self._find_topic(name)
        return topic is not None and topic.has_subscriptions

    def selects_messages(self, name: JournalTopic) -> bool:
        """Return whether some messages of a topic are not sent, or not in their original form."""
        topic = self._find_topic(name)
        return topic is not None and topic.is_selective

    def deliver_range(self, raw_range: RawEntryRange) -> None:
        """Deliver messages to the subscriptions that they match."""
        if self.entry_kinds is MESSAGES and self._is_interleaved(raw_range):
            for outbox, lane in list(self._lanes.items()):
                try:
                    frames, count = logged_frames(raw_range, lane.headers)
                    if count:
                        lane.writer.write_batch(frames, count)
                except Exception as error:  # any error: the other connections go on
                    end_failed_subscriptions(
                        [
                            subscription
                            for subscription in self._subscriptions
                            if subscription.outbox is outbox
                        ],
                        error,
                    )
            return
        for batch in raw_range.batches():
            topic = self._find_topic(batch.topic)
            if topic is None:
                continue
            if not batch.has_extras and (self.entry_kinds is MESSAGES or is_plain(batch)):
                topic.deliver_batch(LoggedBatch(batch))
                continue
            for position in range(len(batch)):
                entry = batch.entry_at(position)
                recipients, envelope = self._find_recipients(topic, entry)
                deliver_to_all(recipients, (entry.body,), envelope)

    def _is_interleaved(self, raw_range: RawEntryRange) -> bool:
        """Prepare for messages of several topics; return whether each connection gets one write."""
        kinds = raw_range.kinds()
        if kinds is None or len(kinds) < _MIN_INTERLEAVED_KINDS:
            return False
        is_other_file = raw_range.definitions is not self._definitions
        if is_other_file or len(self._lane_counts) >= _MAX_CACHED_TOPICS:
            self._definitions = raw_range.definitions
            self._lane_counts.clear()
            self._lanes.clear()
        covered = with_recipients = 0
        for kind in kinds:
            if kind not in self._lane_counts:
                self._lane_counts[kind] = self._add_to_lanes(kind, raw_range)
            lane_count = self._lane_counts[kind]
            if lane_count is None:
                return False
            covered += lane_count
            with_recipients += lane_count > 0
        return is_cheaper_by_connection(covered, len(self._lanes), with_recipients)

    def _add_to_lanes(self, kind: int, raw_range: RawEntryRange) -> int | None:
        """Add a kind of entry to the lanes that get it; return their number, None if it cannot."""
        name, origin = raw_range.topic_and_origin(kind)
        topic = self._find_topic(name)
        deliveries = () if topic is None else topic.verbatim_deliveries()
        if deliveries is None:
            return None
        for outbox, delivery in deliveries:
            lane = self._lanes.get(outbox)
            if lane is None:
                lane = self._lanes[outbox] = _Lane(delivery.outbox)
            lane.headers[kind] = logged_header(delivery, origin)
        return len(deliveries)

    def deliveries(self, entry: JournalEntry) -> tuple[Sequence[Delivery], LoggedEnvelope]:
        """Return the deliveries of a message to the subscriptions that it matches; perhaps none."""
        topic = self._find_topic(entry.topic)
        if topic is None:
            return (), LoggedEnvelope(entry)
        recipients, envelope = self._find_recipients(topic, entry)
        return [delivery for delivery, _ in recipients], envelope

    def _find_recipients(
        self, topic: ReplayTopic, entry: JournalEntry
    ) -> tuple[Sequence[Recipient], LoggedEnvelope]:
        """Return the recipients of an entry, and its envelope with the additional header keys."""
        envelope = LoggedEnvelope(entry)
        if self.entry_kinds is WITH_DELETIONS:
            if entry.kind == JournalEntryKind.SOW_DELETE:
                return self._deletion_recipients(entry.topic), envelope
            envelope.header_keys += lifetime_key(entry.expiration)
        return topic.recipients(entry.body, envelope), envelope

    def _deletion_recipients(self, name: JournalTopic) -> list[Recipient]:
        """Return the recipients of a deletion; those entitled to some records only are excluded.

        They must not learn of other records.
        """
        search_counter = SearchAllowance()
        return [
            (DeletionDelivery(subscription, name.name), (subscription,))
            for subscription in self._subscriptions
            if subscription.sends_deletions
            and (permit := self._get_permit(subscription, name, search_counter)).is_allowed
            and permit.filter is None
        ]

    def _find_topic(self, name: JournalTopic) -> ReplayTopic | None:
        try:
            return self._topics[name]
        except KeyError:
            pass
        if len(self._topics) >= _MAX_CACHED_TOPICS:
            self._topics.clear()
        search_counters = defaultdict[int, SearchAllowance](
            SearchAllowance
        )  # by number of the session
        permits = {
            subscription: self._get_permit(
                subscription, name, search_counters[subscription.subscriber.number]
            )
            for subscription in self._subscriptions
        }
        entitled = {
            subscription: permit for subscription, permit in permits.items() if permit.is_allowed
        }
        topic = self._topics[name] = self._make_topic(name, entitled) if entitled else None
        return topic

    def _make_topic(
        self, name: JournalTopic, permits: Mapping[Subscription, Permit]
    ) -> ReplayTopic:
        message_type = self._settings.message_types[name.message_type]
        topic = ReplayTopic(message_type, name.name, self._settings.functions)
        for subscription, permit in permits.items():
            topic.attach(subscription, permit)
        return topic

    def _get_permit(
        self, subscription: Subscription, topic: JournalTopic, search_counter: SearchCounter
    ) -> Permit:
        """Return the entitlement of a subscription to a topic; none if it is not for that topic.

        Entries of topics that are no longer recorded are not delivered. A subscription is ended if
        matching its topic takes too many steps.
        """
        subscriber = subscription.subscriber
        try:
            if (
                topic.message_type == subscriber.message_type
                and subscription.matches_topic(topic.name, search_counter)
                and self._topic_table.find(topic.message_type, topic.name).is_journaled
            ):
                return subscriber.get_read_permit(topic.name)
        except TooCostlyError as error:
            end_failed_subscriptions((subscription,), error)
        return _NO_PERMIT


def _send_some(
    batch: LoggedBatch, positions: Sequence[int], recipients: Sequence[Recipient]
) -> None:
    if positions:
        selected = batch if len(positions) == len(batch) else batch.pick(positions)
        _send(selected, recipients)


def _send(batch: LoggedBatch, recipients: Sequence[Recipient]) -> None:
    for delivery, subscriptions in recipients:
        try:
            deliver_batch(batch, delivery)
        except Exception as error:  # any error: the other subscriptions of the reader go on
            end_failed_subscriptions(subscriptions, error)
