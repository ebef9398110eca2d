"""What a source owes a destination: entries of its log that it could not read.

A sender that meets a damaged entry stops in front of it, for it may be mended within a moment. If
nobody who is there has it, whoever looks after that gives it up (`Sender.give_up`), and the sender
goes on behind it. Before that it tells the destination what it has left out (`Owed`). The
destination keeps that with its place in the source's log, and says it when it asks where to go on:
so it is known for as long as that place is. It also notes which messages it lacks (`lost`). Should
the entry be mended yet, it is sent late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from server.base.ranges import Ranges
from server.journal import Run
from server.replication.frames import Owed
from server.replication.lost import mark_of

MOST_OWED: Final = 4096
"""Ranges of entries that are remembered; the oldest beyond that are forgotten."""


class Arrears:
    """What one destination is owed.

    Attributes:
        owed: the txids of what has been left out.
        is_news: whether the destination has to be told (`frame`).
    """

    def __init__(self) -> None:
        self.owed = Ranges()
        self.is_news = False
        self._ready = Ranges()
        self._lost: list[tuple[int, int]] = []
        self._unknown = 0

    def clear(self) -> None:
        """Nothing is owed: the destination says of each publisher what it lacks."""
        self.restate(())

    def restate(self, owed: Iterable[tuple[int, int]]) -> None:
        """Take over what the destination says that it is owed; all of it is tried again."""
        self.owed, self._ready = Ranges(owed), Ranges(owed)
        self.is_news = False
        self._lost, self._unknown = [], 0

    def add(self, left_out: Iterable[tuple[int, Run | None]]) -> None:
        """Some entries are left out.

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
        while len(self.owed) > MOST_OWED:
            self.owed.forget_first()
        self.is_news = True

    def settle(self, first: int, last: int) -> None:
        """Some entries are sent, or do not go there; should they get lost, the destination says so.

        Whoever calls that tells the destination by sending them, or what is owed anew.
        """
        self.owed.remove(first, last)
        self._ready.remove(first, last)

    def frame(self) -> Owed:
        """All that is owed, for the destination."""
        self.is_news = False
        lost, unknown = self._lost, self._unknown
        self._lost, self._unknown = [], 0
        return Owed([*self.owed], lost, unknown)

    # What may have been mended.

    def mended(self, txid: int) -> None:
        """An entry can be read again, whoever it is owed to."""
        if txid in self.owed:
            self._ready.add(txid, txid)

    @property
    def ready(self) -> tuple[int, int] | None:
        """The first and the last txid of what is to be tried next; None if nothing is."""
        return next(iter(self._ready), None)

    def tried(self, txid: int) -> None:
        """An entry cannot be read yet."""
        self._ready.remove(txid, txid)
