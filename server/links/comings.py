"""Says that links begin and end; of one that does so all the time, how often.

A peer that connects and drops the connection again and again, for it is restarted by something, or
the network between is bad, would fill the log with what is said of each link. Of each direction of
a link the log has the first entries of a minute, and then how many links there were.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log

MOST_ENTRIES: Final = 20
"""Entries about one direction of a link in `SUM_UP_SECONDS`; others are summed up."""

SUM_UP_SECONDS: Final = 60.0

_MOST_CLIENTS: Final = 1000
_ENDED: Final = "1F-0008"
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Window:
    """What has been said of a direction of a link since some moment.

    Attributes:
        since: the moment.
        entries: how many entries there would have been.
        ended: how many links have ended.
        is_up: whether there is one now.
    """

    since: float
    entries: int = 0
    ended: int = 0
    is_up: bool = False


class Comings:
    """Logs what happens to links.

    Args:
        clock: the time, and timers.
        log: where it is said.
    """

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._windows: dict[str, _Window] = {}

    def tell(self, message: str, client: str) -> None:
        """Say that something has happened to a link, or count it.

        Args:
            message: the id of the entry.
            client: the name of the link's direction.
        """
        key = client
        if client not in self._windows and len(self._windows) >= _MOST_CLIENTS:
            key = _OTHERS
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(self._clock.steady())
            self._clock.call_later(SUM_UP_SECONDS, lambda: self._sum_up(key))
        window.entries += 1
        window.ended += message == _ENDED
        window.is_up = message != _ENDED
        if window.entries <= MOST_ENTRIES:
            self._log.emit(message, client=client)

    def _sum_up(self, client: str) -> None:
        """Say what was not said, now that the time is over."""
        window = self._windows.pop(client)
        if window.entries > MOST_ENTRIES:
            self._log.emit(
                "1E-0033",
                client=client,
                count=window.ended,
                age=timedelta(seconds=max(int(self._clock.steady() - window.since), 0)),
                state="connected" if window.is_up else "not connected",
            )
