"""amps-action-on-shutdown: the first step of stopping."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.services import ActionHandle, ActionServices


class OnShutdown(Trigger):
    """Runs when everything else is still there."""

    def provision(self, services: ActionServices, action: ActionHandle) -> None:
        """Register the action as a shutdown callback."""
        services.shutdown_callbacks.append(partial(action.perform, {}))
