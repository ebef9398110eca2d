"""The time limit of a call that may consist of several waits."""

from __future__ import annotations

import time

from amperage.client.errors import TimedOutError


class TimeLimit:
    """The time limit of a call, which begins now.

    Args:
        timeout_s: the caller's timeout; None for no limit.
    """

    __slots__ = ("_deadline_s", "_timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def remaining_s(self) -> float | None:
        """The remaining seconds; None if there is no limit."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - time.monotonic())

    def timeout_error(self, what: str, why: str | None = None) -> TimedOutError:
        """Return the error for a call that took too long.

        Args:
            what: the name of the event that did not happen.
            why: the reason, if it is known.
        """
        reason = "" if why is None else f": {why}"
        return TimedOutError(f"{what} did not come within {self._timeout_s:g} seconds{reason}")
