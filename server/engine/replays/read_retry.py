"""Retries of readers while a part of the log cannot be read.

A failure to open or read a file says nothing about its contents: descriptors may have run out, or a
disk may have been slow. No entry is skipped. The reader retries, and after long enough it gives up
and reports the failure to its subscriber.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.storage.journal import JournalUnreadableError

RETRY_INTERVAL_S: Final = 0.25
"""Delay before a retry."""

_MAX_SECONDS: Final = 30.0
"""Time after which a reader gives up."""


class ReadRetry:
    """The retry state of one reader.

    Args:
        engine: has the log of read errors and the clock.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._failing_since_s: float | None = None

    def record_success(self) -> None:
        """Note a successful read."""
        self._failing_since_s = None

    def record_failure(self, error: JournalUnreadableError) -> bool:
        """Note a failed attempt, and return whether the reader should give up."""
        self._engine.read_error_log.emit("1D-0013", text=str(error))
        now = self._engine.clock.steady()
        if self._failing_since_s is None:
            self._failing_since_s = now
        return now - self._failing_since_s >= _MAX_SECONDS
