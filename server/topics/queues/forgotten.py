"""Says which message of a queue keeps journals from being removed.

A message that nobody acknowledges holds back all of the log that comes after it, and nobody sees
that before the disk is full. So whenever a journal that is to be removed has to stay for a queue,
that queue's oldest message is named, and why it is still there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from server.topics.queues.words import bookmark_of, why_it_stays

if TYPE_CHECKING:
    from pathlib import Path

    from server.queues import Queue
    from server.topics.queues.surroundings import Surroundings

_SAY_AGAIN: Final = 3600.0
"""Seconds until the same is said again: it is looked every second whether a journal may go."""
_MICROSECONDS: Final = 1_000_000


class Forgotten:
    """Looks at one queue when a journal has to stay for it.

    Args:
        core: the queue.
        name: its name.
        surroundings: what it needs of the server.
    """

    def __init__(self, core: Queue, name: str, surroundings: Surroundings) -> None:
        self._core: Final = core
        self._name: Final = name
        self._surroundings: Final = surroundings
        self._silent_until = 0.0

    def in_the_way(self, path: Path, end: int) -> None:
        """Say why a journal stays that is to be removed; once an hour at most.

        Args:
            path: the journal.
            end: the txid before which its entries are.
        """
        entries, now = self._core.ledger.entries, self._surroundings.clock.steady()
        place = entries.head
        if now < self._silent_until or place == entries.end or entries.txid(place) >= end:
            return
        self._silent_until = now + _SAY_AGAIN
        moment = int(now * _MICROSECONDS)
        self._surroundings.events.emit(
            "1D-0018",
            path=path,
            queue=self._name,
            bookmark=bookmark_of(self._core, place),
            age=timedelta(seconds=max(moment - entries.time(place), 0) // _MICROSECONDS),
            why=why_it_stays(self._core, place, moment),
        )
