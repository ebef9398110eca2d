"""Steps on the statistics database: amps-action-do-truncate-statistics and -vacuum-statistics.

Truncation does not shrink the file: freed space is reused for new statistics. A vacuum does. In
AMPS it has no effect any more, because all of its statistics had to wait; here it runs in small
steps between samples.

Source: AMPS User Guide, Truncate Statistics.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepError
from actions.options import AgeOption

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoTruncateStatistics(Step):
    """Removes old statistics."""

    time_limit: ClassVar[float] = 3600.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._age = AgeOption(options)

    async def run(self, context: ActionContext) -> None:
        """Remove the statistics beyond the age; without statistics do nothing.

        Raises:
            StepError: the age is invalid, or the database cannot be written to.
        """
        age_s = self._age.read_s(context)
        if self.services.statistics is None:
            return
        try:
            await asyncio.wrap_future(self.services.statistics.truncate(age_s))
        except sqlite3.Error as error:
            raise StepError(f"the statistics database cannot be truncated: {error}") from None


class DoVacuumStatistics(Step):
    """Shrinks the file of the statistics database to its minimum."""

    time_limit: ClassVar[float] = 3600.0

    async def run(self, context: ActionContext) -> None:  # noqa: ARG002 - independent of the event
        """Vacuum the statistics database; without statistics do nothing.

        Raises:
            StepError: the database cannot be written to.
        """
        if self.services.statistics is None:
            return
        try:
            await asyncio.wrap_future(self.services.statistics.vacuum())
        except sqlite3.Error as error:
            raise StepError(f"the statistics database cannot be vacuumed: {error}") from None
