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
        maintenance: builds them.
        lookup: caches their contents.
    """

    def __init__(self, maintenance: JournalFileMaintenance, lookup: EntryLookup) -> None:
        self._maintenance: Final = maintenance
        self._lookup: Final = lookup
        self._queued_files: set[int] = set()  # numbers of files with a queued rebuild

    def remove_indexes(self, number: int) -> None:
        """Remove the indexes of a file, if it is full: records are going to change."""
        if self._maintenance.remove_indexes(number):
            self._lookup.invalidate_file(number)

    def queue_rebuild(self, number: int) -> None:
        """Queue the rebuild of a file's indexes, if it is full now: records have changed."""
        if number not in self._queued_files and self._maintenance.remove_indexes(number):
            self._queued_files.add(number)
            self._maintenance.queue_task(partial(self._rebuild, number))

    def _rebuild(self, number: int) -> None:
        self._queued_files.discard(number)  # first: the build may miss changes from now on
        self._maintenance.finalize_file(number)
        self._lookup.invalidate_file(number)
