"""amps-action-on-shutdown: the first step of stopping."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices


class OnShutdown(Trigger):
    """Runs while everything else is still in operation."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Register the action as a shutdown callback."""
        services.shutdown_callbacks.append(partial(action.perform, {}))
