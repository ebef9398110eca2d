"""amps-action-do-echo-message: writes a line to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step
from actions.options import required

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoEchoMessage(Step):
    """Writes a line to the log."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._message = required(options, "Message")

    async def run(self, context: ActionContext) -> None:
        """Write it."""
        self.services.engine.log.emit("29-0103", text=self._message.expand(context))
