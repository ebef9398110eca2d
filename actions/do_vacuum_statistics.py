"""amps-action-do-vacuum-statistics: what the statistics database does not need is given back.

AMPS does nothing any more, because all of its statistics had to wait. Here that is done in small
steps between samples, so that the step is what it says.

Source: AMPS User Guide, Truncate Statistics.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepFailed

if TYPE_CHECKING:
    from actions.context import Context
    from actions.services import Services


class DoVacuumStatistics(Step):
    """Makes the file of the statistics database as small as it can be."""

    time_limit: ClassVar[float] = 3600.0

    def provision(self, services: Services) -> None:
        """Take note of who does it."""
        self._services = services

    async def run(self, context: Context) -> None:  # noqa: ARG002 - the same whatever happened
        """Give back what is unused; without statistics there is nothing.

        Raises:
            StepFailed: the database cannot be written to.
        """
        if self._services.statistics is None:
            return
        try:
            await asyncio.wrap_future(self._services.statistics.vacuum())
        except sqlite3.Error as error:
            raise StepFailed(f"the statistics database cannot be vacuumed: {error}") from None
