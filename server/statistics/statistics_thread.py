"""The thread of statistics: completes samples, shows and records them, and answers questions.

It does one thing at a time. A sample comes first: it gets the figures of host and process, which
are read here, becomes a snapshot, is `latest`, is passed to watchers, and is recorded. In between,
the thread does maintenance, one step and one pause at a time: it thins out old samples, and
executes requests of actions. Another thread answers questions from the file (`reader.py`). Only if
statistics are in memory are they answered here, one by one, each small enough for a sample to wait
for.

    keeper = StatisticsThread(path, interval_ms, log, sources=[*host_sources(), *process_sources()])
    keeper.start()
    keeper.take(sample)                                          # engine's thread, never waits
    keeper.latest                                                # any thread
    future = keeper.ask(lambda history: history.timestamps())    # any thread
    keeper.close()
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

_CLOSE_SECONDS: Final = 10.0

_PAUSE_SECONDS: Final = 0.02
"""Between two steps of maintenance: questions are answered then."""

_LOOK_SECONDS: Final = 5.0
"""Between two checks for maintenance work."""

_END: Final = object()


class StatisticsThread:
    """Completes, publishes and records samples.

    Args:
        path: the database; ":memory:" for none on disk.
        interval_ms: the time between samples, in milliseconds.
        log: where problems are written.
        sources: those that are read on this thread, for each sample.
        version: the server's, for the record of starts and shutdowns.
        indexed: create an index on static_id, see `layout.statements`.
        clock: seconds since the Unix epoch.

    Attributes:
        latest: the newest snapshot; None before the first.
        dropped: samples dropped because they came too fast.
    """

    def __init__(
        self,
        path: str,
        interval_ms: int,
        log: ServerLog,
        *,
        sources: Sequence[StatisticsSource] = (),
        version: str = AMPS_VERSION,
        indexed: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.latest: StatisticsSnapshot | None = None
        self.dropped = 0
        self._path = path
        self._log = log
        self._version = version
        self._indexed = indexed
        self._clock = clock
        self._rates = SampleRates()
        self._lifetimes = Lifetimes()
        self._own = SelfStatistics(path, interval_ms)
        self._sources = [*sources, self._own, self._lifetimes]
        self._watchers: tuple[Callable[[StatisticsSnapshot], None], ...] = ()
        self._wake = threading.Condition()
        self._samples: deque[StatisticsSample] = deque()
        self._questions: deque[HistoryQuery] = deque()
        self._reader = StatisticsReader(self._put)
        self._chores: deque[tuple[Future[Any], Generator[None, None, None]]] = deque()
        self._tidy_at = 0.0
        self._is_closing = False
        self._complained_of = 0
        self._missing: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="statistics", daemon=True)

    def start(self) -> None:
        """Start the thread, which opens the database."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def take(self, sample: StatisticsSample) -> None:
        """Queue a sample, to be completed and recorded. Never waits."""
        with self._wake:
            self._samples.append(sample)
            if len(self._samples) > MAX_PENDING_SAMPLES:
                self._samples.popleft()
                self.dropped += 1
            self._wake.notify()

    def watch(self, told: Callable[[StatisticsSnapshot], None]) -> Callable[[], None]:
        """Call a function with each new snapshot, on the thread of statistics.

        Returns:
            A function that ends that; harmless if it has ended.
        """
        with self._wake:
            self._watchers = (*self._watchers, told)

        def stop() -> None:
            with self._wake:
                self._watchers = tuple(one for one in self._watchers if one is not told)

        return stop

    def ask(self, question: Callable[[StatisticsHistory], _T]) -> Future[_T]:
        """Queue a question, to be answered on another thread.

        Args:
            question: takes the recorded history; it reads no more than a page or a moment.

        Returns:
            A future with the answer; `ReaderBusyError` if there are too many questions,
            sqlite3.Error if the database cannot be read.
        """
        asked = HistoryQuery(question)
        if self._reader.can_answer:
            self._reader.ask(asked)
        else:
            self._put(asked)
        return asked.answer

    def _put(self, question: HistoryQuery) -> None:
        """Queue a question for the thread of statistics."""
        with self._wake:
            if self._is_closing:
                question.answer.cancel()
            elif len(self._questions) >= MAX_PENDING_HISTORY_QUERIES:
                problem = ReaderBusyError("too many questions wait for the statistics")
                question.answer.set_exception(problem)
            else:
                self._questions.append(question)
                self._wake.notify()

    def truncate(self, age_seconds: float) -> Future[int]:
        """Remove samples that are older than an age, in seconds.

        Returns:
            A future with their number; sqlite3.Error if they cannot be removed.
        """
        return self._do_in_steps(self._truncate(age_seconds))

    def vacuum(self) -> Future[None]:
        """Return unused pages of the file to the file system.

        Returns:
            A future that completes when that is done; sqlite3.Error if it fails.
        """
        return self._do_in_steps(self._vacuum())

    def close(self) -> None:
        """Record the queued samples and the shutdown; abandon all that takes too long."""
        self._reader.close()  # first: if the writer's connection closes last, it leaves one file
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _do_in_steps(self, work: Generator[None, None, _T]) -> Future[_T]:
        """Queue work that is done in steps, between samples and questions."""
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

        with self._wake:
            if self._is_closing:
                future.cancel()
            else:
                self._chores.append((future, steps()))
                self._tidy_at = 0.0
                self._wake.notify()
        return future

    def _run(self) -> None:
        self._recording = StatisticsRecorder(
            self._path, self._log, indexed=self._indexed, let_go=self._reader.let_go
        )
        self._note_lifetime("started")
        self._reader.read(self._recording.place)
        while (job := self._next()) is not None:
            try:
                job()
            except Exception as error:
                self._log.emit("05-0003", error=repr(error))
        self._end()

    def _next(self) -> _Job | None:
        """Wait for the next job; None if the thread has to end."""
        with self._wake:
            while True:
                if self._samples:
                    return partial(self._work_off, self._samples.popleft())
                if self._is_closing:
                    return None
                seconds = self._tidy_at - time.monotonic()
                if seconds <= 0:
                    return self._tidy_up
                if self._questions:
                    question = self._questions.popleft()
                    return lambda: question.put_to(lambda: self._recording.history)
                self._wake.wait(seconds)

    def _work_off(self, sample: StatisticsSample) -> None:
        begun = time.perf_counter()
        taken = {**sample.entries, **self._read_here()}
        snapshot = self._rates.complete(replace(sample, entries=taken))
        self._reader.expect()
        self.latest = snapshot
        for told in self._watchers:
            self._tell(told, snapshot)
        written = time.perf_counter()
        self._recording.write(taken, snapshot)
        done = time.perf_counter()
        self._reader.read(self._recording.place)
        queries = self._recording.queries + self._reader.queries
        self._own.note(self._recording, queries=queries, commit=done - written, whole=done - begun)
        self._complain_of_dropped()

    def _read_here(self) -> Mapping[str, list[StatisticsEntry]]:
        read: dict[str, list[StatisticsEntry]] = {}
        for source in self._sources:
            path = source.resource.path
            try:
                read[path] = list(source.entries())
            except (OSError, ValueError, LookupError) as error:
                if path not in self._missing:
                    self._missing.add(path)
                    self._log.emit("05-0001", resource=path, error=error)
            else:
                self._missing.discard(path)
        return read

    def _tell(
        self, told: Callable[[StatisticsSnapshot], None], snapshot: StatisticsSnapshot
    ) -> None:
        try:
            told(snapshot)
        except Exception as error:
            self._log.emit("05-0003", error=repr(error))

    def _complain_of_dropped(self) -> None:
        dropped = self.dropped
        if dropped > self._complained_of:
            self._log.emit("05-0002", count=dropped - self._complained_of)
            self._complained_of = dropped

    def _tidy_up(self) -> None:
        """Take a step of an action's request, or else of thinning out."""
        if self._chores:
            if next(self._chores[0][1], _END) is _END:
                self._chores.popleft()
            has_more = True
        else:
            has_more = self._recording.thin_out(from_unix(self._clock()))
        with self._wake:
            pause = _PAUSE_SECONDS if has_more else _LOOK_SECONDS
            self._tidy_at = time.monotonic() + pause

    def _truncate(self, age_seconds: float) -> Generator[None, None, int]:
        before, count = from_unix(self._clock() - age_seconds), 0
        while removed := remove(self._recording.database, before):
            count += removed
            yield
        remove_lifetimes(self._recording.database, before)
        self._lifetimes.read(self._recording.database)
        self._log.emit("1B-0004", count=count, before=to_text(before))
        return count

    def _vacuum(self) -> Generator[None, None, None]:
        before = self._recording.database.size
        while self._recording.database.vacuum_step():
            yield
        self._log.emit("1B-0005", bytes=max(0, before - self._recording.database.size))

    def _note_lifetime(self, event: str) -> None:
        now = from_unix(self._clock())
        self._recording.note_lifetime(now, (event, to_text(now), self._version))
        self._lifetimes.read(self._recording.database)

    def _end(self) -> None:
        with suppress(sqlite3.Error):
            self._note_lifetime("shutdown")
        for question in self._questions:
            question.answer.cancel()
        for future, steps in self._chores:
            steps.close()
            future.cancel()
        self._recording.close()
