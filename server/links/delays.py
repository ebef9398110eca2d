"""Says which destination keeps journals from being removed.

A destination that has been gone for long keeps all of the log since then, and nobody sees that
before the disk is full. So whenever a journal that is to be removed has to stay for a destination,
that is said, and since when.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from server.base.clock import Clock
    from server.base.log import Log
    from server.links.replication import Replication

_SAY_AGAIN: Final = 3600.0
"""Seconds until the same is said again: it is looked every second whether a journal may go."""
_MICROSECONDS: Final = 1_000_000


class Delays:
    """Looks at one destination when a journal has to stay for it.

    Args:
        name: of the destination.
        replication: has it.
        clock: the time.
        log: is told.
    """

    def __init__(self, name: str, replication: Replication, clock: Clock, log: Log) -> None:
        self._name: Final = name
        self._replication: Final = replication
        self._clock: Final = clock
        self._log: Final = log
        self._silent_until = 0.0

    def in_the_way(self, path: Path, end: int) -> None:
        """Say why a journal stays that is to be removed; once an hour at most.

        Args:
            path: the journal.
            end: the txid before which its entries are.
        """
        now = self._clock.steady()
        if now < self._silent_until:
            return
        found = [one for one in self._replication.waiting() if one.destination == self._name]
        if not found or found[0].after + 1 >= end:
            return
        self._silent_until = now + _SAY_AGAIN
        age = max(self._replication.elapsed - found[0].since, 0) // _MICROSECONDS
        is_connected = self._replication.destinations[self._name].is_connected
        self._log.emit(
            "21-0021",
            path=path,
            destination=self._name,
            after=found[0].after,
            age=timedelta(seconds=age),
            state="connected" if is_connected else "not connected",
        )
