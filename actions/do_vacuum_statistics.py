"""amps-action-do-vacuum-statistics: returns unused space of the statistics database.

In AMPS the action has no effect any more, because all of its statistics had to wait. Here the
vacuum runs in small steps between samples, so that the action has an effect.

Source: AMPS User Guide, Truncate Statistics.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepError

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.services import ActionServices


class DoVacuumStatistics(Step):
    """Shrinks the file of the statistics database to its minimum."""

    time_limit: ClassVar[float] = 3600.0

    def provision(self, services: ActionServices) -> None:
        """Keep a reference to the services."""
        self._services = services

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Vacuum the statistics database; without statistics do nothing.

        Raises:
            StepError: the database cannot be written to.
        """
        if self._services.statistics is None:
            return
        try:
            await asyncio.wrap_future(self._services.statistics.vacuum())
        except sqlite3.Error as error:
            raise StepError(f"the statistics database cannot be vacuumed: {error}") from None
