"""amps-action-do-increment-counter: adds one to a counter of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step
from actions.options import required

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoIncrementCounter(Step):
    """Adds one to a counter that begins at 0 when the instance starts."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._key = required(options, "Key")
        self._variable = options.get("Value") or ""

    async def run(self, context: ActionContext) -> None:
        """Count."""
        key = self._key.expand_text(context)
        self.services.counters[key] += 1
        context[self._variable] = b"%d" % self.services.counters[key]
