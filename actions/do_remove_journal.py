"""amps-action-do-remove-journal: removes old journals that are not needed any more."""

from typing import ClassVar

from actions.old_journals import OldJournals
from server.engine.maintenance.journal_retention import JournalAction


class DoRemoveJournal(OldJournals):
    """Removes old journals that are not needed any more."""

    operation: ClassVar[JournalAction] = JournalAction.REMOVE
