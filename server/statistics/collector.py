"""Takes a sample of all resources once per Interval, in time slices between other work.

With ten thousand subscriptions a sample is tens of milliseconds of work. It waits in the queue of
the scheduler like a query does, and yields after half a millisecond. So its entries are not all of
one moment: each has its values as of its time slice. If an Interval ends before the last sample is
complete, one sample is skipped, which is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from server.statistics.sample import StatisticsEntry, StatisticsSample, StatisticsSource

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

SLICE_SECONDS: Final = 0.000_5
"""How long entries are read before other tasks run."""

_TAKE_BATCH_SIZE: Final = 8
"""Entries that are read between two looks at the clock: some microseconds each at most."""


class StatisticsCollector:
    """Takes samples.

    Args:
        interval: seconds between samples.
        on_sample: takes each sample.
        scheduler: the scheduler of the engine's thread.
        clock: the time of day, and timers.
        elapsed: seconds since some moment, monotonic.
        log: for the failures of sources.

    Attributes:
        lag_s: seconds by which the last sample began too late, waiting for its time slice.
        skipped_samples: Intervals without a sample, because the one before was still being taken.
    """

    def __init__(
        self,
        interval: float,
        on_sample: Callable[[StatisticsSample], None],
        scheduler: Scheduler,
        clock: Clock,
        elapsed: Callable[[], float],
        log: ServerLog,
    ) -> None:
        self.lag_s = 0.0
        self.skipped_samples = 0
        self._sources: Sequence[StatisticsSource] = ()
        self._interval = interval
        self._on_sample = on_sample
        self._scheduler = scheduler
        self._clock = clock
        self._elapsed = elapsed
        self._log = log
        self._failed_resources: set[str] = set()  # resources with a failure that has been logged
        self._due_at = 0.0
        self._cancel: Callable[[], None] | None = None
        self._remaining: Iterator[None] | None = None  # the rest of the sample under way

    def start(self, sources: Sequence[StatisticsSource]) -> None:
        """Take a sample now, and one per Interval from now on.

        Args:
            sources: the sources, in the order in which they are read.
        """
        self._sources = sources
        self._due_at = self._elapsed()
        self._begin_sample()

    def set_interval(self, interval: float) -> None:
        """Take the next sample after another interval, in seconds, and one per interval then."""
        self._interval = interval
        if self._cancel is not None:
            self._cancel()
        self._due_at = self._elapsed() + interval
        self._cancel = self._clock.call_later(interval, self._begin_sample)

    def close(self) -> None:
        """Take no more samples, and drop an incomplete one."""
        if self._cancel is not None:
            self._cancel()
        self._remaining = None

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return "", "statistics"

    def step(self) -> bool:
        """Read some more entries of the sample. See `EngineTask.step`."""
        if self._remaining is None:
            return False
        end = self._elapsed() + SLICE_SECONDS
        for _ in self._remaining:
            if self._elapsed() >= end:
                return True
        self._remaining = None
        return False

    def _begin_sample(self) -> None:
        """Begin a sample, unless there is one under way, and schedule the next one."""
        due_at, now = self._due_at, self._elapsed()
        self._due_at = max(due_at + self._interval, now)
        self._cancel = self._clock.call_later(self._due_at - now, self._begin_sample)
        if self._remaining is not None:
            self.skipped_samples += 1
            return
        self._remaining = self._collect_sample(due_at)
        self._scheduler.queue_task(self)

    def _collect_sample(self, due: float) -> Iterator[None]:
        """Take a sample, some entries at a time, and pass it on."""
        elapsed = self._elapsed()
        self.lag_s = max(elapsed - due, 0.0)
        taken_at = self._clock.now()
        entries = {}
        for source in self._sources:
            collected = entries[source.resource.path] = list[StatisticsEntry]()
            try:
                source_entries, count = source.entries(), -1
                while len(collected) > count:
                    count = len(collected)
                    collected.extend(islice(source_entries, _TAKE_BATCH_SIZE))
                    yield
            except Exception as error:  # a defect: the other resources are still of interest
                self._log_failure(source, error)
        self._on_sample(StatisticsSample(taken_at, elapsed, entries))

    def _log_failure(self, source: StatisticsSource, error: Exception) -> None:
        """Log once that entries of a resource could not be read."""
        path = source.resource.path
        if path not in self._failed_resources:
            self._failed_resources.add(path)
            self._log.emit("01-0004", text=f"statistics of {path}", error=repr(error))
