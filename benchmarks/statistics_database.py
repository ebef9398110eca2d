"""The statistics database after a month: how large it is, and how long answers take.

`python -m benchmarks statistics_database`

A sample each 10 seconds has 1,000 clients. A day of that is written whole, in the order that the
database has, and in the other one, entry by entry. Then there is a month of which as much is left
as `server.statistics.retention` leaves. What is asked is asked of a file that has just been opened.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.tables import print_table
from server.statistics.database import StatisticsDatabase
from server.statistics.history import PAGE, StatisticsHistory
from server.statistics.layout import SAMPLES, dynamic
from server.statistics.resources import CLIENTS
from server.statistics.retention import IN_FILE, SampleRetention
from server.statistics.sample import StatisticsEntry, StatisticsSnapshot
from server.statistics.schema import ColumnType, ResourceField, StatisticValue

COUNT: Final = 1_000
INTERVAL: Final = 10_000
HOUR: Final = 3600 * 1000
DAY: Final = 24 * HOUR
MONTH: Final = 30 * DAY
NOW: Final = 212_662_200_000_000 // HOUR * HOUR

_LEAF: Final = "bytes_in"
_TABLE: Final = dynamic(CLIENTS)
_MEGABYTE: Final = 1 << 20

_Moments: TypeAlias = Iterator[tuple[int, int]]
"""Timestamps of samples, with their tiers."""


class Load:
    """Clients that send and receive all the time."""

    def __init__(self) -> None:
        chance = random.Random(7)
        self._turns = [
            {str(number): _values(number, chance) for number in range(COUNT)} for _ in range(8)
        ]
        fixed = [field in CLIENTS.static_fields for field in CLIENTS.fields]
        self.entries = [
            StatisticsEntry(
                name, tuple(one for one, is_fixed in zip(row, fixed, strict=True) if is_fixed), ()
            )
            for name, row in self._turns[0].items()
        ]

    def snapshot(self, timestamp: int) -> StatisticsSnapshot:
        """What they have come to at a moment."""
        rows: Mapping[str, tuple[StatisticValue, ...]] = self._turns[timestamp // INTERVAL % 8]
        return StatisticsSnapshot(timestamp, {CLIENTS.path: rows})


def _values(number: int, chance: random.Random) -> tuple[StatisticValue, ...]:
    def value(field: ResourceField) -> StatisticValue:
        if field in CLIENTS.static_fields:
            return f"{field.name} of client {number}"
        if field.type is ColumnType.REAL or field.name.startswith(
            ("denied", "queue", "tcp", "trans")
        ):
            return 0
        return chance.randrange(1_000_000) if field.cumulative_field else chance.randrange(1 << 38)

    return tuple(map(value, CLIENTS.fields))


def whole(days: int) -> _Moments:
    """All samples of the last days."""
    for timestamp in range(NOW - days * DAY, NOW, INTERVAL):
        yield timestamp, 0


def thinned() -> _Moments:
    """The samples that are left of a month, the oldest first."""
    begin = NOW - MONTH
    ends = [NOW - age for _, age in IN_FILE.tiers[:-1]]
    for tier, end in ((2, ends[1]), (1, ends[0]), (0, NOW)):
        step = IN_FILE.tiers[tier][0] or INTERVAL
        for timestamp in range(begin, end, step):
            yield timestamp + step - INTERVAL, tier
        begin = end


@dataclass(frozen=True)
class ByEntry:
    """The other order: what belongs to one entry lies together."""

    connection: sqlite3.Connection

    @classmethod
    def make(cls, path: Path) -> ByEntry:
        """Make a file."""
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        columns = ", ".join(f"{field.name} {field.type.value}" for field in CLIENTS.dynamic_fields)
        connection.execute(
            f"CREATE TABLE {_TABLE}(timestamp INTEGER, static_id INTEGER, {columns},"
            " PRIMARY KEY(static_id, timestamp)) WITHOUT ROWID"
        )
        connection.execute(f"CREATE INDEX by_time ON {_TABLE}(timestamp)")
        return cls(connection)

    def write(self, snapshot: StatisticsSnapshot) -> None:
        """Write a sample."""
        moving = [CLIENTS.fields.index(field) for field in CLIENTS.dynamic_fields]
        self.connection.execute("BEGIN")
        self.connection.executemany(
            f"INSERT INTO {_TABLE} VALUES(?, ?{', ?' * len(moving)})",
            (
                (snapshot.timestamp, int(name), *(row[place] for place in moving))
                for name, row in snapshot.entries[CLIENTS.path].items()
            ),
        )
        self.connection.execute("COMMIT")


def write(database: StatisticsDatabase, load: Load, moments: _Moments) -> float:
    """Write samples; gives the milliseconds of processor time that one took."""
    begun, count = time.thread_time(), 0
    for timestamp, tier in moments:
        database.write({CLIENTS.path: load.entries}, load.snapshot(timestamp))
        if tier:
            database.connection.execute(
                f"UPDATE {SAMPLES} SET tier = ? WHERE timestamp = ?", (tier, timestamp)
            )
        count += 1
    return 1e3 * (time.thread_time() - begun) / count


def milliseconds(work: Callable[[], object]) -> float:
    """How long something takes."""
    begun = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - begun)


def ask(path: Path, span: int) -> list[float]:
    """How long one value takes over an hour and over a span, and everything at one moment."""

    def asked(question: Callable[[StatisticsHistory], object]) -> float:
        database = StatisticsDatabase(str(path))
        try:
            return milliseconds(partial(question, StatisticsHistory(database.connection)))
        finally:
            database.close()

    def over(history: StatisticsHistory, first: int) -> None:
        while page := history.values(CLIENTS, "500", _LEAF, first):
            first = page[-1][0] + 1
            if len(page) < PAGE:
                return

    return [
        asked(partial(over, first=NOW - HOUR)),
        asked(partial(over, first=NOW - span)),
        asked(lambda history: history.snapshot(NOW - INTERVAL)),
    ]


def ask_by_entry(path: Path) -> list[float]:
    """The same of the other order, over a day."""

    def asked(query: str, *values: int) -> float:
        with closing(sqlite3.connect(path)) as connection:
            return milliseconds(lambda: connection.execute(query, values).fetchall())

    leaf = f"SELECT timestamp, {_LEAF} FROM {_TABLE} WHERE static_id = 500 AND timestamp >= ?"
    return [
        asked(leaf, NOW - HOUR),
        asked(leaf, NOW - DAY),
        asked(f"SELECT * FROM {_TABLE} WHERE timestamp = ?", NOW - INTERVAL),
    ]


def thin_out(path: Path) -> tuple[float, float]:
    """How long it takes to thin out a minute, and an hour, that have become old enough."""
    database = StatisticsDatabase(str(path))
    thinning = SampleRetention(database)
    try:
        return (
            milliseconds(partial(thinning.thin_out_step, NOW + 60_000)),
            milliseconds(partial(thinning.thin_out_step, NOW + HOUR)),
        )
    finally:
        database.close()


def main() -> None:
    """Measure, and print tables."""
    load = Load()
    head = ["", "MB", "CPU, ms/sample", "1 h", "all of it", "one moment"]
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="amperage-") as scratch:
        path = Path(scratch, "day.db")
        database = StatisticsDatabase(str(path))
        cost = write(database, load, whole(1))
        database.close()
        rows.append(["a day, by time", _size(path), cost, *ask(path, DAY)])

        other = Path(scratch, "other.db")
        by_entry = ByEntry.make(other)
        begun = time.thread_time()
        for timestamp, _ in whole(1):
            by_entry.write(load.snapshot(timestamp))
        cost = 1e3 * (time.thread_time() - begun) * INTERVAL / DAY
        by_entry.connection.close()
        rows.append(["a day, by entry", _size(other), cost, *ask_by_entry(other)])

        path = Path(scratch, "month.db")
        database = StatisticsDatabase(str(path))
        cost = write(database, load, thinned())
        database.close()
        rows.append(["a month, thinned out", _size(path), cost, *ask(path, MONTH)])
        minute, hour = thin_out(path)
    print_table("The statistics database, 1,000 clients each 10 s; answers in ms", head, rows)
    print(f"thinning out a minute: {minute:.1f} ms; an hour: {hour:.1f} ms")


def _size(path: Path) -> float:
    return path.stat().st_size / _MEGABYTE


if __name__ == "__main__":
    main()
