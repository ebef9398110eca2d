"""amps-action-do-compress-journal: old journals are compressed where they are."""

from typing import ClassVar

from actions.old_journals import OldJournals
from server.engine.maintenance.journal_retention import JournalAction


class DoCompressJournal(OldJournals):
    """Compresses old journals; they stay part of the transaction log."""

    operation: ClassVar[JournalAction] = JournalAction.COMPRESS
