"""Logs which destination keeps publishers waiting, and since when.

A publisher gets its persisted acks after the destinations that this instance waits for have
acknowledged. When one of them takes long, the publisher sees that no acks come, but not why. So the
wait is logged once, with the entry that is waited for, and once more when it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.replication.core import DestinationLag
    from server.replication.links.replication_state import ReplicationState
    from server.util.clock import Clock, ElapsedMicroseconds
    from server.util.log_protocol import ServerLog

LAG_WARNING_SECONDS: Final = 5.0
"""Age of an unacknowledged entry from which on the wait is logged."""

_LOOK_SECONDS: Final = 1.0
_MICROSECONDS: Final = 1_000_000


class ReplicationLagMonitor:
    """Checks once a second for entries that have waited for long.

    Args:
        replication: the replication state, with the unacknowledged entries of each destination.
        clock: the time, and timers.
        log: the event log.
    """

    def __init__(self, replication: ReplicationState, clock: Clock, log: ServerLog) -> None:
        self._replication: Final = replication
        self._clock: Final = clock
        self._log: Final = log
        # By destination, the start of the wait that has been logged.
        self._said: dict[str, ElapsedMicroseconds] = {}
        self._cancel = clock.call_later(_LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Stop checking."""
        self._cancel()

    @property
    def state(self) -> Mapping[str, int]:
        """By destination, the number of unacknowledged entries, and their age in seconds."""
        found: dict[str, int] = {}
        last = self._replication.last_txid
        for one in self._replication.waiting():
            name = one.destination
            found[f"entries that wait for {name}"] = max(last - one.after, 0)
            found[f"seconds that they have waited for {name}"] = self._age(one.since)
        return found

    def _age(self, since: ElapsedMicroseconds) -> int:
        return max(self._replication.elapsed - since, 0) // _MICROSECONDS

    def _look(self) -> None:
        self._cancel = self._clock.call_later(_LOOK_SECONDS, self._look)
        waited_for = self._replication.acknowledgement.waited_for
        waiting = {
            one.destination: one
            for one in self._replication.waiting()
            if one.destination in waited_for
        }
        for name, one in waiting.items():
            if name not in self._said and self._age(one.since) >= LAG_WARNING_SECONDS:
                self._said[name] = one.since
                self._say(one)
        for name in list(self._said):
            now = waiting.get(name)
            if now is None or self._age(now.since) < LAG_WARNING_SECONDS:
                self._say_over(name, self._said.pop(name), is_waited_for=name in waited_for)

    def _say(self, one: DestinationLag) -> None:
        is_connected = self._replication.destinations[one.destination].is_connected
        self._log.emit(
            "1E-0011",
            destination=one.destination,
            txid=one.after + 1,
            age=timedelta(seconds=self._age(one.since)),
            state="connected" if is_connected else "not connected",
        )

    def _say_over(self, name: str, since: ElapsedMicroseconds, *, is_waited_for: bool) -> None:
        self._log.emit(
            "1E-0012",
            destination=name,
            age=timedelta(seconds=self._age(since)),
            why="it has caught up" if is_waited_for else "it has been downgraded",
        )
