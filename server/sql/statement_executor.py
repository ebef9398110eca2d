"""Executes the statements of one client, of any protocol. Methods run on worker threads.

    SELECT, EXPLAIN, SHOW         a result, by the `QueryEngine`
    SUBSCRIBE                     a result that goes on, by `LiveStatements`
    INSERT, UPDATE, DELETE        steps of a `StatementWriter`, and the rows of RETURNING
    SET, RESET, LISTEN, NOTIFY    an effect

What belongs to a protocol is with its connections: portals, cursors and transactions in
`StatementRunner`, tickets and record batches in `server.sql.flight`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from server.sql.query.live_terms import TopicName
from server.sql.query.statement import Statement, StatementKind
from server.sql.tables.errors import ColumnsWidenedError
from server.sql.write.writer import StatementWriter

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.sql.engine_thread import Post
    from server.sql.live.rows import LiveRows
    from server.sql.live.statements import LiveStatements
    from server.sql.postgres.types import ResultColumn
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.live_terms import LiveTerms
    from server.sql.query.query_engine import QueryEngine
    from server.sql.query.results import Description, QueryResult
    from server.sql.query.session import SqlSession
    from server.sql.tables.catalogue import SessionTables

MAX_OPEN_RESULTS: Final = 10
"""Results of a client that are not at their end: each keeps the records that it reads."""

_MAX_PLANNED: Final = 3
"""How often a query is planned whose columns are widened while it is scanned."""

_QUERIES: Final = frozenset({StatementKind.SELECT, StatementKind.EXPLAIN, StatementKind.SHOW})
_SETTINGS: Final = frozenset({StatementKind.SET, StatementKind.RESET})
_LIVE_EFFECTS: Final = frozenset(
    {StatementKind.LISTEN, StatementKind.UNLISTEN, StatementKind.NOTIFY}
)


def is_query(statement: Statement) -> bool:
    """Return whether a statement answers with the rows of a result of its own."""
    is_returning = statement.kind is StatementKind.WRITE and statement.has_returning
    return statement.kind in _QUERIES or is_returning


def is_setting(statement: Statement) -> bool:
    """Return whether a statement changes a setting of the session."""
    return statement.kind in _SETTINGS


def notification(channel: str, payload: str) -> Statement:
    """Return the NOTIFY that `pg_notify` stands for; its channel is the name of a topic."""
    topic = TopicName("", channel, 0)
    return Statement("", StatementKind.NOTIFY, "NOTIFY", topic=topic, value=payload)


class StatementExecutor:
    """Executes the statements of one client.

    Args:
        engine: executes queries.
        session: the client's session.
        tables: the tables of the client's user.
        settings: the client's settings.
        live: executes SUBSCRIBE, LISTEN, UNLISTEN and NOTIFY.
        post: schedules a call on the engine's thread.
        warn: called with unknown parts of the catalogue that the client has asked for.

    Attributes:
        engine: executes queries.
        writer: executes statements that write.
    """

    def __init__(
        self,
        engine: QueryEngine,
        session: Session,
        tables: SessionTables,
        settings: SqlSession,
        live: LiveStatements,
        post: Post,
        warn: Callable[[str], None],
    ) -> None:
        self.engine: Final = engine
        self.writer: Final = StatementWriter(session, tables, settings, engine, post)
        self._tables: Final = tables
        self._settings: Final = settings
        self._live: Final = live
        self._warn: Final = warn

    def begin_at_once(self, statement: Statement, parameter_types: Sequence[int]) -> bool:
        """Begin to execute a statement on the engine's thread, if it reads a few records only.

        Until `end_at_once`, `describe` and `open` raise `NotAtOnceError` instead of waiting.
        """
        user = self._settings.user
        self._tables.at_once = self.engine.is_point_query(statement, parameter_types, user)
        return self._tables.at_once

    def end_at_once(self) -> None:
        """Allow statements to wait again."""
        self._tables.at_once = False

    def describe(
        self, statement: Statement, parameter_types: Sequence[int], cancellation: Cancellation
    ) -> Description:
        """Return the parameters of a query, or of a statement that writes, and its columns.

        Raises:
            SqlError: the statement is wrong.
        """
        if statement.kind is StatementKind.WRITE or statement.has_returning:
            found = self.writer.describe(statement, parameter_types, cancellation)
        else:
            found = self.engine.describe(
                statement,
                self._tables,
                self._settings,
                parameter_types,
                cancellation,
                at_once=self._tables.at_once,
            )
        self._log_warnings(found.warnings)
        return found

    def describe_live(
        self,
        statement: Statement,
        terms: LiveTerms,
        cancellation: Cancellation,
        parameters: Sequence[object],
    ) -> Sequence[ResultColumn]:
        """Return the columns of a SUBSCRIBE.

        Raises:
            SqlError: the statement is wrong.
        """
        now = terms._replace(has_snapshot=False)
        rows = self._subscribe(statement, now, cancellation, parameters, (), begins=False)
        rows.close()
        return rows.columns

    def open(
        self,
        statement: Statement,
        cancellation: Cancellation,
        parameters: Sequence[object] = (),
        parameter_types: Sequence[int] = (),
    ) -> QueryResult | LiveRows:
        """Begin a query or a SUBSCRIBE; plan it again if its scan widens its columns.

        Raises:
            SqlError: the statement is wrong, or fails before its first row.
        """
        for attempt in range(1, _MAX_PLANNED + 1):
            try:
                if statement.live is not None:
                    return self._subscribe(
                        statement, statement.live, cancellation, parameters, parameter_types
                    )
                result = self.engine.execute(
                    statement,
                    self._tables,
                    self._settings,
                    parameters,
                    parameter_oids=parameter_types,
                    cancellation=cancellation,
                    at_once=self._tables.at_once,
                )
            except ColumnsWidenedError:
                if attempt == _MAX_PLANNED:
                    raise
                continue
            self._log_warnings(result.warnings)
            return result
        raise AssertionError("unreachable")

    def _subscribe(
        self,
        statement: Statement,
        terms: LiveTerms,
        cancellation: Cancellation,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        *,
        begins: bool = True,
    ) -> LiveRows:
        """Begin a SUBSCRIBE; with `begins=False` for its columns only, so from now on."""
        plan, as_of = self.engine.plan_live(
            statement, self._tables, self._settings, parameters, parameter_types, cancellation
        )
        cancellation.check()
        return self._live.subscribe(terms, plan, cancellation, as_of if begins else None)

    def apply(self, statement: Statement) -> None:
        """Execute a statement that has an effect only: a setting, LISTEN, UNLISTEN or NOTIFY.

        Raises:
            SqlError: the setting does not exist, or the topic or the message is refused.
        """
        if statement.kind in _LIVE_EFFECTS:
            self._live.execute(statement)
        elif statement.kind is StatementKind.RESET and statement.name == "ALL":
            self._settings.reset()
        elif statement.name is not None:
            self._settings.set(statement.name, statement.value)

    def discard(self) -> None:
        """Reset all settings, and listen to nothing any more (DISCARD ALL)."""
        self._settings.reset()
        self._live.unlisten(None)

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        for warning in warnings:
            self._warn(warning)
