"""amps-action-do-reset-authentication: what is kept about earlier logons is forgotten.

None of the authentication modules that exist keeps anything. Nobody is disconnected: whoever has
logged on stays so (AMPS User Guide, Manage Security, which says that of entitlement alone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services


class DoResetAuthentication(Step):
    """Has every logon decided afresh."""

    def provision(self, services: Services) -> None:
        """Take note of the log."""
        self._log = services.engine.log

    async def run(self, context: Context) -> None:  # noqa: ARG002 - the same whatever happened
        """Forget."""
        self._log.emit("25-0002", what="authentication")
