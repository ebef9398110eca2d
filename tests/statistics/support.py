"""Samples as sources would give them, and a keeper that tests drive."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from server.statistics.rates import SampleRates
from server.statistics.recorder import StatisticsRecorder
from server.statistics.resources import CLIENTS
from server.statistics.sample import StatisticsEntry, StatisticsSample, StatisticsSnapshot
from server.statistics.schema import ColumnType, Resource, StatisticValue
from server.statistics.statistics_thread import StatisticsThread
from server.util.log_protocol import ServerLog
from tests.engine.support import RecordingLog
from tests.support.waiting import wait_until

NOON: Final = 1_700_000_000.0
"""When tests begin, in seconds since the Unix epoch."""

LATER: Final = 1_000
"""Seconds after noon, when it is for keepers."""


def fixed(resource: Resource, name: str) -> tuple[StatisticValue, ...]:
    """The values of an entry that never change."""
    return tuple(
        name if one.type is ColumnType.TEXT else len(name) for one in resource.static_fields
    )


def moving(resource: Resource, number: int) -> tuple[StatisticValue, ...]:
    """The values that a source gives, all of them the same number."""
    values: dict[ColumnType, StatisticValue] = {
        ColumnType.TEXT: str(number),
        ColumnType.INTEGER: number,
        ColumnType.REAL: number + 0.5,
    }
    return tuple(values[one.type] for one in resource.source_fields)


def sample(at: float, entries: Mapping[Resource, Sequence[StatisticsEntry]]) -> StatisticsSample:
    """A sample that is taken some seconds after noon."""
    return StatisticsSample(
        NOON + at, at, {one.path: list(found) for one, found in entries.items()}
    )


@dataclass
class Clients:
    """Clients that come and go, with the values that they have at a moment."""

    _fixed: dict[str, tuple[StatisticValue, ...]] = field(default_factory=dict)

    def sample(self, at: float, counts: Mapping[str, int]) -> StatisticsSample:
        """A sample in which there are some clients, each with a number."""
        for name in [one for one in self._fixed if one not in counts]:
            del self._fixed[name]
        for name in counts:
            self._fixed.setdefault(name, fixed(CLIENTS, f"{name} since {at}"))
        entries = [
            StatisticsEntry(name, self._fixed[name], moving(CLIENTS, count))
            for name, count in counts.items()
        ]
        return sample(at, {CLIENTS: entries})


@dataclass
class Writing:
    """Writes samples to a recording, on the thread of the test."""

    recording: StatisticsRecorder
    rates: SampleRates = field(default_factory=SampleRates)

    def write(self, one: StatisticsSample) -> StatisticsSnapshot:
        """Write a sample; gives what it comes to."""
        snapshot = self.rates.complete(one)
        self.recording.write(one.entries, snapshot)
        return snapshot


@contextmanager
def recorded(path: Path | str, log: RecordingLog | None = None) -> Iterator[Writing]:
    """A recording, closed in the end."""
    recording = StatisticsRecorder(str(path), log or RecordingLog())
    try:
        yield Writing(recording)
    finally:
        recording.close()


@contextmanager
def kept(path: Path | str, log: ServerLog | None = None) -> Iterator[StatisticsThread]:
    """A keeper that runs, closed in the end; for it the time is always the same."""
    keeper = StatisticsThread(str(path), 1000, log or RecordingLog(), clock=lambda: NOON + LATER)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.close()


def take(keeper: StatisticsThread, one: StatisticsSample) -> StatisticsSnapshot:
    """Hand a keeper a sample, and wait until it has become a snapshot."""
    told = threading.Event()
    stop = keeper.add_watcher(lambda _: told.set())
    keeper.add_sample(one)
    wait_until(told.is_set)
    stop()
    assert keeper.latest is not None
    return keeper.latest
