"""Statistics as tables: the last sample, and the recorded ones.

    amps_stats.clients             the last sample: one row for each client
    amps_stats.clients_over_time   the statistics database: one row for each client and sample

There is a table for each resource of the admin interface (server/statistics/resources.py), with its
fields as columns; an empty value is NULL. Tables over time exist for resources that are recorded,
and are read page by page by the thread that reads for the admin interface.

Statistics are data of other users. A user sees a resource if the admin interface would show it: the
transport and the admin interface must have the same authentication and the same entitlement, and
the entitlement, if there is one, must allow the user to read the resource (`StatisticsAccess`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from server.security.permissions import Permission
from server.sql.query.tables import Column, ScanResult, SqlType, Table, TableKind
from server.sql.tables.errors import (
    ScanCancelledError,
    ScanError,
    ScanTooLargeError,
    TableGoneError,
)
from server.statistics.history import MAX_TIMESTAMP
from server.statistics.reader import ReaderBusyError
from server.statistics.resources import LIFETIMES, RESOURCES
from server.statistics.schema import ColumnType
from server.statistics.timestamps import UNIX_EPOCH

if TYPE_CHECKING:
    from server.security.permissions import Permissions
    from server.sql.query.tables import ScanRequest
    from server.statistics.history import EntryRow
    from server.statistics.schema import Resource, StatisticValue
    from server.statistics.statistics_thread import StatisticsThread

STATISTICS_SCHEMA: Final = "amps_stats"
"""The schema of the tables; `amps` has the topics, which may have any names."""

OVER_TIME: Final = "_over_time"
"""The end of the names of tables with recorded samples."""

_TIMESTAMP: Final = Column("_timestamp", SqlType.TIMESTAMPTZ, "when the sample was taken")
_ID: Final = Column("_id", SqlType.TEXT, "the name of the entry in paths of the admin interface")
_TYPES: Final = {
    ColumnType.TEXT: SqlType.TEXT,
    ColumnType.INTEGER: SqlType.BIGINT,
    ColumnType.REAL: SqlType.DOUBLE,
}
_BIGINT: Final = range(-(2**63), 2**63)
_VALUE_BYTES: Final = 32
"""Approximate memory of a value."""

_MILLISECOND_US: Final = 1_000
_SLACK_MS: Final = 1_000
_READ_TIMEOUT_S: Final = 60.0


class _StatisticsTable(NamedTuple):
    """A table.

    Attributes:
        resource: the resource.
        table: the table.
        is_over_time: whether it has the recorded samples.
    """

    resource: Resource
    table: Table
    is_over_time: bool


def _make_tables() -> dict[str, _StatisticsTable]:
    tables: dict[str, _StatisticsTable] = {}
    for resource in RESOURCES:
        name = resource.path.removeprefix("instance/").replace("/", "_")
        columns = (
            _TIMESTAMP,
            *((_ID,) if resource.entry else ()),
            *(
                Column(field.name, _TYPES[field.type], field.description)
                for field in resource.fields
            ),
        )
        id_key = (_ID.name,) if resource.entry else ()
        table = Table(STATISTICS_SCHEMA, name, TableKind.STATISTICS, columns, id_key)
        tables[name] = _StatisticsTable(resource, table, is_over_time=False)
        if resource.table and resource is not LIFETIMES:
            over_time = table._replace(name=name + OVER_TIME, key=())
            tables[over_time.name] = _StatisticsTable(resource, over_time, is_over_time=True)
    return tables


_TABLES: Final = _make_tables()


class StatisticsAccess(NamedTuple):
    """Decides which users may see statistics on a transport.

    Attributes:
        find_thread: returns the thread of statistics; None if there are none.
        is_shared: whether the transport has the authentication and the entitlement of the admin
            interface; if not, no user sees statistics.
        has_entitlement: whether entitlement decides on resources; if not, every user sees all.
    """

    find_thread: Callable[[], StatisticsThread | None]
    is_shared: bool
    has_entitlement: bool

    def may_read(self, permissions: Permissions, resource: Resource) -> bool:
        """Return whether a user may see a resource; on the engine's thread."""
        if not self.is_shared:
            return False
        return (
            not self.has_entitlement
            or permissions.get_permit(Permission.READ_ADMIN, f"/amps/{resource.path}").is_allowed
        )


NO_STATISTICS: Final = StatisticsAccess(lambda: None, is_shared=False, has_entitlement=True)
"""Without statistics."""


class SessionStatistics:
    """The tables of statistics of one session's user.

    Args:
        access: decides on resources.
        permissions: returns the user's permissions.
        max_bytes: the maximum memory of the rows of a scan.
        is_cancelled: returns whether the query is cancelled.
    """

    def __init__(
        self,
        access: StatisticsAccess,
        permissions: Callable[[], Permissions],
        max_bytes: int,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._access: Final = access
        self._permissions: Final = permissions
        self._max_bytes: Final = max_bytes
        self._is_cancelled: Final = is_cancelled

    def list_tables(self) -> Sequence[Table]:
        """Return the tables that the user may see; on the engine's thread."""
        if self._access.find_thread() is None:
            return ()
        visible = {
            resource.path
            for resource in RESOURCES
            if self._access.may_read(self._permissions(), resource)
        }
        return [one.table for one in _TABLES.values() if one.resource.path in visible]

    def check(self, request: ScanRequest) -> None:
        """Check that the user may read a table; on the engine's thread.

        Raises:
            TableGoneError: the user may not.
        """
        known = _TABLES.get(request.table.name)
        if known is None or not self._access.may_read(self._permissions(), known.resource):
            name = f"{request.table.schema}.{request.table.name}"
            raise TableGoneError(f'relation "{name}" does not exist')

    def scan(self, request: ScanRequest) -> ScanResult:
        """Return the rows of a table, after `check`; on a worker thread.

        Raises:
            ScanError: the statistics cannot be read.
        """
        thread = self._access.find_thread()
        known = _TABLES[request.table.name]
        rows: list[EntryRow] = []
        if thread is not None and known.is_over_time:
            rows = self._read_recorded(thread, known.resource, request)
        elif thread is not None and thread.latest is not None:
            latest = thread.latest
            entries = latest.entries.get(known.resource.path, {})
            rows = [(latest.timestamp, id_, *values) for id_, values in entries.items()]
        return ScanResult(_to_table(known.resource, rows, request), len(rows))

    def _read_recorded(
        self, thread: StatisticsThread, resource: Resource, request: ScanRequest
    ) -> list[EntryRow]:
        first, last = 0, MAX_TIMESTAMP
        for bound in request.bounds:
            moment = int(bound.value) // _MILLISECOND_US + UNIX_EPOCH
            if bound.sign in (">", ">=", "="):
                first = max(first, moment - _SLACK_MS)
            if bound.sign in ("<", "<=", "="):
                last = min(last, moment + _SLACK_MS)
        rows: list[EntryRow] = []
        start = first, -1
        while request.limit is None or len(rows) < request.limit:
            if self._is_cancelled():
                raise ScanCancelledError("the query was cancelled")
            query = thread.query(lambda history: history.rows(resource, start, last))  # noqa: B023 - answered before the next one
            try:
                page = query.result(_READ_TIMEOUT_S)
            except (ReaderBusyError, sqlite3.Error, CancelledError, TimeoutError) as error:
                query.cancel()
                raise ScanError(f"the statistics cannot be read: {error}") from None
            rows += page.rows
            if page.next_start is None:
                break
            start = page.next_start
            if len(rows) * (len(resource.fields) + 2) * _VALUE_BYTES > self._max_bytes:
                raise ScanTooLargeError(
                    f"the samples that the query reads take more than {self._max_bytes >> 20} MB"
                )
        return rows


def _to_table(resource: Resource, rows: Sequence[EntryRow], request: ScanRequest) -> pa.Table:
    """Return the requested columns of rows, each of which is a timestamp, an id, and the fields."""
    rows = rows[: request.limit]
    if not request.columns:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    types = {column.name: column.type for column in request.table.columns}
    indexes = {field.name: index for index, field in enumerate(resource.fields, 2)}
    arrays: list[pa.Array] = []
    for name in request.columns:
        if name == _TIMESTAMP.name:
            times = [(int(row[0]) - UNIX_EPOCH) * _MILLISECOND_US for row in rows]
            arrays.append(pa.array(times, SqlType.TIMESTAMPTZ.arrow_type))
        elif name == _ID.name:
            arrays.append(_to_array((row[1] for row in rows), SqlType.TEXT))
        else:
            index = indexes[name]
            arrays.append(_to_array((row[index] for row in rows), types[name]))
    return pa.table(arrays, names=list(request.columns))


def _to_array(values: Iterable[StatisticValue | None], sql_type: SqlType) -> pa.Array:
    """Return values of a field; an empty text is NULL, and so is a number out of range."""
    present = [None if value == "" else value for value in values]
    match sql_type:
        case SqlType.BIGINT:
            numbers = [None if value is None else int(value) for value in present]
            return pa.array([one if one in _BIGINT else None for one in numbers], pa.int64())
        case SqlType.DOUBLE:
            doubles = [None if value is None else float(value) for value in present]
            return pa.array(doubles, pa.float64())
        case _:
            texts = [None if value is None else str(value) for value in present]
            return pa.array(
                [None if text is None else text.encode(errors="replace").decode() for text in texts]
            ).cast(pa.string())
