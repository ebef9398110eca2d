"""amps-action-do-archive-journal: old journals are moved to the archive directory."""

from typing import ClassVar

from actions.old_journals import OldJournals
from server.engine.maintenance.journal_retention import JournalAction


class DoArchiveJournal(OldJournals):
    """Moves old journals to the archive directory; they stay part of the transaction log."""

    operation: ClassVar[JournalAction] = JournalAction.ARCHIVE
