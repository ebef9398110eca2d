"""Conflation of messages of topics without records: of several, the last one is sent.

Source: AMPS User Guide, Conflated Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.conflation import Conflater
    from server.topics.subscriptions.delivery.delivery import Delivery
    from server.topics.subscriptions.delivery.envelope import Envelope


class _PendingMessage:
    """A message of a topic without records; a later one replaces it.

    Timestamp and bookmark are those of the first one: they show since when the subscriber has been
    waiting, and where to resume without a gap (AMPS User Guide, Conflated Subscriptions; Conflation
    and Bookmark Subscriptions).
    """

    __slots__ = ("_bookmark", "_delivery", "_envelope", "_received_s", "body")

    def __init__(self, body: bytes, envelope: Envelope, delivery: Delivery) -> None:
        self.body = body
        self._envelope = envelope
        self._received_s, self._bookmark = envelope.received_s, envelope.bookmark
        self._delivery = delivery

    @property
    def body_bytes(self) -> int:
        """See `ConflatedMessage.body_bytes`."""
        return len(self.body)

    def merge_later(self, later: Self) -> None:
        """See `ConflatedMessage.merge_later`."""
        self.body = later.body
        self._envelope = later._envelope
        self._delivery = later._delivery

    def send(self) -> None:
        """See `ConflatedMessage.send`."""
        envelope = self._envelope.with_time_and_bookmark(self._received_s, self._bookmark)
        self._delivery.deliver((self.body,), envelope)


class ConflatedDelivery:
    """Passes messages of one topic to a subscription's conflater.

    Args:
        conflater: holds messages until their interval has passed.
        topic: the topic's name.
        select_permitted: returns the fields of a body that the subscriber may see.
        delivery: delivers released messages.
    """

    __slots__ = ("_conflater", "_delivery", "_select_permitted", "_topic")

    def __init__(
        self,
        conflater: Conflater,
        topic: str,
        select_permitted: Callable[[bytes], bytes],
        delivery: Delivery,
    ) -> None:
        self._conflater = conflater
        self._select_permitted = select_permitted
        self._topic = topic
        self._delivery = delivery

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Conflate messages; those without a conflation key are delivered at once."""
        for position, body in enumerate(bodies):
            own = envelope.for_message(position) if envelope.numbers else envelope
            key = self._conflater.conflation_key(
                self._topic, self._select_permitted(body), own.record_sow_key
            )
            if key is None:
                self._delivery.deliver((body,), own)
            else:
                self._conflater.add_message(key, _PendingMessage(body, own, self._delivery))
