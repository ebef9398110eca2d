"""Records samples in the file, or in memory as long as the file cannot be written to.

A file may be full, read-only, locked, damaged, or of another program. In any case the failure is
logged, statistics go on in memory, and the file is retried once a minute. The samples recorded in
memory meanwhile are moved to it then. Nothing is destroyed: a damaged database, or one that has
other tables, AMPS's own for instance, is renamed, and can be read by `amps-sqlite3`. A file that is
no database at all is not even renamed, nor is a database of a later version of this program.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from server.statistics.database import (
    MEMORY,
    DatabaseVersionError,
    ForeignDatabaseError,
    StatisticsDatabase,
)
from server.statistics.history import StatisticsHistory
from server.statistics.reader import DatabaseLocation
from server.statistics.retention import SampleRetention
from server.statistics.sample import StatisticsEntry, StatisticsSnapshot
from server.statistics.schema import StatisticValue

if TYPE_CHECKING:
    from server.util.log_protocol import ServerLog

_T = TypeVar("_T")

RETRY_INTERVAL_S: Final = 60.0
"""Between two attempts to write to the file again."""

_PRIMARY: Final = 0xFF
"""The bits of SQLite's error codes for the kind of error; the others are details."""

_SIDECARS: Final = ("-wal", "-shm", "-journal")


class StatisticsRecorder:
    """Records samples in the file or in memory.

    Args:
        path: the file; ":memory:" for none.
        log: where problems are written.
        indexed: see `layout.statements`.
        clock: seconds, monotonic.
        release_readers: makes readers of the file close it, before it is closed here.
    """

    def __init__(
        self,
        path: str,
        log: ServerLog,
        *,
        indexed: bool = False,
        clock: Callable[[], float] = time.monotonic,
        release_readers: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._log = log
        self._indexed = indexed
        self._clock = clock
        self._release_readers = release_readers
        self._retry_at = 0.0
        self._has_renamed = False
        self._queries = 0
        self._open_count = 0
        self._set_database(self._open())

    @property
    def uses_configured_path(self) -> bool:
        """Whether samples are recorded in the configured place."""
        return self.database.path == self.path

    @property
    def location(self) -> DatabaseLocation | None:
        """The file that can be read; None if samples are recorded in memory."""
        path = self.database.path
        return None if path == MEMORY else DatabaseLocation(path, self._open_count)

    @property
    def query_count(self) -> int:
        """The number of questions answered from the database."""
        return self._queries + self.history.query_count

    def write(
        self, entries: Mapping[str, list[StatisticsEntry]], snapshot: StatisticsSnapshot
    ) -> None:
        """Write a sample: to the file if that is possible now, otherwise to memory."""
        if not self.uses_configured_path and self._clock() >= self._retry_at:
            self._resume_file()
        elif not self.database.is_in_place:
            self._use_database(self._open())
        self.run_with_database(lambda database: database.write(entries, snapshot))

    def write_lifetime_event(self, timestamp: int, values: tuple[StatisticValue, ...]) -> None:
        """Write an event in the life of the instance."""
        self.run_with_database(lambda database: database.write_lifetime_event(timestamp, values))

    def thin_out_step(self, now: int) -> bool:
        """Take a step of thinning out old samples.

        Args:
            now: the timestamp of the present.

        Returns:
            Whether there may be more to do.
        """
        return self.run_with_database(lambda _: self._retention.thin_out_step(now))

    def run_with_database(self, work: Callable[[StatisticsDatabase], _T]) -> _T:
        """Call a function with the database; if that fails, call it with one in memory."""
        try:
            return work(self.database)
        except sqlite3.Error as error:
            if self.database.path == MEMORY:
                raise
            self._use_database(self._recover_database(error))
            return work(self.database)

    def close(self) -> None:
        """Close the file, after an attempt to move samples in memory to it."""
        if not self.uses_configured_path:
            self._resume_file()
        self.database.close()

    def _use_database(self, database: StatisticsDatabase) -> None:
        self._queries += self.history.query_count
        self._release_readers()
        self.database.close()
        self._set_database(database)

    def _set_database(self, database: StatisticsDatabase) -> None:
        self.database = database
        self._open_count += 1
        self.history = StatisticsHistory(database.connection)
        self._retention = SampleRetention(database)

    def _open(self) -> StatisticsDatabase:
        try:
            return StatisticsDatabase(self.path, indexed=self._indexed)
        except (sqlite3.Error, ForeignDatabaseError, DatabaseVersionError) as error:
            return self._recover_database(error)

    def _recover_database(self, error: Exception) -> StatisticsDatabase:
        """Return the database that replaces a failed one."""
        kind = _kind(error)
        if kind is not None and not self._has_renamed:
            self._has_renamed = True
            aside = self._rename(kind)
            if aside is not None:
                self._log.emit("1B-0003", path=self.path, what=error, aside=aside)
                return self._open()
        self._log.emit("1B-0001", path=self.path, what=error)
        self._retry_at = self._clock() + RETRY_INTERVAL_S
        return StatisticsDatabase(MEMORY, indexed=self._indexed)

    def _resume_file(self) -> None:
        """Resume writing to the file, if it is possible."""
        self._retry_at = self._clock() + RETRY_INTERVAL_S
        try:
            database = StatisticsDatabase(self.path, indexed=self._indexed)
        except (sqlite3.Error, ForeignDatabaseError, DatabaseVersionError):
            return  # still the failure that has been logged
        try:
            count = database.copy_from(self.database)
        except sqlite3.Error:
            database.close()
            return
        self._use_database(database)
        self._log.emit("1B-0002", path=self.path, count=count)

    def _rename(self, kind: str) -> Path | None:
        """Rename the file to a free name that has the reason; None if that is not possible."""
        path, number = Path(self.path), 1
        try:
            while (aside := path.with_name(f"{path.name}.{kind}-{number}")).exists():
                number += 1
            path.rename(aside)
            for suffix in _SIDECARS:
                beside = Path(f"{path}{suffix}")
                if beside.exists():
                    beside.rename(f"{aside}{suffix}")
        except OSError:
            return None
        return aside


def _kind(error: Exception) -> str | None:
    """Return the kind of a database that cannot be continued; None for other errors."""
    if isinstance(error, ForeignDatabaseError):
        return "foreign"
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    return "damaged" if code == sqlite3.SQLITE_CORRUPT else None
