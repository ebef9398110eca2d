"""Entries that a source owes a destination: it could not read them in its log.

A sender that meets a damaged entry stops in front of it, for it may be repaired within a moment. If
no connected instance has it, the owner of the log gives it up (`SourceLog.is_lost`, then
`ReplicationSender.retry_damaged`), and the sender goes on behind it. Before that it tells the
destination which entries it has skipped (`SkippedRanges`). The destination keeps that list with its
position in the source's log, and returns it when it asks to resume: so the list lives as long as
the position. The destination also notes which messages it lacks (`lost`). Should the entry be
repaired later, it is sent late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from server.replication.core.frames import SkippedRanges
from server.replication.core.lost_sequences import mark_of
from server.storage.journal import EntryBatch
from server.util.ranges import Ranges

MAX_SKIPPED_ENTRIES: Final = 4096
"""Ranges of entries that are remembered; beyond that, the oldest are forgotten."""


class SkippedEntries:
    """The entries that one destination is owed.

    Attributes:
        skipped_txids: the txids of the skipped entries.
        is_frame_due: whether the destination has to be told (`make_frame`).
    """

    def __init__(self) -> None:
        self.skipped_txids = Ranges()
        self.is_frame_due = False
        self._retry_txids = Ranges()
        self._lost_sequences: list[tuple[int, int]] = []
        self._unknown_count = 0

    def clear(self) -> None:
        """Forget all: the destination lists the messages that it has of each publisher."""
        self.restore(())

    def restore(self, owed: Iterable[tuple[int, int]]) -> None:
        """Take over the destination's own list; all of its entries are tried again."""
        self.skipped_txids, self._retry_txids = Ranges(owed), Ranges(owed)
        self.is_frame_due = False
        self._lost_sequences, self._unknown_count = [], 0

    def add(self, left_out: Iterable[tuple[int, EntryBatch | None]]) -> None:
        """Add entries that are skipped.

        Args:
            left_out: the txid of each, and the entry without its body if that is known.
        """
        for txid, run in left_out:
            if run is None:
                self._unknown_count += txid not in self.skipped_txids
            elif txid not in self.skipped_txids:
                mark = mark_of(run)
                self._lost_sequences += () if mark is None else (mark,)
            self.skipped_txids.add(txid, txid)
        while len(self.skipped_txids) > MAX_SKIPPED_ENTRIES:
            self.skipped_txids.pop_first()
        self.is_frame_due = True

    def remove(self, first: int, last: int) -> None:
        """Remove entries that are sent, or do not go there; should they get lost, it asks for them.

        The caller tells the destination by sending them, or the new list of owed entries.
        """
        self.skipped_txids.remove(first, last)
        self._retry_txids.remove(first, last)

    def make_frame(self) -> SkippedRanges:
        """Return the frame with all owed entries, for the destination."""
        self.is_frame_due = False
        lost_sequences, unknown_count = self._lost_sequences, self._unknown_count
        self._lost_sequences, self._unknown_count = [], 0
        return SkippedRanges([*self.skipped_txids], lost_sequences, unknown_count)

    # Entries that may have been repaired.

    def mark_repaired(self, txid: int) -> None:
        """Retry an entry that can be read again, if the destination is owed it."""
        if txid in self.skipped_txids:
            self._retry_txids.add(txid, txid)

    @property
    def next_retry_range(self) -> tuple[int, int] | None:
        """The first and the last txid of the entries to try next; None if there are none."""
        return next(iter(self._retry_txids), None)

    def mark_unreadable(self, txid: int) -> None:
        """Note that an entry cannot be read yet."""
        self._retry_txids.remove(txid, txid)
