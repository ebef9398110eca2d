"""Steps on journal files: amps-action-do-archive-journal, -compress-journal and -remove-journal.

They mark the old files, and the server processes them.

Source: AMPS User Guide, Manage Transaction Log Journal Files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from actions.module import Step, StepError
from actions.options import AgeOption
from server.engine.maintenance.journal_retention import JournalAction
from server.storage.journal import JournalError

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class OldJournals(Step):
    """Marks old journal files for an operation.

    Archived and compressed files stay part of the transaction log. Files are removed when they are
    not needed any more.

    Args:
        options: the options.
        operation: the operation.
    """

    time_limit: ClassVar[float] = 3600.0

    def __init__(self, options: StepOptions, operation: JournalAction) -> None:
        super().__init__(options)
        self._operation = operation
        self._age = AgeOption(options)

    async def run(self, context: ActionContext) -> None:
        """Mark the files that are old enough.

        Raises:
            StepError: the age is none, or there are no journals, or nowhere to archive them to.
        """
        age_s = self._age.read_s(context)
        if self.services.journal_retention is None:
            raise StepError("there are no journals: the configuration has no TransactionLog")
        try:
            await self.services.journal_retention.mark_by_age(self._operation, age_s)
        except JournalError as error:
            raise StepError(str(error)) from None
