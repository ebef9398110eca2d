"""amps-action-do-remove-journal: old journals are removed once nobody needs them any more."""

from typing import ClassVar

from actions.old_journals import OldJournals
from server.upkeep.journal_keeping import Deed


class DoRemoveJournal(OldJournals):
    """Removes old journals that nobody needs any more."""

    deed: ClassVar[Deed] = Deed.REMOVE
