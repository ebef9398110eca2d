"""The interface of a client that subscriptions use: it takes bytes, and is charged for memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from server.topics.subscriptions.client import ClientIdentity

if TYPE_CHECKING:
    from server.security.permissions import Permit
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.outbox import Outbox
    from server.util.log_protocol import ServerLog


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


class Subscriber(ClientIdentity, Protocol):
    """A client that subscribes."""

    @property
    def outbox(self) -> Outbox:
        """Its output buffer."""

    @property
    def log(self) -> ServerLog:
        """The log for events of its subscriptions."""

    @property
    def is_open(self) -> bool:
        """True if it is still served."""

    def is_behind(self) -> bool:
        """Return True if it has not read everything yet."""

    def hold(self, size: int, /) -> None:
        """Charge bytes that are kept in memory to this client.

        Args:
            size: bytes, negative to release.
        """

    def permit_to_read(self, topic: str) -> Permit:
        """Return its user's permit for reading a topic; a refusal is counted."""

    def delivery_watchers(self, topic: str) -> Sequence[DeliveryWatcher]:
        """Return the callbacks for messages of a topic that are delivered to it."""

    def subscription_failed(self, sub_id: str, topic: str, error: Exception) -> None:
        """Report a failure on behalf of one of its subscriptions.

        Args:
            sub_id: the subscription's id.
            topic: its topics, as the client named them.
            error: the failure.
        """
