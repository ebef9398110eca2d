"""Logs replication links going up and down, and rate-limits the entries of links that flap.

A peer that connects and disconnects again and again, because it is restarted repeatedly or the
network between is bad, would fill the log with entries about each link. For each direction of a
link, the log gets the first entries of a minute, and then the number of links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.util.rate_limited_log import LogWindow, RateLimitedLog

if TYPE_CHECKING:
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

MAX_FLAP_ENTRIES: Final = 20
"""Log entries about one direction of a link in `FLAP_SUMMARY_INTERVAL_S`; others are summed up."""

FLAP_SUMMARY_INTERVAL_S: Final = 60.0

_ENDED: Final = "1F-0008"


class LinkFlapLog:
    """Logs events of links.

    Args:
        clock: the time, and timers.
        log: the event log.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self._log: Final = RateLimitedLog(
            log,
            clock,
            burst=MAX_FLAP_ENTRIES,
            window_s=FLAP_SUMMARY_INTERVAL_S,
            summary=_log_ended_count,
            is_joint=True,
        )

    def log_event(self, message: str, client: str) -> None:
        """Log an event of a link, or count it.

        Args:
            message: the id of the entry.
            client: the name of the link's direction.
        """
        self._log.emit_events(message, client, {"client": client}, events=int(message == _ENDED))


def _log_ended_count(log: ServerLog, window: LogWindow) -> None:
    """Log the number of links of a direction that have ended, and whether there is one now."""
    log.emit(
        "1E-0033",
        client=window.cause,
        count=window.event_count,
        age=window.age,
        state="not connected" if window.message_id == _ENDED else "connected",
    )
