"""The interface of a client that subscriptions use: it takes bytes, and is charged for memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from server.topics.subscriptions.client import ClientIdentity

if TYPE_CHECKING:
    from server.topics.subscriptions.delivery.envelope import Envelope


class DeliveryWatcher(Protocol):
    """Callback for messages that have been delivered to a client."""

    def __call__(
        self, client: ClientIdentity, topic: str, bodies: Sequence[bytes], envelope: Envelope, /
    ) -> None:
        """Process delivered messages.

        Args:
            client: the recipient.
            topic: the topic's name.
            bodies: the messages, as they were published.
            envelope: their common properties.
        """
