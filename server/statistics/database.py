"""An open statistics database: created or upgraded, and written to.

There is one transaction per sample. A file is in SQLite's WAL mode, so that others read while a
sample is written, and committed samples survive any end of the process; when the machine stops,
the last samples may be missing. The database belongs to one thread, and is abandoned after the
first failure: `recorder` decides how to go on.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from config_schema.spec.common import DIRECTORY_MODE, FILE_MODE
from server.statistics import copy_database, layout
from server.statistics.resources import LIFETIMES
from server.statistics.sample import StatisticsEntry, StatisticsSnapshot
from server.statistics.schema import Resource, ResourceField, StatisticValue
from server.statistics.shared_index import SharedIndex
from server.util.file_lock import FileInUseError, lock, version_mismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY: Final = ":memory:"

_BUSY_SECONDS: Final = 1.0
"""How long a sample waits for another process that has locked the file."""

_MAX_LOG_LENGTH: Final = 16 << 20
"""Bytes of SQLite's WAL file that are kept for reuse."""

_VACUUM_PAGES: Final = 512
"""Pages returned to the file system in one step."""


_MAX_LIFETIMES: Final = 1_000

_Values: TypeAlias = tuple[StatisticValue, ...]
_LiveEntries: TypeAlias = dict[str, tuple[_Values, int]]
_NEVER: Final = object()


class ForeignDatabaseError(Exception):
    """A file is a database that cannot be continued. The text says why."""


class DatabaseVersionError(Exception):
    """A file is a database of a later version of this program."""


@dataclass(slots=True)
class _ResourceWriter:
    """The statements and the state for writing the samples of one resource.

    Attributes:
        live_entries: entries of the sample before, by id: their fixed values, and the id of their
            rows.
    """

    resource: Resource
    insert_static: str
    insert_dynamic: str
    pick_dynamic_values: Callable[[_Values], _Values]
    next_id: int
    live_entries: _LiveEntries


class StatisticsDatabase:
    """One database.

    Args:
        path: the file, which is created if missing; ":memory:" for none.
        indexed: see `layout.statements`.

    Raises:
        sqlite3.Error: it cannot be opened.
        ForeignDatabaseError: it is not a database of this program.
        DatabaseVersionError: it is a database of a later version.
    """

    def __init__(self, path: str, *, indexed: bool = False) -> None:
        self.path = path
        self._lock_descriptor = None if path == MEMORY else _lock_file(path)
        self.connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        self._index = None if path == MEMORY else SharedIndex(path)
        self._newest_timestamp: int | None = None
        self._writers: list[_ResourceWriter] = []
        try:
            self._prepare(indexed=indexed)
            self._load_state()
        except BaseException:
            self.close()
            raise
        self._identity = self._file_identity()

    def write(
        self, entries: Mapping[str, list[StatisticsEntry]], snapshot: StatisticsSnapshot
    ) -> None:
        """Write a sample.

        Args:
            entries: its entries, by the resource's path.
            snapshot: its snapshot.

        Raises:
            sqlite3.Error: it cannot be written, and has not been.
        """
        alive: list[_LiveEntries] = []
        with self.transaction():
            for writing in self._writers:
                path = writing.resource.path
                alive.append(
                    self._write_lifespans(writing, entries.get(path, []), snapshot.timestamp)
                )
                values = snapshot.entries.get(path, {})
                self._write_values(writing, alive[-1], values, snapshot.timestamp)
            self.connection.execute(
                f"INSERT OR REPLACE INTO {layout.SAMPLES} VALUES(?, 0)", (snapshot.timestamp,)
            )
        for writing, now in zip(self._writers, alive, strict=True):
            writing.live_entries = now
        self._newest_timestamp = snapshot.timestamp

    def _write_lifespans(
        self, writing: _ResourceWriter, entries: list[StatisticsEntry], timestamp: int
    ) -> _LiveEntries:
        """Record new entries and the end of missing ones; return those of this sample."""
        before = writing.live_entries
        alive: _LiveEntries = {}
        began: list[tuple[int, StatisticsEntry]] = []
        for entry in {entry.id: entry for entry in entries}.values():
            fixed, static_id = before.get(entry.id, (_NEVER, 0))
            if fixed is not entry.static_values and fixed != entry.static_values:
                static_id, writing.next_id = writing.next_id, writing.next_id + 1
                began.append((static_id, entry))
            alive[entry.id] = (entry.static_values, static_id)
        goes_on = {static_id for _, static_id in alive.values()}
        ended = [lifespan for _, lifespan in before.values() if lifespan not in goes_on]
        base = writing.resource.table
        if began:
            self.connection.executemany(
                writing.insert_static,
                ((lifespan, entry.id, *entry.static_values) for lifespan, entry in began),
            )
            self.connection.executemany(
                f"INSERT OR REPLACE INTO {layout.LIVES} VALUES(?, ?, ?, NULL)",
                ((base, lifespan, timestamp) for lifespan, _ in began),
            )
        if ended:
            self.connection.executemany(
                f"UPDATE {layout.LIVES} SET last = max(first, ?) WHERE base = ? AND static_id = ?",
                ((self._newest_timestamp, base, lifespan) for lifespan in ended),
            )
        return alive

    def _write_values(
        self,
        writing: _ResourceWriter,
        alive: _LiveEntries,
        entries: Mapping[str, _Values],
        timestamp: int,
    ) -> None:
        pick_dynamic_values = writing.pick_dynamic_values
        self.connection.executemany(
            writing.insert_dynamic,
            (
                (timestamp, alive[identity][1], *pick_dynamic_values(values))
                for identity, values in entries.items()
            ),
        )

    def write_lifetime_event(self, timestamp: int, values: _Values) -> None:
        """Write an event in the life of the instance.

        Args:
            timestamp: the time of the event.
            values: in the order of the resource's fields.

        Raises:
            sqlite3.Error: it cannot be written, and has not been.
        """
        static, dynamic = layout.static(LIFETIMES), layout.dynamic(LIFETIMES)
        with self.transaction():
            number = self._query_number(f"SELECT coalesce(max(static_id), 0) + 1 FROM {static}")
            self.connection.execute(layout.insert_static(LIFETIMES), (number, str(number), *values))
            self.connection.execute(layout.insert_dynamic(LIFETIMES), (timestamp, number))
            oldest = number - _MAX_LIFETIMES
            self.connection.execute(f"DELETE FROM {static} WHERE static_id <= ?", (oldest,))
            self.connection.execute(f"DELETE FROM {dynamic} WHERE static_id <= ?", (oldest,))

    def copy_from(self, other: StatisticsDatabase) -> int:
        """Copy the contents of a database in memory to this file.

        Returns:
            The number of its samples.

        Raises:
            sqlite3.Error: that is not possible, and has not been done.
        """
        source = other.connection
        source.execute("ATTACH DATABASE ? AS target", (self.path,))
        try:
            with other.transaction():
                for statement, values in copy_database.statements(source):
                    source.execute(statement, values)
            [count] = source.execute(f"SELECT count(*) FROM main.{layout.SAMPLES}").fetchone()
        finally:
            source.execute("DETACH DATABASE target")
        self._load_state()
        return int(count)

    @property
    def is_in_place(self) -> bool:
        """Whether writes go to the file of that name, and not to a removed one."""
        return self.path == MEMORY or self._identity == self._file_identity()

    @property
    def size_bytes(self) -> int:
        """Bytes of the database."""
        return self._pragma("page_count") * self._pragma("page_size") + self._log_size()

    @property
    def used_bytes(self) -> int:
        """Bytes of the database in use."""
        pages = self._pragma("page_count") - self._pragma("freelist_count")
        return pages * self._pragma("page_size")

    def oldest_sample(self, tier: int, before: int) -> int | None:
        """Return the timestamp of the oldest sample of a tier that is older than a moment.

        Raises:
            sqlite3.Error: the database cannot be read.
        """
        return self._query_number(
            f"SELECT min(timestamp) FROM {layout.SAMPLES} WHERE tier = ? AND timestamp < ?",
            tier,
            before,
        )

    def vacuum_step(self) -> bool:
        """Return some unused pages to the file system.

        Returns:
            Whether there is more.

        Raises:
            sqlite3.Error: that is not possible.
        """
        if self._index is not None:
            self._index.check_pages()
        self.connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        if self._pragma("freelist_count"):
            return True
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction: all of it is done, or nothing.

        Raises:
            sqlite3.Error: another process has locked the file, or it cannot be written to.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            if self._index is not None:
                self._index.guard_new_maps()
            yield
            if self._index is not None:
                self._index.check_pages()
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        if self._index is not None:
            self._index.invalidate()
        self.connection.close()
        if self._index is not None:
            self._index.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def _prepare(self, *, indexed: bool) -> None:
        is_new = not self._query_number("SELECT count(*) FROM sqlite_master")
        if is_new:
            self.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            # Before WAL mode: afterwards the header would stay in the write-ahead log until a
            # checkpoint, and nothing could tell from the file itself what it is.
            with self.transaction():  # a file with only one of them would be refused ever after
                self.connection.execute(f"PRAGMA application_id = {layout.APPLICATION_ID}")
                self.connection.execute(f"PRAGMA user_version = {layout.FORMAT}")
        elif self._pragma("application_id") != layout.APPLICATION_ID:
            raise ForeignDatabaseError("it has not been made by this program")
        elif (version := self._pragma("user_version")) != layout.FORMAT:
            why = version_mismatch(version, layout.FORMAT)
            raise (
                DatabaseVersionError(why) if version > layout.FORMAT else ForeignDatabaseError(why)
            )
        self.connection.execute("PRAGMA journal_mode = WAL").fetchall()
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA secure_delete = OFF").fetchall()
        self.connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_LENGTH}").fetchall()
        with self.transaction():
            for statement in layout.statements(indexed=indexed):
                self.connection.execute(statement)
            for resource in layout.RECORDED:
                for table, needed, fields in layout.expected_columns(resource):
                    self._add_columns(table, needed, fields)

    def _add_columns(
        self, table: str, needed: frozenset[str], fields: Iterable[ResourceField]
    ) -> None:
        columns = {row[1] for row in self.connection.execute(f"PRAGMA table_info({table})")}
        if not columns >= needed:
            raise ForeignDatabaseError(f"its table {table} has no {', '.join(needed - columns)}")
        for field in fields:
            if field.name not in columns:
                self.connection.execute(f"ALTER TABLE {table} ADD COLUMN {layout.column(field)}")

    def _load_state(self) -> None:
        self._newest_timestamp = self._query_number(f"SELECT max(timestamp) FROM {layout.SAMPLES}")
        self._writers = [
            self._make_resource_writer(resource)
            for resource in layout.RECORDED
            if resource != LIFETIMES
        ]

    def _make_resource_writer(self, resource: Resource) -> _ResourceWriter:
        """Read the state of a resource, with the entries alive when the last sample was written."""
        static = layout.static(resource)
        names = "".join(f", {layout.quoted(field.name)}" for field in resource.static_fields)
        alive: _LiveEntries = {
            row[1]: (tuple("" if one is None else one for one in row[2:]), row[0])
            for row in self.connection.execute(
                f"SELECT static_id, oid{names} FROM {layout.LIVES} CROSS JOIN {static}"
                " USING(static_id) WHERE base = ? AND last IS NULL",
                (resource.table,),
            )
        }
        indexes = [resource.fields.index(field) for field in resource.dynamic_fields]
        return _ResourceWriter(
            resource,
            layout.insert_static(resource),
            layout.insert_dynamic(resource),
            itemgetter(*indexes) if len(indexes) > 1 else _value_picker(indexes),
            1 + (self._query_number(f"SELECT max(static_id) FROM {static}") or 0),
            alive,
        )

    def _query_number(self, query: str, *values: int) -> int:
        [number] = self.connection.execute(query, values).fetchone()
        return number  # type: ignore[no-any-return]  # SQLite's values have any type

    def _pragma(self, name: str) -> int:
        return self._query_number(f"PRAGMA {name}")

    def _log_size(self) -> int:
        try:
            return os.stat(f"{self.path}-wal").st_size
        except OSError:
            return 0

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            status = Path(self.path).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _lock_file(path: str) -> int:
    """Lock a file against other recorders, as long as a descriptor is open; reading is free.

    It must stay open for longer than the connection: closing it releases all POSIX locks of the
    process on the file, SQLite's included.

    Returns:
        The descriptor.

    Raises:
        sqlite3.Error: another process records in it, or it cannot be written to.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", DIRECTORY_MODE, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise sqlite3.OperationalError(error.strerror) from None
    try:
        lock(descriptor)
    except FileInUseError as holder:
        os.close(descriptor)
        raise sqlite3.OperationalError(f"{holder} records statistics in it") from None
    except OSError:
        pass  # a file system without such locks
    return descriptor


def _value_picker(indexes: list[int]) -> Callable[[_Values], _Values]:
    if not indexes:
        return lambda _: ()
    [index] = indexes
    return lambda values: (values[index],)
