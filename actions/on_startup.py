"""amps-action-on-startup: the last step of starting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.services import ActionHandle, ActionServices


class OnStartup(Trigger):
    """Runs when everything else has started."""

    def provision(self, services: ActionServices, action: ActionHandle) -> None:
        """Register the action as a startup callback."""
        services.startup_callbacks.append(partial(action.perform, {}))
