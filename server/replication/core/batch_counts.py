"""Counts of the new and duplicate entries of a received batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from server.storage.journal import JournalTopic


class DuplicateConflict(NamedTuple):
    """A message with the bookmark of another message and a different body."""

    client: int
    sequence: int
    topic: JournalTopic


class BatchCounts(NamedTuple):
    """The counts of new and duplicate entries of a batch.

    Attributes:
        new: entries that have been recorded.
        duplicates: entries that were known.
        conflicts: the first of the duplicates that differ from the recorded message.
    """

    new: int = 0
    duplicates: int = 0
    conflicts: Sequence[DuplicateConflict] = ()
