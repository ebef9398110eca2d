"""amps-action-do-enable-authentication: switches authentication on, for all transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services


class DoEnableAuthentication(Step):
    """Switches authentication on."""

    def provision(self, services: Services) -> None:
        """Take note of the switches."""
        self._engine = services.engine

    async def run(self, context: Context) -> None:  # noqa: ARG002 - the same whatever happened
        """Switch it on."""
        self._engine.switches.authentication = True
        self._engine.switches.sessions.end_all()  # nobody has vouched for who came meanwhile
        self._engine.log.emit("25-0001", what="authentication", state="on")
