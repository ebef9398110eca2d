"""Rebuilds the indexes of full files with repaired records.

An index that was built while records were damaged lacks their entries. It is removed before the
records change, so that no index outlives the records that it was built from; readers do without it
until it is rebuilt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.storage.journal.read.lookup import EntryLookup
    from server.storage.journal.write.file_preparation import JournalFileMaintenance


class IndexRebuild:
    """Removes indexes, and queues their rebuild.

    Args:
        upkeep: builds them.
        lookup: caches their contents.
    """

    def __init__(self, upkeep: JournalFileMaintenance, lookup: EntryLookup) -> None:
        self._upkeep: Final = upkeep
        self._lookup: Final = lookup
        self._waiting: set[int] = set()  # numbers of files with a queued rebuild

    def drop(self, number: int) -> None:
        """Remove the indexes of a file, if it is full: records are going to change."""
        if self._upkeep.drop_indexes(number):
            self._lookup.forget(number)

    def make_again(self, number: int) -> None:
        """Queue the rebuild of a file's indexes, if it is full now: records have changed."""
        if number not in self._waiting and self._upkeep.drop_indexes(number):
            self._waiting.add(number)
            self._upkeep.later(partial(self._make, number))

    def _make(self, number: int) -> None:
        self._waiting.discard(number)  # first: the build may miss changes from now on
        self._upkeep.complete(number)
        self._lookup.forget(number)
