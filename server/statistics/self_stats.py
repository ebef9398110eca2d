"""The figures of the statistics themselves, and the starts and shutdowns of the instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from server.statistics.database import MEMORY
from server.statistics.history import lifetimes
from server.statistics.resources import LIFETIMES, STATISTICS
from server.statistics.sample import StatisticsEntry
from server.statistics.schema import Resource, StatisticValue
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.statistics.database import StatisticsDatabase
    from server.statistics.recorder import StatisticsRecorder

MAX_SHOWN_LIFETIMES: Final = 100
"""Events that are shown: the newest ones."""

_CACHE: Final = 2_048_000
"""Bytes of a file that SQLite caches in memory by default."""


class SelfStatistics:
    """instance/statistics, as of the sample before.

    Args:
        path: of the database.
        interval_ms: between samples.

    Attributes:
        static_values: the path and the interval.
    """

    resource: Resource = STATISTICS

    def __init__(self, path: str, interval_ms: int) -> None:
        self._is_in_memory = path == MEMORY
        self.static_values: tuple[StatisticValue, ...] = (path, interval_ms)
        self._size = 0
        self._growth = 0
        self._queries = 0
        self._last_us = 0
        self._commit_us = 0
        self._sample_count = 0
        self._total_us = 0

    def entries(self) -> Iterator[StatisticsEntry]:
        """Yield the one entry."""
        file_size = 0 if self._is_in_memory else self._size
        memory = self._size if self._is_in_memory else min(self._size, _CACHE)
        dynamic_values = (
            self._growth,
            file_size,
            memory,
            self._queries,
            self._last_us,
            self._commit_us,
            self._sample_count,
            self._total_us,
        )
        yield StatisticsEntry("", self.static_values, dynamic_values)

    def update(
        self, recorder: StatisticsRecorder, *, queries: int, commit_s: float, total_s: float
    ) -> None:
        """Update the figures after a sample has been recorded.

        Args:
            recorder: its recording.
            queries: the number of questions answered so far.
            commit_s: seconds that recording it took.
            total_s: seconds that the sample took altogether.
        """
        size_bytes = recorder.database.size_bytes
        self._is_in_memory = recorder.database.path == MEMORY
        self._growth = max(0, size_bytes - self._size)
        self._size = size_bytes
        self._queries = queries
        self._last_us = round(total_s * MICROSECONDS_PER_SECOND)
        self._commit_us += round(commit_s * MICROSECONDS_PER_SECOND)
        self._sample_count += 1
        self._total_us += self._last_us


class Lifetimes:
    """instance/lifetimes: the recorded starts and shutdowns of the instance."""

    resource: Resource = LIFETIMES

    def __init__(self) -> None:
        self._entries: list[StatisticsEntry] = []

    def read(self, database: StatisticsDatabase) -> None:
        """Read the recorded events."""
        rows = lifetimes(database.connection, MAX_SHOWN_LIFETIMES)
        self._entries = [StatisticsEntry(number, values, ()) for number, values in rows]

    def entries(self) -> Iterator[StatisticsEntry]:
        """Return the newest ones, in their order."""
        return iter(self._entries)
