"""Measures the statements of one connection: counts them, and finds the slow ones.

The execution time of a statement includes the wait for a thread, and for the transaction log. It
excludes the times in which the statement is suspended: until the client reads, or until there are
changes to send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.sql_counters import SqlCounters


class SlowStatement(NamedTuple):
    """A statement that took long.

    Attributes:
        text: the statement.
        duration_s: its execution time in seconds.
        rows: the rows that were sent.
    """

    text: str
    duration_s: float
    rows: int


class StatementMeter:
    """Measures one statement at a time. Called on the engine's thread.

    Args:
        counters: those of the instance.
        now: a monotonic clock, in seconds.
        slow_query_s: the execution time in seconds from which on a statement is slow; None: none
            is.
    """

    def __init__(
        self, counters: SqlCounters, now: Callable[[], float], slow_query_s: float | None
    ) -> None:
        self._counters = counters
        self._now = now
        self._slow_query_s = slow_query_s
        self._text: str | None = None
        self._is_timing = False
        self._resumed_s = 0.0
        self._duration_s = 0.0
        self._rows = 0

    def begin(self, text: str | None) -> None:
        """Begin a statement.

        Args:
            text: the statement; None for an event that executes none, such as Parse. Its time and
                errors count.
        """
        self._text = text
        self._duration_s, self._rows = 0.0, 0
        if text is not None:
            self._counters.statements += 1
            self._counters.running += 1
        self.resume()

    def resume(self) -> None:
        """Note that a thread goes on with the statement."""
        self._is_timing = True
        self._resumed_s = self._now()

    def suspend(self) -> None:
        """Note that no thread works on the statement."""
        if self._is_timing:
            self._is_timing = False
            self._duration_s += self._now() - self._resumed_s

    def add_output(self, size: int, rows: int) -> None:
        """Count output.

        Args:
            size: bytes.
            rows: the rows in them.
        """
        self._rows += rows
        self._counters.bytes_sent += size
        self._counters.rows_sent += rows

    def end(self, sqlstate: str | None) -> tuple[float, SlowStatement | None]:
        """End the statement.

        Args:
            sqlstate: that of the error; None if it succeeded.

        Returns:
            Its execution time in seconds, and the statement if it was slow.
        """
        self.suspend()
        if sqlstate is not None:
            self._counters.count_error(sqlstate)
        text, duration_s = self._text, self._duration_s
        self.abandon()
        if text is None:
            return duration_s, None
        self._counters.durations_us.add(int(duration_s * MICROSECONDS_PER_SECOND))
        if self._slow_query_s is None or duration_s < self._slow_query_s:
            return duration_s, None
        self._counters.slow += 1
        return duration_s, SlowStatement(text, duration_s, self._rows)

    def abandon(self) -> None:
        """End the statement of a client that is gone, if there is one."""
        if self._text is not None:
            self._text = None
            self._counters.running -= 1
