"""Retention of statistics: how long, and at which resolution. Needs no action.

Every sample is retained for a while, then one of each minute, then one of each hour, until that is
removed, too. The retained sample is the last of its time; averages over an interval become those of
that time, all other values are those of that moment. An entry that lived only between two retained
samples is forgotten.

A database that is too large all the same, because there are very many clients or subscriptions, is
thinned out earlier. All of that happens in small steps, between samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from server.statistics import layout
from server.statistics.database import MEMORY
from server.statistics.resources import LIFETIMES
from server.statistics.timestamps import SECOND

if TYPE_CHECKING:
    from server.statistics.database import StatisticsDatabase

_MINUTE: Final = 60 * SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_REMOVE_BATCH_SIZE: Final = 32
"""Samples that are removed in one step."""

_TIGHTEN_FACTOR: Final = 0.9
_RELAX_FACTOR: Final = 1.02
_TARGET_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of age and size.

    Attributes:
        tiers: pairs in milliseconds: a width, of which one sample is retained, and the age up to
            which that is so; the first width is 0.
        max_bytes: the maximum size of the database.
    """

    tiers: tuple[tuple[int, int], ...]
    max_bytes: int


IN_FILE: Final = RetentionLimits(
    ((0, _DAY), (_MINUTE, 7 * _DAY), (_HOUR, 366 * _DAY)), max_bytes=4 << 30
)
IN_MEMORY: Final = RetentionLimits(
    ((0, _HOUR), (_MINUTE, _DAY), (_HOUR, 31 * _DAY)), max_bytes=64 << 20
)


class SampleRetention:
    """Thins out old samples of a database.

    Args:
        database: the database.
        retention: the limits; None for the default of a file or of memory.
    """

    def __init__(
        self, database: StatisticsDatabase, retention: RetentionLimits | None = None
    ) -> None:
        self._database = database
        if retention is None:
            retention = IN_MEMORY if database.path == MEMORY else IN_FILE
        self._retention = retention
        self._scale = 1.0

    def thin_out_step(self, now: int) -> bool:
        """Do one small step of thinning out.

        Args:
            now: the timestamp of the present.

        Returns:
            Whether there may be more to do.

        Raises:
            sqlite3.Error: the step failed.
        """
        tiers = self._retention.tiers
        for tier, ((_, age), (width, _)) in enumerate(pairwise(tiers)):
            before = (now - self._scaled_age(age)) // width * width
            oldest = self._database.oldest_sample(tier, before)
            if oldest is not None:
                self._thin_out_range(oldest // width * width, width, tier + 1)
                return True
        if remove(self._database, now - self._scaled_age(tiers[-1][1])):
            return True
        return self._adjust_scale()

    def _scaled_age(self, age: int) -> int:
        return int(age * self._scale)

    def _adjust_scale(self) -> bool:
        """Shorten all ages if the database is too large; return whether that was done."""
        used_bytes, max_bytes = self._database.used_bytes, self._retention.max_bytes
        if used_bytes > max_bytes:
            self._scale *= _TIGHTEN_FACTOR
            return True
        if used_bytes < max_bytes * _TARGET_SHARE:
            self._scale = min(1.0, self._scale * _RELAX_FACTOR)
        return False

    def _thin_out_range(self, first: int, width: int, tier: int) -> None:
        """Reduce the samples of a time to one."""
        database, last = self._database, first + width - 1
        execute = database.connection.execute
        with database.transaction():
            [last_kept] = execute(
                f"SELECT max(timestamp) FROM {layout.SAMPLES} WHERE timestamp BETWEEN ? AND ?",
                (first, last),
            ).fetchone()
            for resource in layout.RECORDED:
                if resource == LIFETIMES:
                    continue
                average = layout.average(resource)
                if average is not None:
                    execute(average, {"first": first, "last": last_kept, "kept": last_kept})
            _remove_between(database, first, last_kept - 1)
            execute(f"UPDATE {layout.SAMPLES} SET tier = ? WHERE timestamp = ?", (tier, last_kept))


def remove(database: StatisticsDatabase, before: int, max_count: int = _REMOVE_BATCH_SIZE) -> int:
    """Remove some of the samples that are older than a moment.

    Args:
        database: the database.
        before: the moment's timestamp.
        max_count: the maximum number to remove.

    Returns:
        The number removed.

    Raises:
        sqlite3.Error: it is not possible.
    """
    rows = database.connection.execute(
        f"SELECT timestamp FROM {layout.SAMPLES} WHERE timestamp < ? ORDER BY timestamp LIMIT ?",
        (before, max_count),
    ).fetchall()
    if rows:
        with database.transaction():
            _remove_between(database, rows[0][0], rows[-1][0])
    return len(rows)


def remove_lifetimes(database: StatisticsDatabase, before: int) -> None:
    """Remove the starts and shutdowns of lives of the instance that ended before a moment.

    Raises:
        sqlite3.Error: it is not possible.
    """
    static, dynamic = layout.static(LIFETIMES), layout.dynamic(LIFETIMES)
    newest = f"(SELECT max(static_id) FROM {static} WHERE event = 'started')"
    with database.transaction():
        database.connection.execute(
            f"DELETE FROM {static} WHERE static_id < {newest} AND static_id IN"
            f" (SELECT static_id FROM {dynamic} WHERE timestamp < ?)",
            (before,),
        )
        database.connection.execute(
            f"DELETE FROM {dynamic} WHERE static_id NOT IN (SELECT static_id FROM {static})"
        )


def _remove_between(database: StatisticsDatabase, first: int, last: int) -> None:
    """Remove samples, and entries that lived at no others."""
    execute = database.connection.execute
    execute(f"DELETE FROM {layout.SAMPLES} WHERE timestamp BETWEEN ? AND ?", (first, last))
    removed = (
        f"SELECT static_id FROM {layout.LIVES} WHERE base = ? AND last BETWEEN ? AND ?"
        f" AND NOT EXISTS (SELECT 1 FROM {layout.SAMPLES} WHERE timestamp BETWEEN first AND last)"
    )
    for resource in layout.RECORDED:
        if resource == LIFETIMES:
            continue
        span = (first, last)
        execute(f"DELETE FROM {layout.dynamic(resource)} WHERE timestamp BETWEEN ? AND ?", span)
        of_resource = (resource.table, *span)
        execute(
            f"DELETE FROM {layout.static(resource)} WHERE static_id IN ({removed})", of_resource
        )
        execute(
            f"DELETE FROM {layout.LIVES} WHERE base = ? AND static_id IN ({removed})",
            (resource.table, *of_resource),
        )
