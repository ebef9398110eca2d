"""Logs replication links going up and down, and rate-limits the entries of links that flap.

A peer that connects and disconnects again and again, because it is restarted repeatedly or the
network between is bad, would fill the log with entries about each link. For each direction of a
link, the log gets the first entries of a minute, and then the number of links.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

MAX_FLAP_ENTRIES: Final = 20
"""Log entries about one direction of a link in `FLAP_SUMMARY_INTERVAL_S`; others are summed up."""

FLAP_SUMMARY_INTERVAL_S: Final = 60.0

_MAX_CLIENTS: Final = 1000
_ENDED: Final = "1F-0008"
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Window:
    """The log entries about a direction of a link since the window began.

    Attributes:
        since_s: the time when it began.
        entry_count: number of entries, including those that were suppressed.
        ended_count: number of links that have ended.
        is_up: whether there is a link now.
    """

    since_s: float
    entry_count: int = 0
    ended_count: int = 0
    is_up: bool = False


class LinkFlapLog:
    """Logs events of links.

    Args:
        clock: the time, and timers.
        log: the event log.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._windows: dict[str, _Window] = {}

    def log_event(self, message: str, client: str) -> None:
        """Log an event of a link, or count it.

        Args:
            message: the id of the entry.
            client: the name of the link's direction.
        """
        key = client
        if client not in self._windows and len(self._windows) >= _MAX_CLIENTS:
            key = _OTHERS
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(self._clock.steady())
            self._clock.call_later(FLAP_SUMMARY_INTERVAL_S, lambda: self._log_summary(key))
        window.entry_count += 1
        window.ended_count += message == _ENDED
        window.is_up = message != _ENDED
        if window.entry_count <= MAX_FLAP_ENTRIES:
            self._log.emit(message, client=client)

    def _log_summary(self, client: str) -> None:
        """Log the number of suppressed entries at the end of the window."""
        window = self._windows.pop(client)
        if window.entry_count > MAX_FLAP_ENTRIES:
            self._log.emit(
                "1E-0033",
                client=client,
                count=window.ended_count,
                age=timedelta(seconds=max(int(self._clock.steady() - window.since_s), 0)),
                state="connected" if window.is_up else "not connected",
            )
