"""The figures of the statistics themselves, and the starts and shutdowns of the instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from server.statistics.database import MEMORY
from server.statistics.history import lifetimes
from server.statistics.resources import LIFETIMES, STATISTICS
from server.statistics.sample import StatisticsEntry
from server.statistics.schema import Resource, StatisticValue

if TYPE_CHECKING:
    from server.statistics.database import StatisticsDatabase
    from server.statistics.recorder import StatisticsRecorder

MAX_SHOWN_LIFETIMES: Final = 100
"""Events that are shown: the newest ones."""

_CACHE: Final = 2_048_000
"""Bytes of a file that SQLite caches in memory by default."""

_MICROSECONDS: Final = 1_000_000


class SelfStatistics:
    """instance/statistics, as of the sample before.

    Args:
        path: of the database.
        interval_ms: between samples.
    """

    resource: Resource = STATISTICS

    def __init__(self, path: str, interval_ms: int) -> None:
        self._is_in_memory = path == MEMORY
        self._static_values: tuple[StatisticValue, ...] = (path, interval_ms)
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
        moving = (
            self._growth,
            file_size,
            memory,
            self._queries,
            self._last_us,
            self._commit_us,
            self._sample_count,
            self._total_us,
        )
        yield StatisticsEntry("", self._static_values, moving)

    def update(
        self, recording: StatisticsRecorder, *, queries: int, commit: float, whole: float
    ) -> None:
        """Update the figures after a sample has been recorded.

        Args:
            recording: its recording.
            queries: the number of questions answered so far.
            commit: seconds that recording it took.
            whole: seconds that the sample took altogether.
        """
        size_bytes = recording.database.size_bytes
        self._is_in_memory = recording.database.path == MEMORY
        self._growth = max(0, size_bytes - self._size)
        self._size = size_bytes
        self._queries = queries
        self._last_us = round(whole * _MICROSECONDS)
        self._commit_us += round(commit * _MICROSECONDS)
        self._sample_count += 1
        self._total_us += self._last_us


class Lifetimes:
    """instance/lifetimes: the recorded starts and shutdowns of the instance."""

    resource: Resource = LIFETIMES

    def __init__(self) -> None:
        self._entries: list[StatisticsEntry] = []

    def read(self, database: StatisticsDatabase) -> None:
        """Read the recorded events."""
        found = lifetimes(database.connection, MAX_SHOWN_LIFETIMES)
        self._entries = [StatisticsEntry(number, values, ()) for number, values in found]

    def entries(self) -> Iterator[StatisticsEntry]:
        """Return the newest ones, in their order."""
        return iter(self._entries)
