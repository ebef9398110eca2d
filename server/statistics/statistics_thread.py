"""The thread of statistics: completes samples, shows and records them, and answers queries.

It does one thing at a time. A sample comes first: it gets the figures of host and process, which
are read here, becomes a snapshot, is `latest`, is passed to watchers, and is recorded. In between,
the thread does maintenance, one step and one pause at a time: it thins out old samples, and
executes requests of actions. Another thread answers queries from the file (`reader.py`). Only if
statistics are in memory are they answered here, one by one, each small enough for a sample to wait
for.

    thread = StatisticsThread(path, interval_ms, log, sources=[*host_sources(), *process_sources()])
    thread.start()
    thread.add_sample(sample)                                    # engine's thread, never waits
    thread.latest                                                # any thread
    future = thread.query(lambda history: history.timestamps())  # any thread
    thread.close()
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from config_schema.version import AMPS_VERSION
from server.statistics.rates import SampleRates
from server.statistics.reader import (
    MAX_PENDING_HISTORY_QUERIES,
    HistoryQuery,
    ReaderBusyError,
    StatisticsReader,
)
from server.statistics.recorder import StatisticsRecorder
from server.statistics.retention import remove, remove_lifetimes
from server.statistics.sample import (
    StatisticsEntry,
    StatisticsSample,
    StatisticsSnapshot,
    StatisticsSource,
)
from server.statistics.self_stats import Lifetimes, SelfStatistics
from server.statistics.timestamps import from_unix, to_text

if TYPE_CHECKING:
    from server.statistics.history import StatisticsHistory
    from server.util.log_protocol import ServerLog

_T = TypeVar("_T")
_Job = Callable[[], None]

MAX_PENDING_SAMPLES: Final = 2
"""Samples that wait for the thread; if more come, the oldest is dropped."""

_CLOSE_TIMEOUT_S: Final = 10.0

_MAINTENANCE_PAUSE_S: Final = 0.02
"""Between two steps of maintenance: queries are answered then."""

_MAINTENANCE_INTERVAL_S: Final = 5.0
"""Between two checks for maintenance work."""

_END: Final = object()


class StatisticsThread:
    """Completes, publishes and records samples.

    Args:
        path: the database; ":memory:" for none on disk.
        interval_ms: the time between samples, in milliseconds.
        log: where problems are written.
        sources: the sources that are read on this thread, for each sample.
        indexed: create an index on static_id, see `layout.statements`.
        clock: seconds since the Unix epoch.

    Attributes:
        latest: the newest snapshot; None before the first.
        dropped_samples: samples dropped because they came too fast.
    """

    def __init__(
        self,
        path: str,
        interval_ms: int,
        log: ServerLog,
        *,
        sources: Sequence[StatisticsSource] = (),
        indexed: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.latest: StatisticsSnapshot | None = None
        self.dropped_samples = 0
        self._interval_ms = interval_ms
        self._path = path
        self._log = log
        self._indexed = indexed
        self._clock = clock
        self._rates = SampleRates()
        self._lifetimes = Lifetimes()
        self._self_statistics = SelfStatistics(path, interval_ms)
        self._sources = [*sources, self._self_statistics, self._lifetimes]
        self._watchers: tuple[Callable[[StatisticsSnapshot], None], ...] = ()
        self._condition = threading.Condition()
        self._samples: deque[StatisticsSample] = deque()
        self._pending_queries: deque[HistoryQuery] = deque()
        self._reader = StatisticsReader(self._queue_query)
        self._maintenance_jobs: deque[tuple[Future[Any], Generator[None, None, None]]] = deque()
        self._maintenance_at = 0.0
        self._is_closing = False
        self._logged_dropped = 0
        self._failed_resources: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="statistics", daemon=True)

    @property
    def interval_ms(self) -> int:
        """The time between samples, in milliseconds. Samples are taken elsewhere."""
        return self._interval_ms

    @interval_ms.setter
    def interval_ms(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._self_statistics.static_values = self._path, interval_ms

    def start(self) -> None:
        """Start the thread, which opens the database."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def add_sample(self, sample: StatisticsSample) -> None:
        """Queue a sample, to be completed and recorded. Never waits."""
        with self._condition:
            self._samples.append(sample)
            if len(self._samples) > MAX_PENDING_SAMPLES:
                self._samples.popleft()
                self.dropped_samples += 1
            self._condition.notify()

    def add_watcher(self, watcher: Callable[[StatisticsSnapshot], None]) -> Callable[[], None]:
        """Call a function with each new snapshot, on the thread of statistics.

        Returns:
            A function that ends that; harmless if it has ended.
        """
        with self._condition:
            self._watchers = (*self._watchers, watcher)

        def stop() -> None:
            with self._condition:
                self._watchers = tuple(other for other in self._watchers if other is not watcher)

        return stop

    def query(self, function: Callable[[StatisticsHistory], _T]) -> Future[_T]:
        """Queue a query, to be answered on another thread.

        Args:
            function: takes the recorded history; it reads no more than a page or a moment.

        Returns:
            A future with the answer; `ReaderBusyError` if there are too many queries,
            sqlite3.Error if the database cannot be read.
        """
        history_query = HistoryQuery(function)
        if self._reader.can_answer:
            self._reader.submit(history_query)
        else:
            self._queue_query(history_query)
        return history_query.future

    def _queue_query(self, query: HistoryQuery) -> None:
        """Queue a query for the thread of statistics."""
        with self._condition:
            if self._is_closing:
                query.future.cancel()
            elif len(self._pending_queries) >= MAX_PENDING_HISTORY_QUERIES:
                problem = ReaderBusyError("too many questions wait for the statistics")
                query.future.set_exception(problem)
            else:
                self._pending_queries.append(query)
                self._condition.notify()

    def truncate(self, age_seconds: float) -> Future[int]:
        """Remove samples that are older than an age, in seconds.

        Returns:
            A future with their number; sqlite3.Error if they cannot be removed.
        """
        return self._queue_maintenance(self._truncate(age_seconds))

    def vacuum(self) -> Future[None]:
        """Return unused pages of the file to the file system.

        Returns:
            A future that completes when that is done; sqlite3.Error if it fails.
        """
        return self._queue_maintenance(self._vacuum())

    def close(self) -> None:
        """Record the queued samples and the shutdown; abandon all that takes too long."""
        self._reader.close()  # first: if the writer's connection closes last, it leaves one file
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _queue_maintenance(self, work: Generator[None, None, _T]) -> Future[_T]:
        """Queue work that is done in steps, between samples and queries."""
        future: Future[_T] = Future()

        def steps() -> Generator[None, None, None]:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result((yield from work))
            except GeneratorExit:
                future.set_exception(CancelledError())
                raise
            except Exception as error:
                future.set_exception(error)

        with self._condition:
            if self._is_closing:
                future.cancel()
            else:
                self._maintenance_jobs.append((future, steps()))
                self._maintenance_at = 0.0
                self._condition.notify()
        return future

    def _run(self) -> None:
        self._recorder = StatisticsRecorder(
            self._path, self._log, indexed=self._indexed, release_readers=self._reader.release_file
        )
        self._record_lifetime("started")
        self._reader.set_location(self._recorder.location)
        while (job := self._next_job()) is not None:
            try:
                job()
            except Exception as error:
                self._log.emit("05-0003", error=repr(error))
        self._shut_down()

    def _next_job(self) -> _Job | None:
        """Wait for the next job; None if the thread has to end."""
        with self._condition:
            while True:
                if self._samples:
                    return partial(self._process_sample, self._samples.popleft())
                if self._is_closing:
                    return None
                seconds = self._maintenance_at - time.monotonic()
                if seconds <= 0:
                    return self._run_maintenance
                if self._pending_queries:
                    query = self._pending_queries.popleft()
                    return lambda: query.execute(lambda: self._recorder.history)
                self._condition.wait(seconds)

    def _process_sample(self, sample: StatisticsSample) -> None:
        begun_s = time.perf_counter()
        entries = {**sample.entries, **self._read_sources()}
        snapshot = self._rates.complete(replace(sample, entries=entries))
        self._reader.expect_sample()
        self.latest = snapshot
        for watcher in self._watchers:
            self._notify_watcher(watcher, snapshot)
        processed_s = time.perf_counter()
        self._recorder.write(entries, snapshot)
        recorded_s = time.perf_counter()
        self._reader.set_location(self._recorder.location)
        queries = self._recorder.query_count + self._reader.query_count
        self._self_statistics.update(
            self._recorder,
            queries=queries,
            commit_s=recorded_s - processed_s,
            total_s=recorded_s - begun_s,
        )
        self._log_dropped()

    def _read_sources(self) -> Mapping[str, list[StatisticsEntry]]:
        read: dict[str, list[StatisticsEntry]] = {}
        for source in self._sources:
            path = source.resource.path
            try:
                read[path] = list(source.entries())
            except (OSError, ValueError, LookupError) as error:
                if path not in self._failed_resources:
                    self._failed_resources.add(path)
                    self._log.emit("05-0001", resource=path, error=error)
            else:
                self._failed_resources.discard(path)
        return read

    def _notify_watcher(
        self, watcher: Callable[[StatisticsSnapshot], None], snapshot: StatisticsSnapshot
    ) -> None:
        try:
            watcher(snapshot)
        except Exception as error:
            self._log.emit("05-0003", error=repr(error))

    def _log_dropped(self) -> None:
        dropped_samples = self.dropped_samples
        if dropped_samples > self._logged_dropped:
            self._log.emit("05-0002", count=dropped_samples - self._logged_dropped)
            self._logged_dropped = dropped_samples

    def _run_maintenance(self) -> None:
        """Take a step of an action's request, or else of thinning out."""
        if self._maintenance_jobs:
            if next(self._maintenance_jobs[0][1], _END) is _END:
                self._maintenance_jobs.popleft()
            has_more = True
        else:
            has_more = self._recorder.thin_out_step(from_unix(self._clock()))
        with self._condition:
            pause = _MAINTENANCE_PAUSE_S if has_more else _MAINTENANCE_INTERVAL_S
            self._maintenance_at = time.monotonic() + pause

    def _truncate(self, age_seconds: float) -> Generator[None, None, int]:
        before, count = from_unix(self._clock() - age_seconds), 0
        while removed := remove(self._recorder.database, before):
            count += removed
            yield
        remove_lifetimes(self._recorder.database, before)
        self._lifetimes.read(self._recorder.database)
        self._log.emit("1B-0004", count=count, before=to_text(before))
        return count

    def _vacuum(self) -> Generator[None, None, None]:
        before = self._recorder.database.size_bytes
        while self._recorder.database.vacuum_step():
            yield
        self._log.emit("1B-0005", bytes=max(0, before - self._recorder.database.size_bytes))

    def _record_lifetime(self, event: str) -> None:
        now = from_unix(self._clock())
        self._recorder.write_lifetime_event(now, (event, to_text(now), AMPS_VERSION))
        self._lifetimes.read(self._recorder.database)

    def _shut_down(self) -> None:
        with suppress(sqlite3.Error):
            self._record_lifetime("shutdown")
        for pending_query in self._pending_queries:
            pending_query.future.cancel()
        for future, steps in self._maintenance_jobs:
            steps.close()
            future.cancel()
        self._recorder.close()
