"""amps-action-on-shutdown: the first step of stopping."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.services import Runnable, Services


class OnShutdown(Trigger):
    """Runs when everything else is still there."""

    def provision(self, services: Services, action: Runnable) -> None:
        """Register the action as a shutdown callback."""
        services.at_shutdown.append(partial(action.perform, {}))
