"""amps-action-on-minidump: a minidump has been written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices


class OnMinidump(Trigger):
    """Runs when a minidump has been written."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for it."""
        services.minidump_listeners.append(action)
