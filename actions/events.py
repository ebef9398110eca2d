"""Events of actions: amps-action-do-execute-event raises one, amps-action-on-execute-event runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step, StepError, Trigger
from actions.options import optional
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from actions.action import Action
    from actions.context import ActionContext
    from actions.services import ActionServices
    from actions.step_options import StepOptions


class DoExecuteEvent(Step):
    """Runs the actions that wait for an event, with the variables of this one."""

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._event = optional(options, "Event")
        self._variable = options.get("EventVariable") or ""

    async def run(self, context: ActionContext) -> None:
        """Raise the event; it need not have listeners.

        Raises:
            StepError: the variable that should name the event is empty.
        """
        if self._event is None:
            event = bytes_to_text(context[self._variable])
        else:
            event = self._event.expand_text(context)
        if not event:
            raise StepError(f"no event is named: variable {self._variable or 'in Event'} is empty")
        self.services.current_run = context
        try:
            for listener in self.services.event_listeners.get(event, ()):
                listener.post(context.values, f"event {event}")
        finally:
            self.services.current_run = None


class OnExecuteEvent(Trigger):
    """Runs when the event is raised, with the variables of the action that raises it."""

    def provision(self, services: ActionServices, action: Action) -> None:
        """Listen for the event."""
        event = self.options.get("Event") or ""
        self.add_listener(services.event_listeners.setdefault(event, []), action)
