"""amps-action-do-reset-entitlement: what is kept about permissions is forgotten.

Sessions keep that a user may publish to a topic. To forget more of that than Transport and
AuthenticationId ask for costs asking again, and nothing else; so all of it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services


class DoResetEntitlement(Step):
    """Has every permission asked for afresh."""

    def provision(self, services: Services) -> None:
        """Take note of the engine."""
        self._engine = services.engine

    async def run(self, context: Context) -> None:  # noqa: ARG002 - the same whatever happened
        """Forget."""
        self._engine.topics.invalidate()
        self._engine.log.emit("25-0002", what="entitlement")
