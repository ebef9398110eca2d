"""Counts the work of the SQL connections of an instance, for statistics.

It belongs to the engine, since statistics do not import the packages of SQL: their libraries may be
missing. Written and read on the engine's thread; the histogram is read by others, too.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from server.util.histogram import Histogram

_CANCELLED: Final = "57014"
_MEMORY_LIMIT: Final = "53200"
_CLASS_LENGTH: Final = 2


class SqlCounters:
    """The counters, since the start.

    A statement is a text of the simple protocol, which may have several, or one execution of a
    prepared statement.

    Attributes:
        statements: statements that have begun.
        running: statements in progress.
        errors: errors of statements, by the class of their SQLSTATE, its first two characters;
            those of preparing and describing statements included.
        cancelled: statements that were cancelled, by the client or by a timeout.
        memory_limit_hits: statements that failed because of a limit of memory.
        slow: statements that took longer than SlowQuery.
        rows_sent: rows.
        bytes_sent: bytes of results.
        durations_us: execution times of statements, in microseconds.
    """

    def __init__(self) -> None:
        self.statements = 0
        self.running = 0
        self.errors: Final[Counter[str]] = Counter()
        self.cancelled = 0
        self.memory_limit_hits = 0
        self.slow = 0
        self.rows_sent = 0
        self.bytes_sent = 0
        self.durations_us: Final = Histogram()

    def count_error(self, sqlstate: str) -> None:
        """Count an error that a client was sent."""
        self.errors[sqlstate[:_CLASS_LENGTH]] += 1
        self.cancelled += sqlstate == _CANCELLED
        self.memory_limit_hits += sqlstate == _MEMORY_LIMIT
