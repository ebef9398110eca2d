"""amps-action-on-publish-message: a message has been published.

This is a subscription from inside the server, with a filter and options like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.messages import message_variables
from actions.module import ProvisionFailed, Trigger
from server.engine.commands.errors import CommandRefused
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.util.encoding import to_octets

if TYPE_CHECKING:
    from actions.services import Runnable, Services
    from config_schema.spec import Options
    from server.engine.internal_client import InternalClient
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage
    from server.topics.subscriptions.subscription import Subscription


class OnPublishMessage(Trigger):
    """Runs for each message published to a topic, here or at another instance."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._client: InternalClient | None = None
        self._subscription: Subscription | None = None

    def provision(self, services: Services, action: Runnable) -> None:
        """Subscribe."""
        get = self.options.get
        source = (get("MessageSource") or "all").strip().lower()
        self._client = services.client(action.title, get("MessageType") or "")
        try:
            self._subscription = self._client.subscribe(
                get("Topic") or "", _Publishes(action, source), get("Filter"), get("Options")
            )
        except CommandRefused as refusal:
            raise ProvisionFailed(str(refusal)) from None

    def close(self) -> None:
        """Unsubscribe."""
        if self._client is not None and self._subscription is not None:
            self._client.unsubscribe(self._subscription)


class _Publishes:
    """Takes messages for an action; see `Sink`.

    Args:
        action: the action.
        source: `local`, `replicated` or `all`: where the messages have been published.
    """

    def __init__(self, action: Runnable, source: str) -> None:
        self._action = action
        self._passes_over = {"local": True, "replicated": False}.get(source)

    def take(self, topic: str, body: bytes, envelope: Envelope) -> None:
        """Run the action for a published message."""
        if envelope.is_replicated is self._passes_over:
            return
        self._action.post(
            message_variables(topic, body)
            | {
                "AMPS_BOOKMARK": to_octets(envelope.bookmark),
                "AMPS_TIMESTAMP": to_octets(iso_timestamp(envelope.received)),
                "AMPS_CLIENT_NAME": to_octets(envelope.client_name),
            }
        )

    def take_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run the action for a message published to a topic with records."""
        self.take(topic, body, message.envelope)

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Ignore a record that does not match any more: that is no publish."""
