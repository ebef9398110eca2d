"""Entries that a source has skipped for a destination: it could not read them in its log.

A sender that reaches a damaged entry stops in front of it, for it may be repaired within a moment.
If no connected instance has it, the owner of the log gives it up (`SourceLog.is_lost`, then
`ReplicationSender.retry_damaged`), and the sender continues behind it. Before that it sends the
destination the list of skipped entries (`SkippedRanges`). The destination keeps that list with its
position in the source's log, and returns it when a link begins: so the list lives as long as the
position. The destination also records which messages it lacks (`LostSequences`). If the entry is
repaired later, it is sent late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from server.replication.core.frames import SkippedRanges
from server.replication.core.lost_sequences import bookmark_of_entry
from server.storage.journal import EntryBatch
from server.util.ranges import Ranges

MAX_SKIPPED_ENTRIES: Final = 4096
"""Maximum number of ranges of entries; beyond that, the oldest are dropped."""


class SkippedEntries:
    """The entries that one destination is owed.

    Attributes:
        skipped_txids: the txids of the skipped entries.
        is_frame_due: whether the list has to be sent to the destination (`make_frame`).
    """

    def __init__(self) -> None:
        self.skipped_txids = Ranges()
        self.is_frame_due = False
        self._retry_txids = Ranges()
        self._lost_sequences: list[tuple[int, int]] = []
        self._unknown_count = 0

    def clear(self) -> None:
        """Remove all: the destination lists the messages that it has of each publisher."""
        self.restore(())

    def restore(self, skipped: Iterable[tuple[int, int]]) -> None:
        """Replace the list with the destination's own; all of its entries are retried."""
        self.skipped_txids, self._retry_txids = Ranges(skipped), Ranges(skipped)
        self.is_frame_due = False
        self._lost_sequences, self._unknown_count = [], 0

    def add(self, skipped: Iterable[tuple[int, EntryBatch | None]]) -> None:
        """Add entries that are skipped.

        Args:
            skipped: the txid of each, and the entry without its body if that is known.
        """
        for txid, batch in skipped:
            if batch is None:
                self._unknown_count += txid not in self.skipped_txids
            elif txid not in self.skipped_txids:
                bookmark = bookmark_of_entry(batch)
                self._lost_sequences += () if bookmark is None else (bookmark,)
            self.skipped_txids.add(txid, txid)
        while len(self.skipped_txids) > MAX_SKIPPED_ENTRIES:
            self.skipped_txids.pop_first()
        self.is_frame_due = True

    def remove(self, first: int, last: int) -> None:
        """Remove entries that are sent, or are not for the destination.

        The caller sends them, or the new list of owed entries. If they get lost, the destination
        still has them in its list.
        """
        self.skipped_txids.remove(first, last)
        self._retry_txids.remove(first, last)

    def make_frame(self) -> SkippedRanges:
        """Return the frame with all owed entries, for the destination."""
        self.is_frame_due = False
        lost_sequences, unknown_count = self._lost_sequences, self._unknown_count
        self._lost_sequences, self._unknown_count = [], 0
        return SkippedRanges([*self.skipped_txids], lost_sequences, unknown_count)

    # entries that may have been repaired

    def mark_repaired(self, txid: int) -> None:
        """Retry an entry that can be read again, if the destination is owed it."""
        if txid in self.skipped_txids:
            self._retry_txids.add(txid, txid)

    @property
    def next_retry_range(self) -> tuple[int, int] | None:
        """The first and the last txid of the entries to retry next; None if there are none."""
        return next(iter(self._retry_txids), None)

    def mark_unreadable(self, txid: int) -> None:
        """Record that an entry cannot be read yet."""
        self._retry_txids.remove(txid, txid)
