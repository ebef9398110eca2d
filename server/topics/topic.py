"""An ad hoc topic: delivers messages to its current subscribers, and stores nothing.

Deliveries are prepared. Connections whose subscriptions have no filter get every message, so their
deliveries are known as long as subscriptions do not change. The others depend on the set of filters
that a message matches; the deliveries for such sets are cached between messages. With very many
filters of one subscription each, there are more sets than can be cached, most of them of a single
filter. A message for one such subscription without special options is therefore framed with its
subscription id directly, and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from amperage.wire.frame_slices import framed_for, framed_for_each
from amperage.wire.header import is_plain_text
from server.expressions.message_context import NO_CONTEXT
from server.topics.subscriptions.delivery.conflated_delivery import ConflatedDelivery
from server.topics.subscriptions.delivery.delivery import (
    Delivery,
    DirectDelivery,
    Recipient,
    deliver_to_all,
    header_start,
)
from server.topics.subscriptions.delivery.delivery_cache import DeliveryCache
from server.topics.subscriptions.delivery.delivery_hooks import WatchedDelivery
from server.topics.subscriptions.delivery.envelope import Envelope
from server.topics.subscriptions.delivery.presentation import Presentation
from server.topics.subscriptions.delivery.sink import SinkDelivery
from server.topics.subscriptions.limits.failures import end_failed_subscriptions
from server.topics.subscriptions.matching.equality_lookup import (
    MAX_LOOKUP_BATCH_SIZE,
    EqualityLookup,
)
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.message_refusal import MessageRefusal
from server.topics.subscriptions.subscriber_set import SubscriberSet
from server.topics.subscriptions.subscription import Subscription

if TYPE_CHECKING:
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.storage.sow.store import StoreCallback
    from server.topics.subscriptions.delivery.delivery import FrameWriter
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.topics.subscriptions.matching.vectorized import BatchMatcher

NULL_TOPIC: Final = "/AMPS/devnull"
"""The topic that accepts all messages and delivers none."""

_MIN_RUN: Final = 4
"""Minimum size of a batch for which filters are decided together."""

_MAX_SHARED_SUBSCRIPTIONS: Final = 256
"""The most subscriptions of topics that are decided together: they are compared."""

RESERVED_TOPICS: Final = "/AMPS"
"""Name prefix of the topics that the server publishes to."""


def is_reserved(name: str) -> bool:
    """Return whether only the server may publish to a topic."""
    return name.startswith(RESERVED_TOPICS) and name != NULL_TOPIC


@mypyc_attr(allow_interpreted_subclasses=True)
class Topic(SubscriberSet):
    """One topic of one message type, with no state except its subscriptions.

    Args:
        message_type: the type that it is scoped to.
        name: its name.
        functions: the functions that filters may call.
    """

    is_persistent = False
    """True if messages go to stable storage."""
    accepts_slices = True
    """True if bodies may be slices of the bytes read from a client, which are not retained."""
    is_journaled = False
    """True if messages are in the transaction log."""

    def __init__(self, message_type: MessageType, name: str, functions: Functions) -> None:
        super().__init__(message_type, name, functions)
        self._unfiltered_recipients: (
            list[Recipient] | None
        ) = []  # None when subscriptions have changed
        self._plain_deliveries: list[DirectDelivery] | None = []  # the same, see below
        self._delivery_cache = DeliveryCache[tuple[Filter, ...], Recipient]()
        # unfiltered subscriptions on connections that also have a filter here, with their numbers
        self._mixed_unfiltered: dict[Subscription, int] = {}
        self._header_start: Final = header_start(name)

    def _invalidate_deliveries(self) -> None:
        self._unfiltered_recipients = None

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:
        """Publish messages.

        Args:
            bodies: the bodies of one or more messages, in order.
            envelope: the metadata that they share.

        Returns:
            The messages that were not published; none here.
        """
        self.deliver(bodies, envelope)
        return ()

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Deliver messages to every subscription that they match. See `publish`."""
        unfiltered_recipients = self._unfiltered_recipients
        if unfiltered_recipients is None:
            unfiltered_recipients = self._prepare()
        _hand_over_in_order(unfiltered_recipients, bodies, envelope)
        if self._filters:
            self.deliver_filtered(bodies, envelope)

    def plain_deliveries(self) -> Sequence[DirectDelivery] | None:
        """Return the deliveries of every message, if they frame verbatim or selected bodies.

        Returns:
            Those to connections without a filter, in a list that is another one when subscriptions
            have changed; None if a delivery has to see each message, or a connection has several.
        """
        if self._unfiltered_recipients is None:
            self._prepare()
        return self._plain_deliveries

    def filtered_subscriptions(self) -> Sequence[Subscription] | None:
        """Return the subscriptions whose filters decide about messages, after `plain_deliveries`.

        Returns:
            Topics with the same ones can be decided together, see `deliver_filtered`; None if the
            topic has to be decided by itself.
        """
        if not self._filters:
            return ()
        subscriptions = self._subscriptions
        if (
            self._mixed_unfiltered
            or self._filters.needs_context
            or len(subscriptions) > _MAX_SHARED_SUBSCRIPTIONS
        ):
            return None
        filtered = tuple(one for one, filter_ in subscriptions.items() if filter_ is not None)
        is_watched = any(one.subscriber.delivery_watchers(self.name) for one in filtered)
        return None if is_watched else filtered

    @property
    def accepts_metadata(self) -> bool:
        """True if messages of a batch may have correlation ids, SOW keys and lifetimes."""
        return False

    def recipients(self, body: bytes, envelope: Envelope) -> Sequence[Recipient]:
        """Return the recipients of a message, as `publish` finds them."""
        unfiltered_recipients = self._unfiltered_recipients
        if unfiltered_recipients is None:
            unfiltered_recipients = self._prepare()
        if not self._filters:
            return unfiltered_recipients
        context = NO_CONTEXT
        if self._filters.needs_context:
            context = envelope.context(self.name, body)
        self._filters.count_messages(1)
        return [*unfiltered_recipients, *self._recipients_of(self._filters.match(body, context))]

    def when_settled(self, then: StoreCallback) -> None:
        """Call back at once: nothing has to be stored."""
        then(None)

    def deliver_filtered(
        self, bodies: Sequence[bytes], envelope: Envelope, topics: Sequence[Topic] = ()
    ) -> None:
        """Deliver messages to the subscriptions with matching filters.

        Args:
            bodies: the messages.
            envelope: the publisher's metadata of the messages.
            topics: the topic of each, if they are of several, with the same
                `filtered_subscriptions` as this one.
        """
        filters = self._filters
        filters.count_messages(len(bodies))
        if len(bodies) < _MIN_RUN:
            self._match_each(bodies, envelope, topics)
            return
        start = 0
        while start < len(bodies):
            matcher = filters.batch_matcher(len(bodies) - start)
            if matcher is not None:
                start = self._deliver_together(matcher, bodies, start, envelope, topics)
                continue
            finder = None if self._mixed_unfiltered else filters.equality_lookup()
            if finder is not None and self._unfiltered_recipients is not None:
                start = self._deliver_looked_up(finder, bodies, start, envelope, topics)
                continue
            # A message may need more than matching, or change the filter set.
            end = start + 1 if filters.needs_maintenance else len(bodies)
            if topics and end == start + 1:
                filters.match(bodies[start])  # the maintenance; the message's own topic delivers it
            self._match_each(bodies[start:end], envelope, topics[start:end])
            start = end

    def _deliver_together(
        self,
        matcher: BatchMatcher,
        bodies: Sequence[bytes],
        start: int,
        envelope: Envelope,
        topics: Sequence[Topic],
    ) -> int:
        """Deliver messages from a position on, deciding their filters together.

        Returns:
            The position reached: the end, unless the filters have changed.
        """
        done = start
        for begin, end, matched in matcher.decide(bodies[start:]):
            self._deliver_matched(bodies[done : start + begin], (), envelope)
            done = start + end
            some = bodies[start + begin : done]
            if matched is None or topics:
                self._match_each(some, envelope, topics[start + begin : done])
            else:
                self._deliver_matched(some, matched, envelope)
            if not self._filters.is_matcher_current(matcher):
                return done
        self._deliver_matched(bodies[done:], (), envelope)
        return len(bodies)

    def _deliver_looked_up(
        self,
        finder: EqualityLookup,
        bodies: Sequence[bytes],
        start: int,
        envelope: Envelope,
        topics: Sequence[Topic],
    ) -> int:
        """Deliver messages from a position on, looking up their filters together by value.

        There are no other recipients.

        Returns:
            The position reached: at most `MAX_LOOKUP_BATCH_SIZE` further, less if the subscriptions
            have changed.
        """
        some = bodies[start : start + MAX_LOOKUP_BATCH_SIZE]
        found = finder.find(some)
        sub_ids = [
            one.sub_id if isinstance(one, Filter) and one.writer is not None else None
            for one in found
        ]
        own_topics = topics[start : start + len(some)]
        lefts = [topic._header_start for topic in own_topics] or [self._header_start] * len(some)  # noqa: SLF001 - of the same class
        frames = framed_for_each(sub_ids, some, lefts, envelope.header_keys)
        for index, one in enumerate(found):
            frame = frames[index]
            if frame is not None and isinstance(one, Filter) and one.writer is not None:
                one.writer.write(frame)
                continue
            if one is None:
                continue
            self._match_each((some[index],), envelope, own_topics[index : index + 1])
            if self._unfiltered_recipients is None or not self._filters.is_lookup_current(finder):
                return start + index + 1
        return start + len(found)

    def _deliver_matched(
        self, bodies: Sequence[bytes], matched: tuple[Filter, ...], envelope: Envelope
    ) -> None:
        """Deliver messages that all match the same filters."""
        if bodies:
            _hand_over_in_order(self._recipients_of(matched), bodies, envelope)

    def _match_each(
        self, bodies: Sequence[bytes], envelope: Envelope, topics: Sequence[Topic] = ()
    ) -> None:
        """Deliver messages, deciding filters one by one; see `deliver_filtered`."""
        if topics:
            for topic, body in zip(topics, bodies, strict=True):
                topic.deliver_filtered((body,), envelope)
            return
        match, prepared = self._filters.match, self._delivery_cache.get
        needs_context = self._filters.needs_context
        context = NO_CONTEXT
        for body in bodies:
            if needs_context:
                context = envelope.context(self.name, body)
            matched = match(body, context)
            is_for_one = len(matched) == 1 and not self._mixed_unfiltered
            if is_for_one and self._try_send_directly(matched[0], body, envelope):
                continue
            recipients = prepared(matched)
            if recipients is None:
                recipients = self._recipients_of(matched)
            for delivery, subscriptions in recipients:  # `deliver_to_all`, inlined for speed
                try:
                    delivery.deliver((body,), envelope)
                except Exception as error:  # of any kind: the publisher must not be affected
                    end_failed_subscriptions(subscriptions, error)

    def _try_send_directly(self, filter_: Filter, body: bytes, envelope: Envelope) -> bool:
        """Send a message to a filter's only user if it needs just an id; return whether it was."""
        if filter_.writer is None:
            return False
        filter_.writer.write(
            framed_for(filter_.sub_id, body, self._header_start, envelope.header_keys)
        )
        return True

    def _recipients_of(self, matched: tuple[Filter, ...]) -> Sequence[Recipient]:
        """Return the users of some filters, and unfiltered subscriptions on their connections."""
        recipients = self._delivery_cache.get(matched)
        if recipients is None:
            found = self._merge_subscriptions(self._mixed_unfiltered, matched)
            recipients = self._delivery_cache.store(matched, self._group_recipients(found))
        return recipients

    def _prepare(self) -> list[Recipient]:
        alone, self._mixed_unfiltered = self._split_unfiltered()
        self._delivery_cache.clear()
        recipients = self._unfiltered_recipients = self._group_recipients(alone)
        plain = [
            one
            for one, _ in recipients
            if isinstance(one, DirectDelivery) and one.presentation.never_raises
        ]
        is_plain = len(plain) == len(recipients) and _are_apart(recipients)
        self._plain_deliveries = plain if is_plain else None
        return recipients

    def _group_recipients(self, subscriptions: Iterable[Subscription]) -> list[Recipient]:
        """Group subscriptions that can share a delivery: equal in connection and presentation."""
        conflated: list[Recipient] = []
        groups: dict[tuple[Outbox, Presentation], list[Subscription]] = {}
        for subscription in subscriptions:
            if subscription.conflater is not None:
                delivery = self._delivery_for([subscription])
                select_permitted = subscription.presentation.select_permitted
                held = ConflatedDelivery(
                    subscription.conflater, self.name, select_permitted, delivery
                )
                conflated.append((held, [subscription]))
            else:
                key = subscription.outbox, subscription.presentation
                groups.setdefault(key, []).append(subscription)
        return [(self._delivery_for(group), group) for group in groups.values()] + conflated

    def _delivery_for(self, group: Sequence[Subscription]) -> Delivery:
        first, subscriber = group[0], group[0].subscriber
        if first.sink is not None:
            counted = first.outbox.traffic.internal
            return SinkDelivery(first.sink, self.name, first.presentation, counted)
        sub_ids = [subscription.sub_id for subscription in group]
        outbox = self._writer_for(first)
        delivery: Delivery = DirectDelivery(outbox, self.name, sub_ids, first.presentation)
        if watchers := subscriber.delivery_watchers(self.name):
            delivery = WatchedDelivery(delivery, watchers, subscriber, self.name)
        return delivery

    def _plain_writer(self, subscription: Subscription) -> Outbox | None:
        """See `SubscriberSet`."""
        presentation = subscription.presentation
        is_plain = (
            subscription.conflater is None
            and subscription.sink is None
            and presentation.has_sub_ids
            and not presentation.has_optional_keys
            and not presentation.changes_bodies
            and not subscription.subscriber.delivery_watchers(self.name)
            and is_plain_text(subscription.sub_id)
        )
        return subscription.outbox if is_plain else None

    def _writer_for(self, subscription: Subscription) -> FrameWriter:
        """Return the writer that sends and counts the messages of a subscription."""
        outbox = subscription.outbox
        if subscription.conflater is not None:
            return outbox.counting_writer(outbox.traffic.detached)
        return outbox


def _hand_over_in_order(
    recipients: Sequence[Recipient], bodies: Sequence[bytes], envelope: Envelope
) -> None:
    """Deliver messages so that each connection gets them in order, in all presentations."""
    if len(bodies) == 1 or _are_apart(recipients):
        deliver_to_all(recipients, bodies, envelope)
    else:
        for position, body in enumerate(bodies):
            own = envelope.for_message(position) if envelope.numbers else envelope
            deliver_to_all(recipients, (body,), own)


def _are_apart(recipients: Sequence[Recipient]) -> bool:
    """Return whether all recipients have separate connections, so that each can take a batch."""
    if len(recipients) < 2:
        return True
    numbers = {subscriptions[0].subscriber.number for _, subscriptions in recipients}
    return len(numbers) == len(recipients)


class NullTopic(Topic):
    """The topic `NULL_TOPIC`: it delivers and records nothing."""

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:  # noqa: ARG002 - all are dropped
        """Drop messages."""
        return ()
