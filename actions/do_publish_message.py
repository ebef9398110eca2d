"""amps-action-do-publish-message: publishes a message, as a client inside the server.

Source: AMPS User Guide, Publish Message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.internal_clients import body_of, client_of
from actions.module import Step, StepError
from actions.options import quantity, required
from config_schema.units import parse_bool
from server.engine.commands.errors import CommandRefusedError

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions


class DoPublishMessage(Step):
    """Publishes a message."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._topic = required(options, "Topic")
        self._delta = required(options, "Delta")
        self._update_only = required(options, "UpdateOnly")

    def provision(self, services: ActionServices) -> None:
        """Create the client, and prepare the message."""
        self._client = client_of(services, self.options, "amps-action-do-publish-message")
        super().provision(services)
        self._data = body_of(services, self.options, "Data")

    async def run(self, context: ActionContext) -> None:
        """Publish.

        Raises:
            StepError: the topic cannot be published to, or has no record to be updated.
        """
        is_delta = quantity("Delta", self._delta, context, parse_bool)
        update_only = quantity("UpdateOnly", self._update_only, context, parse_bool)
        topic, body = self._topic.expand_text(context), self._data.expand(context)
        if is_delta and update_only and not self._client.has_record_for(topic, body):
            raise StepError(f"topic {topic!r} has no record that this would update")
        self.services.current_run = context
        try:
            self._client.publish(topic, body, "delta_publish" if is_delta else "publish")
        except CommandRefusedError as refusal:
            raise StepError(str(refusal)) from None
        finally:
            self.services.current_run = None
