"""SQL statements, as `server.engine.sql_counters` has counted them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from server.statistics.resources import SQL, SQL_ERRORS
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.statistics.schema import Resource

_CLASSES: Final[Mapping[str, str]] = {
    "08": "connection exception",
    "0A": "feature not supported",
    "22": "data exception",
    "25": "invalid transaction state",
    "26": "invalid SQL statement name",
    "34": "invalid cursor name",
    "40": "transaction rollback",
    "42": "syntax error or access rule violation",
    "53": "insufficient resources",
    "54": "program limit exceeded",
    "55": "object not in prerequisite state",
    "57": "operator intervention",
    "XX": "internal error",
}
"""The classes of SQLSTATEs. Source: PostgreSQL 16, Appendix A."""


class SqlSource:
    """The statements of all SQL connections.

    Args:
        engine: has the counters.
    """

    resource: Resource = SQL

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        counters = self._engine.sql_counters
        yield StatisticsEntry(
            "",
            (),
            (
                counters.bytes_sent,
                counters.cancelled,
                counters.durations_us.total,
                counters.errors.total(),
                counters.memory_limit_hits,
                counters.rows_sent,
                counters.running,
                counters.slow,
                counters.statements,
            ),
        )


class SqlErrorsSource:
    """The errors of SQL statements, by their classes.

    Args:
        engine: has the counters.
    """

    resource: Resource = SQL_ERRORS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        for error_class, count in self._engine.sql_counters.errors.items():
            yield StatisticsEntry(error_class, (_CLASSES.get(error_class, ""),), (count,))
