"""amps-action-do-minidump: writes a minidump. The instance goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.minidumps import take_minidump
from actions.module import Step

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices


class DoMinidump(Step):
    """Writes a minidump, and the state of the queues to the log; actions on minidumps run."""

    time_limit: ClassVar[float] = 60.0

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the services."""
        self._services = services

    async def run(self, context: ActionContext) -> None:
        """Write the minidump.

        Raises:
            OSError: the file cannot be written.
        """
        await take_minidump(self._services, context)
