"""Steps that set whether a queue acts for owners that are out of reach.

They are amps-action-do-enable-proxied-transfer and amps-action-do-disable-proxied-transfer.

Source: AMPS User Guide, Manage Queue Transfers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step, StepError
from actions.options import required

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class ChangeProxiedTransfer(Step):
    """Sets proxied transfer for one queue, until it is set otherwise or the instance ends.

    Args:
        options: the options.
        enabled: the new setting.
    """

    def __init__(self, options: StepOptions, *, enabled: bool) -> None:
        super().__init__(options)
        self._enabled = enabled
        self._topic = required(options, "Topic")
        self._message_type = required(options, "MessageType")

    async def run(self, context: ActionContext) -> None:
        """Set it.

        Raises:
            StepError: there is no such queue.
        """
        name, message_type = (
            self._topic.expand_text(context),
            self._message_type.expand_text(context),
        )
        queues = self.services.engine.topics.queues
        queue = None if queues is None else queues.find(message_type, name)
        if queue is None:
            raise StepError(f"there is no queue {name!r} of type {message_type}")
        queue.shared_queue.set_proxied(self._enabled)
