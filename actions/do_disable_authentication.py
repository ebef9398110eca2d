"""amps-action-do-disable-authentication: switches authentication off, for all transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices


class DoDisableAuthentication(Step):
    """Switches authentication off."""

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the engine."""
        self._engine = services.engine

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Disable authentication."""
        self._engine.security_switches.is_authentication_on = False
        self._engine.log.emit("25-0001", what="authentication", state="off")
