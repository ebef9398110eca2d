"""Delivery of messages of several topics to the subscribers of all of them, in their order.

The topic of a message is given by its key, an index in a list of topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from amperage.wire.frame_slices import HeaderParts, framed_by_key
from server.topics.subscriptions.delivery.delivery import is_cheaper_by_connection

if TYPE_CHECKING:
    from server.topics.sow_topic import SowTopic
    from server.topics.subscriptions.delivery.delivery import DirectDelivery, FrameWriter
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.presentation import Presentation
    from server.topics.subscriptions.delivery.record_delivery import OutboxRecordFramer
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.topic import Topic

PlainDeliveries: TypeAlias = "Sequence[DirectDelivery] | Sequence[OutboxRecordFramer]"


NO_TOPIC: Final = -1
"""The key of a message without recipients."""


class InterleavedDelivery:
    """Delivers messages of several topics to their subscribers.

    Connections that get every message of a topic get those of all topics in one write, those that
    have become records, too. Select lists are applied to all messages of a connection before that.
    The parts of headers are prepared for each connection and topic. They are valid as long as a
    topic has the same deliveries, of which it makes a new list when subscriptions change.

    Subscriptions by regular expressions give many topics the same subscriptions with filters. These
    are decided once for the messages of all of them.
    """

    def __init__(self) -> None:
        self._topics: Sequence[Topic | SowTopic] = ()  # those that the keys are of
        self._deliveries: dict[int, PlainDeliveries] = {}  # by key
        self._filtered: dict[int, Sequence[Subscription] | None] = {}  # likewise, with filters
        self._parts: dict[FrameWriter, HeaderParts] = {}  # by connection
        self._forms: dict[FrameWriter, dict[int, Presentation]] = {}  # if bodies change, by key
        self._header_keys = b""  # the keys that envelopes add to headers

    def deliver(
        self,
        topics: Sequence[Topic],
        distinct_keys: Sequence[int],
        keys: Sequence[int],
        bodies: Sequence[bytes],
        envelope: Envelope,
    ) -> None:
        """Deliver messages that are no records to every subscription that they match.

        Args:
            topics: the topics, by key; a list that is another one after any change.
            distinct_keys: the keys of the messages to deliver, each once.
            keys: the key of each message; those with another key are left out.
            bodies: the messages.
            envelope: the publisher's metadata of the messages.
        """
        if self.prepare(topics, distinct_keys, envelope):
            self.deliver_prepared(distinct_keys, keys, bodies, [], envelope)
        else:
            wanted = frozenset(distinct_keys)
            for row, key in enumerate(keys):
                if key in wanted:
                    own = envelope.for_message(row) if envelope.numbers else envelope
                    topics[key].deliver((bodies[row],), own)

    def prepare(
        self, topics: Sequence[Topic | SowTopic], distinct_keys: Sequence[int], envelope: Envelope
    ) -> bool:
        """Prepare for messages of some topics; return whether they can be delivered together."""
        if topics is not self._topics or envelope.header_keys != self._header_keys:
            self._deliveries.clear()
            self._filtered.clear()
            self._parts.clear()
            self._forms.clear()
            self._topics, self._header_keys = topics, envelope.header_keys
        return self._prepare(topics, distinct_keys)

    def deliver_prepared(
        self,
        distinct_keys: Sequence[int],
        keys: Sequence[int],
        bodies: Sequence[bytes],
        sow_keys: Sequence[int],
        envelope: Envelope,
    ) -> None:
        """Deliver messages together, after `prepare`; see `deliver`.

        Args:
            distinct_keys: the keys of the messages to deliver, each once.
            keys: the key of each message; those with another key are left out.
            bodies: the messages.
            sow_keys: the SOW keys of those that are records; empty if none is one.
            envelope: the publisher's metadata of the messages.
        """
        timestamp = envelope.timestamp_key
        publisher, numbers = envelope.bookmark_publisher, envelope.numbers
        wanted_keys = self._without_others(distinct_keys, keys)
        for outbox, parts in self._parts.items():
            forms = self._forms.get(outbox)
            presented = _present_bodies(forms, keys, bodies) if forms else bodies
            frames, count = framed_by_key(
                presented, wanted_keys, parts, sow_keys, timestamp, publisher, numbers
            )
            if count:
                outbox.write_batch(frames, count)
        filtered_keys = [key for key in distinct_keys if self._filtered[key]]
        if filtered_keys:
            topics = cast("Sequence[Topic]", self._topics)  # topics with records have no filters
            self._deliver_filtered(topics, frozenset(filtered_keys), keys, bodies, envelope)

    def _without_others(self, distinct_keys: Sequence[int], keys: Sequence[int]) -> Sequence[int]:
        """Return the keys of messages, without topics that are prepared and not to be delivered.

        Their subscriptions may have changed since.
        """
        others = {key for key, deliveries in self._deliveries.items() if deliveries}
        others.difference_update(distinct_keys)
        if not others or others.isdisjoint(keys):
            return keys
        return [NO_TOPIC if key in others else key for key in keys]

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
        # Topics with subscriptions that need bookmarks are not among these:
        common = envelope.recorded_part(0, 0, 0, ())
        own_topics[0].deliver_filtered(bodies, common, own_topics)

    def _prepare(self, topics: Sequence[Topic | SowTopic], distinct_keys: Sequence[int]) -> bool:
        shared: Sequence[Subscription] = ()  # those with filters, of all topics that have any
        covered = with_recipients = 0
        for key in distinct_keys:
            deliveries = topics[key].plain_deliveries()
            if deliveries is None:
                return False
            if deliveries is not self._deliveries.get(key):
                self._replace(key, deliveries)
                self._filtered[key] = topics[key].filtered_subscriptions()
            covered += len(deliveries)
            with_recipients += bool(deliveries)
            filtered = self._filtered[key]
            if filtered is None:
                return False
            if filtered and filtered is not shared:
                if shared and filtered != shared:
                    return False
                shared = self._filtered[key] = shared or filtered
        # Connections get their messages without filters first:
        if any(subscription.outbox in self._parts for subscription in shared):
            return False
        return is_cheaper_by_connection(covered, len(self._parts), with_recipients)

    def _replace(self, key: int, deliveries: PlainDeliveries) -> None:
        """Replace the deliveries of messages with a key."""
        for delivery in self._deliveries.get(key, ()):
            parts = self._parts[delivery.outbox]
            parts.discard(key)
            self._forms.get(delivery.outbox, {}).pop(key, None)
            if not len(parts):
                del self._parts[delivery.outbox]
                self._forms.pop(delivery.outbox, None)
        for delivery in deliveries:
            parts = self._parts.setdefault(delivery.outbox, HeaderParts())
            presentation = delivery.presentation
            if presentation.changes_bodies:
                self._forms.setdefault(delivery.outbox, {})[key] = presentation
            parts.set(
                key,
                delivery.header_start,
                self._header_keys,
                delivery.header_end,
                has_sow_key=delivery.has_sow_key,
                has_timestamp=presentation.has_timestamp,
                has_bookmark=presentation.has_bookmark,
            )
        self._deliveries[key] = deliveries


def _present_bodies(
    forms: Mapping[int, Presentation], keys: Sequence[int], bodies: Sequence[bytes]
) -> list[bytes]:
    """Return bodies in the form in which a connection gets the messages with their keys."""
    rows_by_form: dict[int, list[int]] = {}
    by_id: dict[int, Presentation] = {}
    for row, key in enumerate(keys):
        form = forms.get(key)
        if form is not None:
            by_id[id(form)] = form
            rows_by_form.setdefault(id(form), []).append(row)
    presented = [*bodies]
    for number, rows in rows_by_form.items():
        selected = by_id[number].present_bodies([presented[row] for row in rows])
        for row, body in zip(rows, selected, strict=True):
            presented[row] = body
    return presented
