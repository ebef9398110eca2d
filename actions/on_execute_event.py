"""amps-action-on-execute-event: another action has raised an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Trigger

if TYPE_CHECKING:
    from actions.action import Action
    from actions.services import ActionServices


class OnExecuteEvent(Trigger):
    """Runs when the event is raised, with the variables of the action that raises it."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the event."""
        services.event_listeners.setdefault(self.options.get("Event") or "", []).append(action)
