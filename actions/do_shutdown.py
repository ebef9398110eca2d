"""amps-action-do-shutdown: stops the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services


class DoShutdown(Step):
    """Stops the instance, cleanly."""

    def provision(self, services: Services) -> None:
        """Keep a reference to the stop callback."""
        self._stop = services.stop

    async def run(self, context: Context) -> None:
        """Ask the instance to stop; the steps after this one still run."""
        self._stop(context.cause)
