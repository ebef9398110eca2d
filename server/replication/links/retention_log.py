"""Logs which destination prevents journal files from being removed.

A destination that has been disconnected for long retains the whole log since then, and the operator
notices only when the disk is full. So whenever a journal file due for removal has to stay for a
destination, that is logged, with the age of the first entry that it has not acknowledged.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from pathlib import Path

    from server.replication.links.replication_state import ReplicationState
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_LOG_INTERVAL_S: Final = 3600.0
"""Seconds until the same is logged again; removal is checked every second."""


class DestinationRetentionLog:
    """Checks one destination when a journal file has to stay for it.

    Args:
        name: name of the destination.
        replication: the replication state, which has the destination.
        clock: the time.
        log: the event log.
    """

    def __init__(
        self, name: str, replication: ReplicationState, clock: Clock, log: ServerLog
    ) -> None:
        self._name: Final = name
        self._replication: Final = replication
        self._log: Final = RateLimitedLog(
            log, clock, burst=1, window_s=_LOG_INTERVAL_S, summary=None
        )

    def log_retained_journal(self, path: Path, end: int) -> None:
        """Log why a journal file due for removal stays; once an hour at most.

        Args:
            path: the journal file.
            end: the txid that follows its last entry.
        """
        if self._log.is_suppressed("21-0021"):
            return
        lags = [
            lag for lag in self._replication.destination_lags() if lag.destination == self._name
        ]
        if not lags or lags[0].settled_txid + 1 >= end:
            return
        age = max(self._replication.elapsed_us - lags[0].since_us, 0) // MICROSECONDS_PER_SECOND
        is_connected = self._replication.destinations[self._name].is_connected
        self._log.emit(
            "21-0021",
            path=path,
            destination=self._name,
            after=lags[0].settled_txid,
            age=timedelta(seconds=age),
            state="connected" if is_connected else "not connected",
        )
