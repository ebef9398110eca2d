"""amps-action-do-enable-authentication: switches authentication on, for all transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices


class DoEnableAuthentication(Step):
    """Switches authentication on."""

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the engine."""
        self._engine = services.engine

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Enable authentication, and end the sessions of the admin interface."""
        self._engine.security_switches.is_authentication_on = True
        # users were not verified while it was off
        self._engine.security_switches.sessions.end_all()
        self._engine.log.emit("25-0001", what="authentication", state="on")
