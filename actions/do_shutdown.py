"""amps-action-do-shutdown: stops the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices


class DoShutdown(Step):
    """Stops the instance, cleanly."""

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the stop callback."""
        self._stop = services.stop_instance

    async def run(self, context: ActionContext) -> None:
        """Ask the instance to stop; the steps after this one still run."""
        self._stop(context.cause)
