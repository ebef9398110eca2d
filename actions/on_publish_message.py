"""amps-action-on-publish-message: a message has been published.

This is a subscription from inside the server, with a filter and options like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.context import message_variables
from actions.module import ModuleProvisionError, Trigger
from server.engine.commands.errors import CommandRefusedError
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices
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

    def provision(self, services: ActionServices, action: Action) -> None:
        """Subscribe."""
        get = self.options.get
        source = (get("MessageSource") or "all").strip().lower()
        self._client = services.make_client(action.name, get("MessageType") or "")
        try:
            self._subscription = self._client.subscribe(
                get("Topic") or "", _PublishSink(action, source), get("Filter"), get("Options")
            )
        except CommandRefusedError as refusal:
            raise ModuleProvisionError(str(refusal)) from None

    def close(self) -> None:
        """Unsubscribe."""
        if self._client is not None and self._subscription is not None:
            self._client.unsubscribe(self._subscription)


class _PublishSink:
    """Takes messages for an action; see `MessageSink`.

    Args:
        action: the action.
        source: `local`, `replicated` or `all`: where the messages have been published.
    """

    def __init__(self, action: Action, source: str) -> None:
        self._action = action
        self._skipped_origin = {"local": True, "replicated": False}.get(source)

    def on_message(self, topic: str, body: bytes, envelope: Envelope) -> None:
        """Run the action for a published message."""
        if envelope.is_replicated is self._skipped_origin:
            return
        self._action.post(
            message_variables(topic, body)
            | {
                "AMPS_BOOKMARK": text_to_bytes(envelope.bookmark),
                "AMPS_TIMESTAMP": text_to_bytes(iso_timestamp(envelope.received_s)),
                "AMPS_CLIENT_NAME": text_to_bytes(envelope.client_name),
            }
        )

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Run the action for a message published to a topic with records."""
        self.on_message(topic, body, message.envelope)

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Ignore a record that does not match any more: that is no publish."""
