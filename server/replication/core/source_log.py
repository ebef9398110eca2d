"""The log of this instance, as a sender uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from server.storage.journal import JournalTopic, RawEntryRange


class SourceLogReader(Protocol):
    """Reads a log forward; the journal's `JournalCursor` does."""

    @property
    def position(self) -> int:
        """The txid up to which the log has been read."""

    def read_for_forwarding(self, max_entries: int, max_bytes: int) -> RawEntryRange:
        """Return the next entries; an empty range does not mean the end of the log."""


class SourceLog(Protocol):
    """The log of this instance, as a sender uses it."""

    @property
    def first_txid(self) -> int:
        """The txid of the oldest entry in the log."""

    @property
    def durable_txid(self) -> int:
        """The txid of the last entry on stable storage."""

    def read_from(self, after: int, is_wanted: Callable[[JournalTopic], bool]) -> SourceLogReader:
        """Return a reader of the entries that change state (`EVENTS`) and are on stable storage.

        Args:
            after: the txid behind which to begin.
            is_wanted: returns whether the entries of a topic are to be read.
        """

    def is_lost(self, txid: int) -> bool:
        """Return whether an unreadable entry cannot be repaired, so that waiting is useless."""
