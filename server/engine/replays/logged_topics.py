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
from server.topics.subscriptions.delivery.delivery import deliver_run, hand_over
from server.topics.subscriptions.delivery.logged_batch import LoggedBatch, LoggedEnvelope
from server.topics.subscriptions.limits.failures import give_up_on
from server.topics.topic import Topic

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.expressions.regex.budget import SearchCounter
    from server.storage.journal import JournalEntry, JournalTopic, RawEntryRange
    from server.topics.subscriptions.delivery.delivery import Delivery, FrameWriter, Recipient
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.subscription import Subscription

_MAX_KEPT: Final = 8_192
_NOT_FOR_IT: Final = Permit(False)


class ReplayTopic(Topic):
    """A topic fed from the log."""

    __slots__ = ()

    def _writer_for(self, subscription: Subscription) -> FrameWriter:
        """See `Topic`."""
        if subscription.conflater is not None:
            return super()._writer_for(subscription)
        outbox = subscription.outbox
        return outbox.counting_writer(outbox.traffic.bookmark)

    def deliver_batch(self, run: LoggedBatch) -> None:
        """Deliver messages to every subscription that they match. See `Topic.publish`."""
        _send(
            run,
            self._prepare() if self._unfiltered_recipients is None else self._unfiltered_recipients,
        )
        if self._filters:
            self._deliver_filtered(run)

    def _deliver_filtered(self, run: LoggedBatch) -> None:
        """Deliver filtered messages; consecutive ones for the same subscriptions go together."""
        match, context = self._filters.match, NO_CONTEXT
        self._filters.count_messages(len(run))
        together: Sequence[Recipient] = ()
        positions: list[int] = []
        for position, body in enumerate(run.bodies):
            if self._filters.needs_context:
                context = run.envelope(position).context(self.name, body)
            recipients = self._recipients_of(match(body, context))
            if not recipients:
                continue
            if recipients is not together:
                _send_some(run, positions, together)
                together, positions = recipients, []
            positions.append(position)
        _send_some(run, positions, together)


class ReplayTopics:
    """Delivers entries of the log to the subscriptions of a reader.

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

    def attach(self, subscription: Subscription) -> None:
        """Start delivering to a subscription."""
        self._subscriptions[subscription] = None
        if subscription.sends_deletions:
            self.entry_kinds = WITH_DELETIONS
        effort = SearchAllowance()
        for name, topic in list(self._topics.items()):
            permit = self._get_permit(subscription, name, effort)
            if permit.is_allowed:
                if topic is None:
                    self._topics[name] = self._make_topic(name, {subscription: permit})
                else:
                    topic.attach(subscription, permit)

    def detach(self, subscription: Subscription) -> None:
        """Stop delivering to a subscription."""
        del self._subscriptions[subscription]
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
        """Return whether any subscription wants messages of a topic."""
        topic = self._find_topic(name)
        return topic is not None and topic.has_subscriptions

    def selects_messages(self, name: JournalTopic) -> bool:
        """Return whether some messages of a topic are not wanted, or not in their original form."""
        topic = self._find_topic(name)
        return topic is not None and topic.is_selective

    def deliver_range(self, passage: RawEntryRange) -> None:
        """Deliver messages to the subscriptions that want them."""
        for run in passage.batches():
            topic = self._find_topic(run.topic)
            if topic is None:
                continue
            if not run.has_extras and (self.entry_kinds is MESSAGES or is_plain(run)):
                topic.deliver_batch(LoggedBatch(run))
                continue
            for position in range(len(run)):
                entry = run.entry_at(position)
                recipients, envelope = self._find_recipients(topic, entry)
                hand_over(recipients, (entry.body,), envelope)

    def deliveries(self, entry: JournalEntry) -> tuple[Sequence[Delivery], LoggedEnvelope]:
        """Return the deliveries of a message to the subscriptions that want it; perhaps none."""
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
        effort = SearchAllowance()
        return [
            (DeletionDelivery(one, name.name), (one,))
            for one in self._subscriptions
            if one.sends_deletions
            and (permit := self._get_permit(one, name, effort)).is_allowed
            and permit.filter is None
        ]

    def _find_topic(self, name: JournalTopic) -> ReplayTopic | None:
        try:
            return self._topics[name]
        except KeyError:
            pass
        if len(self._topics) >= _MAX_KEPT:
            self._topics.clear()
        efforts = defaultdict[int, SearchAllowance](SearchAllowance)  # by number of the session
        permits = {
            one: self._get_permit(one, name, efforts[one.subscriber.number])
            for one in self._subscriptions
        }
        wanting = {one: permit for one, permit in permits.items() if permit.is_allowed}
        topic = self._topics[name] = self._make_topic(name, wanting) if wanting else None
        return topic

    def _make_topic(
        self, name: JournalTopic, wanting: Mapping[Subscription, Permit]
    ) -> ReplayTopic:
        message_type = self._settings.message_types[name.message_type]
        topic = ReplayTopic(message_type, name.name, self._settings.functions)
        for subscription, permit in wanting.items():
            topic.attach(subscription, permit)
        return topic

    def _get_permit(
        self, subscription: Subscription, topic: JournalTopic, effort: SearchCounter
    ) -> Permit:
        """Return the entitlement of a subscription to a topic; none if it is not for that topic.

        Entries of topics that are no longer recorded are not delivered. A subscription is ended if
        matching its topic takes too many steps.
        """
        subscriber = subscription.subscriber
        try:
            if (
                topic.message_type == subscriber.message_type
                and subscription.matches_topic(topic.name, effort)
                and self._topic_table.find(topic.message_type, topic.name).is_journaled
            ):
                return subscriber.get_read_permit(topic.name)
        except TooCostlyError as error:
            give_up_on((subscription,), error)
        return _NOT_FOR_IT


def _send_some(run: LoggedBatch, positions: Sequence[int], recipients: Sequence[Recipient]) -> None:
    if positions:
        chosen = run if len(positions) == len(run) else run.pick(positions)
        _send(chosen, recipients)


def _send(run: LoggedBatch, recipients: Sequence[Recipient]) -> None:
    for delivery, subscriptions in recipients:
        try:
            deliver_run(run, delivery)
        except Exception as error:  # any error: the other subscriptions of the reader go on
            give_up_on(subscriptions, error)
