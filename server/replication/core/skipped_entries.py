"""Entries that a source owes a destination: it could not read them in its log.

A sender that meets a damaged entry stops in front of it, for it may be repaired within a moment. If
no connected instance has it, the owner of the log gives it up (`SourceLog.is_lost`, then
`ReplicationSender.look_again`), and the sender goes on behind it. Before that it tells the
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
        owed: the txids of the skipped entries.
        is_news: whether the destination has to be told (`frame`).
    """

    def __init__(self) -> None:
        self.owed = Ranges()
        self.is_news = False
        self._ready = Ranges()
        self._lost: list[tuple[int, int]] = []
        self._unknown = 0

    def clear(self) -> None:
        """Forget all: the destination lists the messages that it has of each publisher."""
        self.restate(())

    def restate(self, owed: Iterable[tuple[int, int]]) -> None:
        """Take over the destination's own list; all of its entries are tried again."""
        self.owed, self._ready = Ranges(owed), Ranges(owed)
        self.is_news = False
        self._lost, self._unknown = [], 0

    def add(self, left_out: Iterable[tuple[int, EntryBatch | None]]) -> None:
        """Add entries that are skipped.

        Args:
            left_out: the txid of each, and the entry without its body if that is known.
        """
        for txid, run in left_out:
            if run is None:
                self._unknown += txid not in self.owed
            elif txid not in self.owed:
                mark = mark_of(run)
                self._lost += () if mark is None else (mark,)
            self.owed.add(txid, txid)
        while len(self.owed) > MAX_SKIPPED_ENTRIES:
            self.owed.forget_first()
        self.is_news = True

    def settle(self, first: int, last: int) -> None:
        """Remove entries that are sent, or do not go there; should they get lost, it asks for them.

        The caller tells the destination by sending them, or the new list of owed entries.
        """
        self.owed.remove(first, last)
        self._ready.remove(first, last)

    def frame(self) -> SkippedRanges:
        """Return the frame with all owed entries, for the destination."""
        self.is_news = False
        lost, unknown = self._lost, self._unknown
        self._lost, self._unknown = [], 0
        return SkippedRanges([*self.owed], lost, unknown)

    # Entries that may have been repaired.

    def mended(self, txid: int) -> None:
        """Retry an entry that can be read again, if the destination is owed it."""
        if txid in self.owed:
            self._ready.add(txid, txid)

    @property
    def ready(self) -> tuple[int, int] | None:
        """The first and the last txid of the entries to try next; None if there are none."""
        return next(iter(self._ready), None)

    def tried(self, txid: int) -> None:
        """Note that an entry cannot be read yet."""
        self._ready.remove(txid, txid)
