"""Answers queries about the recorded samples, on a thread and a connection of its own.

A page of values from a cold disk may take a second, and no sample has to wait for that: in SQLite's
WAL mode readers do not block the writer. Only a database in memory is read on the writer's thread
(`statistics_thread.py`), since there is one connection to it.

The file may be replaced: there is a new one when the old one has been removed or renamed. The
thread of statistics passes its `DatabaseLocation` to `StatisticsReader.set_location`, and the next
query goes there.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from server.statistics.history import StatisticsHistory

MAX_PENDING_HISTORY_QUERIES: Final = 1_000
"""Queries that wait to be answered; more are refused."""

_BUSY_SECONDS: Final = 1.0
"""How long a query waits for another process that has locked the file."""

_SAMPLE_TIMEOUT_S: Final = 5.0
"""How long a query waits for the last sample to be recorded, so that it sees the sample."""

_CLOSE_SECONDS: Final = 5.0


class ReaderBusyError(Exception):
    """More queries wait for the database than it can answer in a reasonable time."""


class DatabaseLocation(NamedTuple):
    """A file that can be read.

    Attributes:
        path: its path.
        open_count: how often a file has been opened for writing; another number is another file.
    """

    path: str
    open_count: int


class HistoryQuery:
    """A query, and the future of its answer."""

    def __init__(self, function: Callable[[StatisticsHistory], Any]) -> None:
        self.future: Final = Future[Any]()
        self._function = function

    def execute(self, history: Callable[[], StatisticsHistory]) -> None:
        """Execute the query, unless its answer has been cancelled.

        Args:
            history: returns the history to query.
        """
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function(history()))
        except Exception as error:
            self.future.set_exception(error)


class StatisticsReader:
    """Answers queries from a file.

    Args:
        fallback: takes queries when there is no file any more.

    Attributes:
        query_count: the number of answered queries.
    """

    def __init__(self, fallback: Callable[[HistoryQuery], None]) -> None:
        self.query_count = 0
        self._fallback = fallback
        self._location: DatabaseLocation | None = None
        self._condition = threading.Condition()
        self._pending_queries: deque[HistoryQuery] = deque()
        self._is_closing = False
        self._is_recorded = False
        self._opened_file: tuple[DatabaseLocation, sqlite3.Connection] | None = None
        self._thread = threading.Thread(target=self._run, name="statistics reader", daemon=True)

    @property
    def can_answer(self) -> bool:
        """Whether there is a file to be read."""
        return self._location is not None

    def expect_sample(self) -> None:
        """Hold back queries until a sample that is about to be published is recorded."""
        self._is_recorded = False

    def set_location(self, location: DatabaseLocation | None) -> None:
        """Read from now on from a file, which has the last sample; None for no file."""
        with self._condition:
            self._location = location
            self._is_recorded = True
            self._condition.notify()
        if location is not None and self._thread.ident is None:
            self._thread.start()

    def release_file(self) -> None:
        """Close the file before its writer does; a query under way is interrupted."""
        with self._condition:
            self._location = None
            self._condition.notify()
            if self._opened_file is not None:
                self._opened_file[1].interrupt()
            self._condition.wait_for(lambda: self._opened_file is None, _CLOSE_SECONDS)

    def submit(self, query: HistoryQuery) -> None:
        """Queue a query; the answer is `ReaderBusyError` if too many wait."""
        with self._condition:
            if self._is_closing:
                query.future.cancel()
            elif len(self._pending_queries) >= MAX_PENDING_HISTORY_QUERIES:
                query.future.set_exception(
                    ReaderBusyError("too many questions wait for the statistics")
                )
            else:
                self._pending_queries.append(query)
                self._condition.notify()

    def close(self) -> None:
        """Stop answering; a query under way is interrupted."""
        with self._condition:
            self._is_closing = True
            for query in self._pending_queries:
                query.future.cancel()
            self._pending_queries.clear()
            self._condition.notify()
            if self._opened_file is not None:
                self._opened_file[1].interrupt()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while (query := self._next_query()) is not None:
            location = self._wait_for_location()
            if location is None and self._is_recorded:
                self._fallback(query)
            else:
                query.execute(partial(self._history, location))
        self._close()

    def _next_query(self) -> HistoryQuery | None:
        with self._condition:
            while True:
                if self._opened_file is not None and self._opened_file[0] != self._location:
                    self._close()
                if self._pending_queries:
                    return self._pending_queries.popleft()
                if self._is_closing:
                    return None
                self._condition.wait()

    def _history(self, location: DatabaseLocation | None) -> StatisticsHistory:
        """Return the history of a file, and open the file if needed.

        Raises:
            sqlite3.Error: it cannot be opened, or is not known yet.
        """
        if location is None:
            raise sqlite3.OperationalError("the last sample is still being recorded")
        if self._opened_file is None:
            uri = f"{Path(location.path).absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            with self._condition:
                self._opened_file = location, connection
        self.query_count += 1
        return StatisticsHistory(self._opened_file[1])

    def _wait_for_location(self) -> DatabaseLocation | None:
        """Wait until the last sample is recorded, if that does not take too long.

        Returns:
            Its place; None for no file.
        """
        end = time.monotonic() + _SAMPLE_TIMEOUT_S
        with self._condition:
            while True:
                if self._opened_file is not None and self._opened_file[0] != self._location:
                    self._close()
                seconds = end - time.monotonic()
                if self._is_recorded or seconds <= 0:
                    return self._location
                self._condition.wait(seconds)

    def _close(self) -> None:
        with self._condition:
            if self._opened_file is not None:
                self._opened_file[1].close()
                self._opened_file = None
                self._condition.notify_all()
