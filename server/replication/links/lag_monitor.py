"""Logs which destination keeps publishers waiting, and since when.

A publisher gets its persisted acks after the destinations for which this instance waits have
acknowledged. When one of them takes long, the publisher sees that no acks arrive, but not why. So
the wait is logged once, with the unacknowledged entry, and once more when it is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.replication.core import DestinationLag
    from server.replication.links.replication_state import ReplicationState
    from server.util.clock import Clock, ElapsedMicroseconds
    from server.util.log_protocol import ServerLog

LAG_WARNING_SECONDS: Final = 5.0
"""Age of an unacknowledged entry from which on the wait is logged."""

_CHECK_INTERVAL_S: Final = 1.0


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
        # by destination, the wait that has been logged
        self._logged_lags: dict[str, DestinationLag] = {}
        self._cancel_timer = clock.call_later(_CHECK_INTERVAL_S, self._check)

    def close(self) -> None:
        """Stop checking."""
        self._cancel_timer()

    @property
    def state(self) -> Mapping[str, int]:
        """By destination, the number of unacknowledged entries, and their age in seconds."""
        figures: dict[str, int] = {}
        last_txid = self._replication.last_txid
        for lag in self._replication.destination_lags():
            name = lag.destination
            figures[f"entries that wait for {name}"] = max(last_txid - lag.settled_txid, 0)
            figures[f"seconds that they have waited for {name}"] = self._age_s(lag.since_us)
        return figures

    def _age_s(self, since: ElapsedMicroseconds) -> int:
        return max(self._replication.elapsed_us - since, 0) // MICROSECONDS_PER_SECOND

    def _check(self) -> None:
        self._cancel_timer = self._clock.call_later(_CHECK_INTERVAL_S, self._check)
        awaited_destinations = self._replication.ack_tracker.awaited_destinations
        lags = {
            lag.destination: lag
            for lag in self._replication.destination_lags()
            if lag.destination in awaited_destinations
        }
        for name, lag in lags.items():
            if name not in self._logged_lags and self._age_s(lag.since_us) >= LAG_WARNING_SECONDS:
                self._logged_lags[name] = lag
                self._log_lag(lag)
        for name in list(self._logged_lags):
            lag_now = lags.get(name)
            if lag_now is None or self._age_s(lag_now.since_us) < LAG_WARNING_SECONDS:
                self._log_lag_ended(self._logged_lags.pop(name), lag_now)

    def _log_lag(self, lag: DestinationLag) -> None:
        is_connected = self._replication.destinations[lag.destination].is_connected
        self._log.emit(
            "1E-0011",
            destination=lag.destination,
            txid=lag.settled_txid + 1,
            age=timedelta(seconds=self._age_s(lag.since_us)),
            state="connected" if is_connected else "not connected",
        )

    def _log_lag_ended(self, lag: DestinationLag, lag_now: DestinationLag | None) -> None:
        name, reason = lag.destination, "it has caught up"
        tracker = self._replication.ack_tracker
        if name not in self._replication.destinations:
            reason = "it has been removed"
        elif name in tracker.downgraded_destinations:
            reason = "it has been downgraded"
        elif name not in tracker.awaited_destinations:
            reason = "it is async now"
        elif lag_now is not None and lag_now.settled_txid <= lag.settled_txid:
            reason = "it has been changed, and the wait counts anew"
        self._log.emit(
            "1E-0012",
            destination=name,
            age=timedelta(seconds=self._age_s(lag.since_us)),
            why=reason,
        )
