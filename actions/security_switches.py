"""Steps that switch authentication and entitlement off and on, for all transports.

They are amps-action-do-enable-authentication and -disable-authentication, and likewise for
entitlement.

Source: AMPS User Guide, Manage Security.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class SwitchSecurity(Step):
    """Switches one part of security.

    Args:
        options: the options.
        is_on: the new state.
    """

    def __init__(self, options: StepOptions, *, is_on: bool) -> None:
        super().__init__(options)
        self.is_on = is_on

    def log_switch(self, part: str) -> None:
        """Log the new state of a part of security."""
        self.services.engine.log.emit("25-0001", what=part, state="on" if self.is_on else "off")


class SwitchAuthentication(SwitchSecurity):
    """Switches authentication."""

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Set the switch; switched on, it ends the sessions of the admin interface."""
        switches = self.services.engine.security_switches
        switches.is_authentication_on = self.is_on
        if self.is_on:  # users were not verified while it was off
            switches.sessions.end_all()
        self.log_switch("authentication")


class SwitchEntitlement(SwitchSecurity):
    """Switches entitlement; earlier decisions are made anew."""

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Set the switch."""
        self.services.engine.security_switches.is_entitlement_on = self.is_on
        self.services.engine.topics.invalidate()
        self.log_switch("entitlement")
