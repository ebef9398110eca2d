"""amps-action-do-publish-message: publishes a message, as a client inside the server.

Source: AMPS User Guide, Publish Message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import ProvisionFailed, Step, StepFailed
from actions.options import quantity, required
from config_schema.units import parse_bool
from server.commands.refusal import CommandRefused
from server.internal_client import InternalClient

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services
    from config_schema.spec import Options


class DoPublishMessage(Step):
    """Publishes a message.

    UpdateOnly concerns topics that keep records, of which there are none yet.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._topic = required(options, "Topic")
        self._data = required(options, "Data")
        self._delta = required(options, "Delta")

    def provision(self, services: Services) -> None:
        """Become a client."""
        message_type = self.options.get("MessageType") or ""
        if message_type not in services.engine.settings.message_types:
            raise ProvisionFailed(f"there is no message type {message_type!r}")
        self._client = InternalClient(
            services.engine, "amps-action-do-publish-message", message_type
        )
        self._services = services

    async def run(self, context: Context) -> None:
        """Publish.

        Raises:
            StepFailed: the topic cannot be published to.
        """
        command = "publish"
        if self.options.get("Delta") and quantity("Delta", self._delta, context, parse_bool):
            command = "delta_publish"
        topic, body = self._topic.expand_text(context), self._data.expand(context)
        self._services.running = context
        try:
            self._client.publish(topic, body, command)
        except CommandRefused as refusal:
            raise StepFailed(str(refusal)) from None
        finally:
            self._services.running = None
