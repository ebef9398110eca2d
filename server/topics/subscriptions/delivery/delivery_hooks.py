"""Deliveries with callbacks inside the server.

They replace plain ones when the deliveries of a watched topic are prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from server.topics.subscriptions.client import ClientIdentity
from server.topics.subscriptions.delivery.envelope import Envelope

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.topics.subscriptions.delivery.delivery import Delivery
    from server.topics.subscriptions.delivery.record_delivery import RecordFramer, RecordMessage

DeliveryWatcher = Callable[[ClientIdentity, str, Sequence[bytes], Envelope], None]
"""Processes delivered messages.

It gets the recipient, the topic's name, the bodies of the messages as they were published, and
their common properties.
"""


class WatchedDelivery:
    """A delivery that notifies watchers.

    Args:
        delivery: delivers the messages.
        watchers: called after each delivery.
        client: the recipient of the messages.
        topic: the topic's name.
    """

    __slots__ = ("_client", "_delivery", "_topic", "_watchers")

    def __init__(
        self,
        delivery: Delivery,
        watchers: Sequence[DeliveryWatcher],
        client: Session,
        topic: str,
    ) -> None:
        self._delivery = delivery
        self._watchers = watchers
        self._client = client
        self._topic = topic

    def deliver(self, bodies: Sequence[bytes], envelope: Envelope) -> None:
        """Deliver messages, and notify the watchers."""
        self._delivery.deliver(bodies, envelope)
        if self._client.is_open:
            for watcher in self._watchers:
                watcher(self._client, self._topic, bodies, envelope)


class WatchedFramer:
    """A framer of messages about records that notifies watchers.

    Args:
        framer: sends the messages.
        watchers: called after each message.
        client: the recipient of the messages.
        topic: the topic's name.
    """

    __slots__ = ("_client", "_framer", "_topic", "_watchers", "presentation")

    def __init__(
        self,
        framer: RecordFramer,
        watchers: Sequence[DeliveryWatcher],
        client: Session,
        topic: str,
    ) -> None:
        self.presentation = framer.presentation
        self._framer = framer
        self._watchers = watchers
        self._client = client
        self._topic = topic

    def write(
        self, message: RecordMessage, body: bytes, received_envelope: Envelope | None = None
    ) -> None:
        """Send a message, and notify the watchers."""
        self._framer.write(message, body, received_envelope)
        if self._client.is_open:
            for watcher in self._watchers:
                watcher(self._client, self._topic, (body,), message.envelope)
