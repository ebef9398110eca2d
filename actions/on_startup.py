"""amps-action-on-startup: the last step of starting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices


class OnStartup(Trigger):
    """Runs when everything else has started."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Register the action as a startup callback."""
        services.startup_callbacks.append(partial(action.perform, {}))
