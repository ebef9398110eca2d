"""Steps that switch authentication and entitlement off and on, for all transports.

They are amps-action-do-enable-authentication and -disable-authentication, and likewise for
entitlement.

Source: AMPS User Guide, Manage Security.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext


class SwitchSecurity(Step):
    """Switches one part of security.

    Attributes:
        is_on: the new state.
    """

    is_on: ClassVar[bool]

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


class DoEnableAuthentication(SwitchAuthentication):
    """Switches authentication on."""

    is_on = True


class DoDisableAuthentication(SwitchAuthentication):
    """Switches authentication off."""

    is_on = False


class SwitchEntitlement(SwitchSecurity):
    """Switches entitlement; earlier decisions are made anew."""

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Set the switch."""
        self.services.engine.security_switches.is_entitlement_on = self.is_on
        self.services.engine.topics.invalidate()
        self.log_switch("entitlement")


class DoEnableEntitlement(SwitchEntitlement):
    """Switches entitlement on."""

    is_on = True


class DoDisableEntitlement(SwitchEntitlement):
    """Switches entitlement off."""

    is_on = False
