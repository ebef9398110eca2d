"""amps-action-on-publish-message: a message has been published.

This is a subscription from inside the server, with a filter and options like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.context import to_bytes
from actions.messages import message_variables
from actions.module import ProvisionFailed, Trigger
from server.commands.refusal import CommandRefused
from server.internal_client import InternalClient
from server.subscriptions.envelope import iso_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actions.module import Runnable
    from actions.services import Services
    from config_schema.spec import Options
    from server.subscriptions.envelope import Envelope
    from server.subscriptions.subscription import Subscription


class OnPublishMessage(Trigger):
    """Runs for each message published to a topic.

    Messages from other instances do not exist yet, so that MessageSource `replicated` stands for
    none at all.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._client: InternalClient | None = None
        self._subscription: Subscription | None = None

    def provision(self, services: Services, action: Runnable) -> None:
        """Subscribe."""
        if (self.options.get("MessageSource") or "all").strip().lower() == "replicated":
            return

        def take(topic: str, bodies: Sequence[bytes], envelope: Envelope) -> None:
            common = {
                "AMPS_BOOKMARK": b"",
                "AMPS_TIMESTAMP": to_bytes(iso_timestamp(envelope.received)),
                "AMPS_CLIENT_NAME": to_bytes(envelope.client_name),
            }
            for body in bodies:
                action.post(message_variables(topic, body) | common)

        get = self.options.get
        self._client = InternalClient(services.engine, action.title, get("MessageType") or "")
        try:
            self._subscription = self._client.subscribe(
                get("Topic") or "", take, get("Filter"), get("Options")
            )
        except CommandRefused as refusal:
            raise ProvisionFailed(str(refusal)) from None

    def close(self) -> None:
        """Unsubscribe."""
        if self._client is not None and self._subscription is not None:
            self._client.unsubscribe(self._subscription)
