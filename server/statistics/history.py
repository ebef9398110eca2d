"""Reads the statistics database.

Reads take place on the reader's thread, or on the thread of statistics for a database in memory.
Each is small enough for a sample to wait for: more values than fit a page are requested page
after page.

Source: AMPS User Guide, Time Range Selection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from server.statistics import layout
from server.statistics.resources import LIFETIMES
from server.statistics.sample import StatisticsSnapshot
from server.statistics.schema import MeasurementKind, Resource, StatisticValue

PAGE: Final = 10_000
"""Values per read."""

_SAMPLES_PER_POINT: Final = 8
"""Samples that the average of a part of a time is made of, if there are more."""

MAX_TIMESTAMP: Final = 1 << 62
"""Later than any timestamp."""


EntryRow: TypeAlias = tuple[StatisticValue, ...]
"""The timestamp, the entry's id, and the values in the order of `Resource.fields`."""


class EntryPage(NamedTuple):
    """Some rows of a resource.

    Attributes:
        rows: the rows, in the order of time.
        next_start: the start of the next page; None at the end.
    """

    rows: Sequence[EntryRow]
    next_start: tuple[int, int] | None


class StatisticsHistory:
    """The recorded samples.

    Args:
        connection: of the database.

    Attributes:
        query_count: the number of answered questions.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.query_count = 0

    def timestamps(self, first: int = 0, last: int = MAX_TIMESTAMP, limit: int = PAGE) -> list[int]:
        """Return the timestamps of samples, from `first` to `last`, both included.

        Raises:
            sqlite3.Error: the database cannot be read.
        """
        self.query_count += 1
        rows = self._connection.execute(
            f"SELECT timestamp FROM {layout.SAMPLES} WHERE timestamp BETWEEN ? AND ?"
            " ORDER BY timestamp LIMIT ?",
            (first, last, limit),
        )
        return [timestamp for (timestamp,) in rows]

    def values(
        self,
        resource: Resource,
        entry: str,
        name: str,
        first: int = 0,
        last: int = MAX_TIMESTAMP,
        limit: int = PAGE,
    ) -> list[tuple[int, StatisticValue]]:
        """Return a field's values over time.

        Args:
            resource: one with a table.
            entry: the entry's id. Entries of earlier lives that had the same id are included.
            name: the field's.
            first: the first timestamp.
            last: the last one, included as well.
            limit: the maximum number to return; to go on, request values after the last timestamp.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        self.query_count += 1
        rows = self._connection.execute(_values_query(resource, name), (entry, first, last, limit))
        return [(timestamp, "" if value is None else value) for timestamp, value in rows]

    def averages(
        self, resource: Resource, entry: str, name: str, first: int, last: int, points: int
    ) -> list[tuple[int, float]]:
        """Return the averages of a field of numbers in parts of a time, for plots.

        The cost depends on the number of points, and not on the length of the time: a part is
        represented by `_SAMPLES_PER_POINT` of its samples.

        Args:
            resource: one with a table.
            entry: the entry's id.
            name: the field's.
            first: the first timestamp.
            last: the last one, included as well.
            points: the maximum number of parts.

        Returns:
            The timestamp of the last sample of each part that has any, and the average.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        self.query_count += 1
        width = max((last - first) // points + 1, 1)
        step = max(width // _SAMPLES_PER_POINT, 1)
        return self._connection.execute(
            _averages_query(resource, name), (entry, first, last, width, step)
        ).fetchall()

    def rows(
        self, resource: Resource, after: tuple[int, int], last: int = MAX_TIMESTAMP
    ) -> EntryPage:
        """Return all entries of a resource over time, page by page.

        Args:
            resource: one with a table.
            after: the first timestamp and -1; after that, `next_start` of the page before.
            last: the last timestamp, included.

        Raises:
            sqlite3.Error: they cannot be read.
        """
        self.query_count += 1
        row_limit = max(PAGE // (len(resource.fields) + 2), 1)
        found = self._connection.execute(
            _rows_query(resource), (*after, last, row_limit)
        ).fetchall()
        rows = [(row[1], *("" if value is None else value for value in row[2:])) for row in found]
        is_last = len(found) < row_limit
        return EntryPage(rows, None if is_last else (found[-1][1], found[-1][0]))

    def snapshot(self, timestamp: int) -> StatisticsSnapshot | None:
        """Return the snapshot of a sample; None if none was taken at that moment, or it is gone.

        Resources without a table are not in it.

        Raises:
            sqlite3.Error: it cannot be read.
        """
        if not self.timestamps(timestamp, timestamp):
            return None
        entries: dict[str, Mapping[str, tuple[StatisticValue, ...]]] = {}
        for resource in layout.RECORDED:
            records = self._connection.execute(_moment_query(resource), (timestamp,))
            rows = {
                row[0]: tuple("" if value is None else value for value in row[1:])
                for row in records
            }
            if rows:
                entries[resource.path] = rows
        return StatisticsSnapshot(timestamp, entries)


@cache
def _values_query(resource: Resource, name: str) -> str:
    """Return the query for one field; it takes the id, the first and last moment and a limit."""
    [field] = [field for field in resource.fields if field.name == name]
    static, dynamic = layout.static(resource), layout.dynamic(resource)
    value = f"{'s' if field.kind is MeasurementKind.FIXED else 'd'}.{layout.quoted(name)}"
    if resource == LIFETIMES:
        return (
            f"SELECT d.timestamp, {value} FROM {static} AS s"
            f" CROSS JOIN {dynamic} AS d ON d.static_id = s.static_id"
            " WHERE s.oid = ?1 AND d.timestamp BETWEEN ?2 AND ?3 ORDER BY d.timestamp LIMIT ?4"
        )
    return (
        f"SELECT d.timestamp, {value} FROM {static} AS s"
        f" CROSS JOIN {layout.LIVES} AS l ON l.base = '{resource.table}'"
        " AND l.static_id = s.static_id"
        f" CROSS JOIN {layout.SAMPLES} AS m ON m.timestamp"
        " BETWEEN max(l.first, ?2) AND min(coalesce(l.last, ?3), ?3)"
        f" CROSS JOIN {dynamic} AS d ON d.timestamp = m.timestamp AND d.static_id = s.static_id"
        " WHERE s.oid = ?1 ORDER BY d.timestamp LIMIT ?4"
    )


@cache
def _averages_query(resource: Resource, name: str) -> str:
    """Return the query for averages: id, first and last moment, widths of a point and a sample."""
    static, dynamic = layout.static(resource), layout.dynamic(resource)
    return (
        f"WITH chosen AS MATERIALIZED (SELECT max(timestamp) AS timestamp FROM {layout.SAMPLES}"
        " WHERE timestamp BETWEEN ?2 AND ?3 GROUP BY (timestamp - ?2) / ?5)"
        f" SELECT max(d.timestamp), avg(d.{layout.quoted(name)}) FROM {static} AS s"
        f" CROSS JOIN {layout.LIVES} AS l ON l.base = '{resource.table}'"
        " AND l.static_id = s.static_id"
        " CROSS JOIN chosen AS m ON m.timestamp"
        " BETWEEN max(l.first, ?2) AND min(coalesce(l.last, ?3), ?3)"
        f" CROSS JOIN {dynamic} AS d ON d.timestamp = m.timestamp AND d.static_id = s.static_id"
        f" WHERE s.oid = ?1 AND d.{layout.quoted(name)} IS NOT NULL"
        " GROUP BY (d.timestamp - ?2) / ?4 ORDER BY 1"
    )


@cache
def _moment_query(resource: Resource) -> str:
    """Return the query for all entries at one moment."""
    columns = ", ".join(layout.quoted(field.name) for field in resource.fields)
    static, dynamic = layout.static(resource), layout.dynamic(resource)
    if resource == LIFETIMES:
        columns = ", ".join(f"s.{layout.quoted(field.name)}" for field in resource.fields)
        return (
            f"SELECT s.oid, {columns} FROM {dynamic} AS d"
            f" CROSS JOIN {static} AS s ON s.static_id = d.static_id"
            " WHERE d.timestamp <= ?1 ORDER BY s.static_id"
        )
    return (
        f"SELECT oid, {columns} FROM {dynamic} CROSS JOIN {static} USING(static_id)"
        " WHERE timestamp = ?1 ORDER BY static_id"
    )


@cache
def _rows_query(resource: Resource) -> str:
    """Return the query for all entries after a place; with static_id and timestamp first."""
    columns = ", ".join(layout.quoted(field.name) for field in resource.fields)
    static, dynamic = layout.static(resource), layout.dynamic(resource)
    return (
        f"SELECT static_id, timestamp, oid, {columns}"
        f" FROM {dynamic} CROSS JOIN {static} USING(static_id)"
        " WHERE (timestamp, static_id) > (?1, ?2) AND timestamp <= ?3"
        " ORDER BY timestamp, static_id LIMIT ?4"
    )


def lifetimes(
    connection: sqlite3.Connection, limit: int
) -> list[tuple[str, tuple[StatisticValue, ...]]]:
    """Return the newest events in the life of the instance, with their ids, in their order.

    Raises:
        sqlite3.Error: they cannot be read.
    """
    columns = ", ".join(layout.quoted(field.name) for field in LIFETIMES.fields)
    rows = connection.execute(
        f"SELECT oid, {columns} FROM {layout.static(LIFETIMES)} ORDER BY static_id DESC LIMIT ?",
        (limit,),
    )
    return [(row[0], row[1:]) for row in reversed(rows.fetchall())]
