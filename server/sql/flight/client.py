"""A client that has logged on: its session, its settings, its statements.

The session belongs to the engine's thread. Prepared statements and statements in progress belong to
gRPC's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from server.sql.client_log import MAX_LOGGED, log_limited, printable
from server.sql.flight.prepared_statements import PreparedStatements
from server.sql.live.statements import LiveStatements
from server.sql.query.session import SqlSession
from server.sql.statement_executor import StatementExecutor, notification
from server.sql.tables.catalogue import SessionTables

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.sql.engine_thread import Post
    from server.sql.flight.statement_run import StatementRun
    from server.sql.services import SqlServices
    from server.sql.tables.statistics_table import StatisticsAccess
    from server.util.rate_limited_log import RateLimitedLog

_T = TypeVar("_T")


class FlightClient:
    """A client that has logged on.

    Args:
        session: its session.
        services: shared by all SQL connections.
        statistics: decides about access to statistics.
        post: schedules a call on the engine's thread.
        rate_limited_log: the log of entries that requests of clients cause.

    Attributes:
        session: its session.
        services: shared by all SQL connections.
        settings: its settings.
        post: schedules a call on the engine's thread.
        runs: its statements in progress; on gRPC's thread.
        prepared: its prepared statements; on gRPC's thread.
        write_lock: held by the statement that writes, so that they take effect in their order.
        is_closed: whether its session has ended.
    """

    def __init__(
        self,
        session: Session,
        services: SqlServices,
        statistics: StatisticsAccess,
        post: Post,
        rate_limited_log: RateLimitedLog,
    ) -> None:
        self.session: Final = session
        self.services: Final = services
        self.settings: Final = SqlSession(
            session.user, session.engine.settings.instance_name, session.number
        )
        self.post: Final = post
        self.runs: Final[set[StatementRun]] = set()
        self.prepared: Final = PreparedStatements()
        self.write_lock: Final = asyncio.Lock()
        self.is_closed = False
        self._statistics: Final = statistics
        self._rate_limited_log: Final = rate_limited_log
        self._live: Final = self._make_live(self.make_tables())
        self.settings.notify = self._notify

    def make_tables(self) -> SessionTables:
        """Return the tables of the user, for one statement."""
        return SessionTables(
            self.services.tables,
            self.session,
            self.post,
            self.services.limits.max_memory_bytes,
            self._statistics,
        )

    def make_executor(self, tables: SessionTables) -> StatementExecutor:
        """Return the executor of a statement that reads some tables."""
        return StatementExecutor(
            self.services.query_engine,
            self.session,
            tables,
            self.settings,
            self._make_live(tables),
            self.post,
            self.warn,
        )

    def _make_live(self, tables: SessionTables) -> LiveStatements:
        return LiveStatements(tables, self.session, self.post, lambda _: None)

    def call(self, function: Callable[[], _T]) -> Future[_T]:
        """Return the future result of a function that is called on a statement thread."""
        return self.services.workers.call(function, self.session.user)

    def warn(self, text: str) -> None:
        """Log an unknown part of the catalogue that a query asks for; from any thread."""
        query = printable(text, MAX_LOGGED)
        log = self._rate_limited_log
        self.post(partial(log_limited, log, "16-0032", self.session, query=query))

    def close(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        """End: the session has ended; on the engine's thread.

        Args:
            schedule: schedules a call on gRPC's thread.
        """
        self.is_closed = True
        self._live.close()
        schedule(self._cancel_all)

    def _cancel_all(self) -> None:
        for run in list(self.runs):
            run.cancel("the connection was closed")

    def _notify(self, channel: str, payload: str) -> None:
        """Publish for `pg_notify`, as NOTIFY does."""
        self._live.execute(notification(channel, payload))
