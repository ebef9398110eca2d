"""amps-action-do-enable-entitlement: switches entitlement on, for all transports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices


class DoEnableEntitlement(Step):
    """Switches entitlement on."""

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the engine."""
        self._engine = services.engine

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Enable entitlement; earlier decisions are made anew."""
        self._engine.security_switches.is_entitlement_on = True
        self._engine.topics.invalidate()
        self._engine.log.emit("25-0001", what="entitlement", state="on")
