"""The time limit of a call that may consist of several waits."""

from __future__ import annotations

import time

from amperage.client.errors import TimedOutError


class TimeLimit:
    """The time limit of a call, which begins now.

    Args:
        seconds: the caller's timeout; None for no limit.
    """

    __slots__ = ("_end", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """The remaining seconds; None if there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def exceeded(self, what: str, why: str | None = None) -> TimedOutError:
        """Return the error for a call that took too long.

        Args:
            what: the name of the event that did not happen.
            why: the reason, if it is known.
        """
        reason = "" if why is None else f": {why}"
        return TimedOutError(f"{what} did not come within {self._seconds:g} seconds{reason}")
