"""The first and the last moments: amps-action-on-startup, -on-shutdown and -do-shutdown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.module import Step, Trigger

if TYPE_CHECKING:
    from actions.action import Action
    from actions.context import ActionContext
    from actions.services import ActionServices


class OnStartup(Trigger):
    """Runs when everything else has started."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Register the action as a startup callback."""
        services.startup_callbacks.append(partial(action.perform, {}))


class OnShutdown(Trigger):
    """Runs while everything else is still in operation."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Register the action as a shutdown callback."""
        callback = partial(action.perform, {})
        services.shutdown_callbacks.append(callback)
        self.end_later(partial(services.shutdown_callbacks.remove, callback))


class DoShutdown(Step):
    """Stops the instance, cleanly."""

    async def run(self, context: ActionContext) -> None:
        """Ask the instance to stop; the steps after this one still run."""
        self.services.stop_instance(context.cause)
