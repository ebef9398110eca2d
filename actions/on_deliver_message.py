"""amps-action-on-deliver-message: a client has been sent a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.context import message_variables
from actions.module import Trigger
from actions.subscription_triggers import watched_topics
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actions.action import Action
    from actions.services import ActionServices
    from server.topics.subscriptions.client import ClientIdentity
    from server.topics.subscriptions.delivery.envelope import Envelope


class OnDeliverMessage(Trigger):
    """Runs for each message that a client is sent: once per client, for all its subscriptions."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Watch deliveries."""

        def watch(
            client: ClientIdentity, topic: str, bodies: Sequence[bytes], envelope: Envelope
        ) -> None:
            common = {
                "AMPS_BOOKMARK": text_to_bytes(envelope.bookmark),
                "AMPS_CLIENT_NAME": text_to_bytes(client.client_name),
                "AMPS_CORRELATION_ID": text_to_bytes(envelope.correlation_id or ""),
            }
            for body in bodies:
                action.post(message_variables(topic, body) | common)

        services.engine.hooks.watch_deliveries(
            self.options.get("MessageType") or "",
            watched_topics(self.options, services),
            watch,
        )
