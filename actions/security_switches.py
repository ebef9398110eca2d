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
    from actions.services import ActionServices


class SwitchSecurity(Step):
    """Switches one part of security.

    Attributes:
        is_on: the new state.
    """

    is_on: ClassVar[bool]

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the engine."""
        self._engine = services.engine

    def log_switch(self, part: str) -> None:
        """Log the new state of a part of security."""
        self._engine.log.emit("25-0001", what=part, state="on" if self.is_on else "off")


class DoEnableAuthentication(SwitchSecurity):
    """Switches authentication on, and ends the sessions of the admin interface."""

    is_on = True

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Set the switch."""
        switches = self._engine.security_switches
        switches.is_authentication_on = self.is_on
        if self.is_on:  # users were not verified while it was off
            switches.sessions.end_all()
        self.log_switch("authentication")


class DoDisableAuthentication(DoEnableAuthentication):
    """Switches authentication off."""

    is_on = False


class DoEnableEntitlement(SwitchSecurity):
    """Switches entitlement on; earlier decisions are made anew."""

    is_on = True

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Set the switch."""
        self._engine.security_switches.is_entitlement_on = self.is_on
        self._engine.topics.invalidate()
        self.log_switch("entitlement")


class DoDisableEntitlement(DoEnableEntitlement):
    """Switches entitlement off; earlier decisions are made anew."""

    is_on = False
