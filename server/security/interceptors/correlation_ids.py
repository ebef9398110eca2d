"""Correlation ID Timestamper: writes the time of receipt into publishes.

Source: AMPS User Guide, Transport Filters.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from server.security.interceptors.base import IncomingCommand, Verdict

_PUBLISHING: Final = frozenset(("publish", "p", "delta_publish"))


class CorrelationIdTimestamper:
    """Writes the current time into the correlation id of publishes.

    Args:
        now: returns the wall-clock time in seconds since the Unix epoch.
        override: whether to replace a correlation id that the publisher has set.
    """

    header_only = False

    def __init__(self, now: Callable[[], float], *, override: bool) -> None:
        self._now = now
        self._override = override

    def filter(self, command: IncomingCommand) -> Verdict:
        """Write the time into a publish; pass every command."""
        header = command.header
        if header.command in _PUBLISHING and (self._override or not header.correlation_id):
            header.correlation_id = _iso_8601(self._now())
        return Verdict.PASS


def _iso_8601(seconds: float) -> str:
    """Return a time as UTC with microseconds: 2026-03-01T09:30:00.123456Z."""
    time = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return time.isoformat(timespec="microseconds") + "Z"
