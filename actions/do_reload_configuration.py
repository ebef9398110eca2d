"""amps-action-do-reload-configuration: the configuration file is read again. Not in AMPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step, StepError

if TYPE_CHECKING:
    from actions.context import ActionContext


class DoReloadConfiguration(Step):
    """Applies all differences of the configuration file, or none."""

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Reload the configuration.

        Raises:
            StepError: it cannot be used, or a difference needs a restart.
        """
        if self.services.reload_configuration is None:
            raise StepError("the instance is still starting")
        await self.services.reload_configuration()
