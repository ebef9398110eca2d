"""Executes the statements of one client that write.

    statement -> query for the rows -> all messages -> WriteTask on the engine's thread -> count

The query is executed as any other, so a user changes only records that the user may read. All
messages are made before the first is published: an error in a value writes nothing. While the
messages are published and persisted, the statement occupies no thread.

A record of UPDATE or DELETE that has changed since it was read is left alone, and the query is
executed again for it, as PostgreSQL does it (READ COMMITTED).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from server.sql.copy_input import CopyDecoder, CopySource, make_decoder
from server.sql.engine_thread import Post, call_engine, post_call
from server.sql.postgres.types import TEXT
from server.sql.query.cancellation import Cancellation, time_limit
from server.sql.query.errors import SqlError
from server.sql.query.results import Description
from server.sql.query.statement import Statement
from server.sql.query.tables import find_table
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, SERIALIZATION_FAILURE
from server.sql.tables.errors import ColumnsWidenedError
from server.sql.write.returning_query import (
    Returning,
    ReturningQueries,
    WrittenRows,
    make_written_rows,
)
from server.sql.write.row_writes import (
    RowBuffer,
    changes,
    collect_rows,
    constant_row,
    identity,
    insertions,
    result_rows,
)
from server.sql.write.write_query import WriteQuery, plan_change, plan_insert
from server.sql.write.write_statement import (
    WriteKind,
    read_write_statement,
)
from server.sql.write.write_target import (
    WriteTarget,
    describe_target,
    require_write_permission,
)
from server.sql.write.write_task import (
    RowVersion,
    RowWrite,
    WriteOutcome,
    WriteTask,
)

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.sql.query.query_engine import QueryEngine
    from server.sql.query.results import QueryColumn, QueryResult
    from server.sql.query.session import SqlSession
    from server.sql.tables.catalogue import SessionTables
    from server.sql.tables.instance_tables import SessionTopic


_MAX_ATTEMPTS: Final = 20
"""Executions of UPDATE or DELETE whose records other clients change meanwhile."""

_MAX_PLANNED: Final = 3


_ResultT = TypeVar("_ResultT")

WriteSteps = Generator[Future[WriteOutcome], None, "WriteResult"]
"""Executes a statement: yields what it waits for, and returns the result."""

ColumnCheck = Callable[["Sequence[QueryColumn]"], None]
"""Raises an error if a client has been told of other columns."""


class WriteResult(NamedTuple):
    """The result of a statement that writes.

    Attributes:
        row_count: the number of rows that were written.
        returned: the rows of RETURNING; None without it.
    """

    row_count: int
    returned: QueryResult | None = None


class CopyTarget(NamedTuple):
    """What a COPY FROM STDIN writes.

    Attributes:
        write: the columns, as of an INSERT.
        oids: the types of the values.
        decoder: decodes the data.
    """

    write: WriteQuery
    oids: Sequence[int]
    decoder: CopyDecoder


class StatementWriter:
    """Executes the statements of one client that write. Methods are called on worker threads.

    Args:
        session: the client's session.
        tables: the tables of its user.
        settings: its settings.
        engine: executes queries.
        post: schedules a call on the engine's thread.
    """

    def __init__(
        self,
        session: Session,
        tables: SessionTables,
        settings: SqlSession,
        engine: QueryEngine,
        post: Post,
    ) -> None:
        self._session: Final = session
        self._tables: Final = tables
        self._settings: Final = settings
        self._engine: Final = engine
        self._post: Final = post
        self._returning: Final = ReturningQueries(engine, settings)

    def describe(
        self, statement: Statement, parameter_types: Sequence[int], cancellation: Cancellation
    ) -> Description:
        """Return the types of a statement's parameters, and the columns of RETURNING.

        Raises:
            SqlError: the statement is wrong.
        """
        write = self._prepare(statement, parameter_types)
        found = self._engine.describe(
            write.query, write.source, self._settings, parameter_types, cancellation
        )
        if not statement.has_returning:
            return Description(found.parameter_oids, None, found.warnings)
        returning = self._prepare_returning(statement, write, found, cancellation)
        return Description(found.parameter_oids, returning.columns, found.warnings)

    def _plan_returning(
        self,
        statement: Statement,
        parameter_types: Sequence[int],
        cancellation: Cancellation,
        check_columns: ColumnCheck,
    ) -> Returning:
        """Return the query of RETURNING for an execution; see `run`."""
        write = self._prepare(statement, parameter_types, is_execution=True)
        found = self._engine.describe(
            write.query, write.source, self._settings, parameter_types, cancellation
        )
        returning = self._prepare_returning(statement, write, found, cancellation)
        check_columns(returning.columns)
        return returning

    def _prepare_returning(
        self,
        statement: Statement,
        write: WriteQuery,
        description: Description,
        cancellation: Cancellation,
    ) -> Returning:
        """Return the query of RETURNING.

        Args:
            statement: the statement.
            write: it, prepared.
            description: the description of the query for its rows.
            cancellation: ends the description of the result.

        Raises:
            SqlError: the topic has no records to return, or the expressions are wrong.
        """
        target, topic = write.target, write.topic
        if topic is None or target.records is None or target.records.needs_context:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f'RETURNING is not supported for "{target.topic}"',
                detail="It returns the records of a table that the user may read, whose keys come"
                " from their fields or from the publisher.",
                hint="Leave out RETURNING.",
                position=statement.offset + statement.text.upper().rfind("RETURNING") + 1,
            )
        oids = [column.oid for column in description.columns or ()]
        if write.statement.kind is WriteKind.INSERT:
            named = zip(write.statement.columns, oids, strict=False)
            oids = [oid for name, oid in named if name in write.columns]
        else:
            oids = oids[len(write.metadata) :]
        rows = make_written_rows(topic, target, write.columns, oids)
        return self._returning.prepare(
            statement, write.statement, rows, description.parameter_oids, cancellation
        )

    def run(
        self,
        statement: Statement,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        cancellation: Cancellation,
        check_columns: ColumnCheck,
    ) -> WriteSteps:
        """Execute a statement.

        Args:
            statement: the statement.
            parameters: the values of its parameters.
            parameter_types: the types that the client asked for.
            cancellation: ends it.
            check_columns: checks the columns of RETURNING, before the first row is written.

        Raises:
            SqlError: the statement is wrong, `check_columns` refuses the columns of RETURNING, or
                a row is refused; the error says how many rows were written before.
        """
        total = WriteOutcome()
        returned: QueryResult | None = None
        try:
            with self._time_limit(cancellation):
                returning: Returning | None = None
                if statement.has_returning:
                    returning = self._plan_returning(
                        statement, parameter_types, cancellation, check_columns
                    )
                rows = None if returning is None else returning.rows
                yield from self._execute(
                    statement, parameters, parameter_types, cancellation, total, rows
                )
                if returning is not None:
                    returned = self._returning.execute(
                        returning, parameters, parameter_types, cancellation
                    )
        except SqlError as error:
            raise _with_count(error, total.count) from None
        return WriteResult(total.count, returned)

    def prepare_copy(self, statement: Statement) -> CopyTarget:
        """Return the columns that a COPY FROM STDIN writes.

        Raises:
            SqlError: the user may not write them, or their values cannot be decoded.
        """
        assert statement.copy is not None  # noqa: S101 - of COPY_IN
        write = self._prepare(statement, (), is_execution=True)
        names = write.statement.columns
        is_binary = statement.copy.format == "binary"
        for name, kind in zip(names, write.types, strict=True):
            if is_binary and kind is None:
                raise SqlError(
                    FEATURE_NOT_SUPPORTED,
                    f'column "{name}" is new, and binary data do not tell its type',
                    hint="Use the format text or csv, or INSERT a row before.",
                )
        oids = [TEXT if kind is None or not is_binary else kind.oid for kind in write.types]
        return CopyTarget(write, oids, make_decoder(statement.copy, names, oids))

    def copy(
        self, target: CopyTarget, source: CopySource, cancellation: Cancellation
    ) -> Generator[CopySource | Future[WriteOutcome], None, WriteResult]:
        """Write the rows of a COPY FROM STDIN, when all data are there.

        Yields what it waits for: data of the client, and then the write.

        Args:
            target: the columns.
            source: the data.
            cancellation: ends it.

        Raises:
            SqlError: the data are malformed, the client ends them by a failure, or a row is
                refused; the error says how many rows were written before.
        """
        total, buffer = WriteOutcome(), RowBuffer()
        cancellation.on_cancel(partial(self._wake, source))
        try:
            with self._time_limit(cancellation):
                piece: bytes | None = b""
                while piece is not None:
                    yield source
                    cancellation.check()
                    piece = source.take()
                    values = target.decoder.decode(piece)
                    buffer.extend(insertions(target.write, values, target.oids))
                if buffer.rows:
                    yield from self._write_rows(target.write, buffer.rows, cancellation, total)
        except SqlError as error:
            raise _with_count(error, total.count) from None
        return WriteResult(total.count)

    def _wake(self, source: CopySource) -> None:
        with suppress(RuntimeError):  # the instance is stopping
            self._post(source.wake)

    def _execute(
        self,
        statement: Statement,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        cancellation: Cancellation,
        total: WriteOutcome,
        returned: WrittenRows | None,
    ) -> Generator[Future[WriteOutcome], None, None]:
        """Execute a statement, and again for records that have changed since they were read."""
        pending: set[tuple[str, str]] | None = None
        for _ in range(_MAX_ATTEMPTS):
            write = self._prepare(statement, parameter_types, is_execution=True)
            rows = self._find_rows(write, parameters, parameter_types, cancellation)
            if pending is not None:
                rows = [row for row in rows if identity(row) in pending]
            if not rows:
                return
            conflicts = yield from self._write_rows(write, rows, cancellation, total, returned)
            if not conflicts:
                return
            pending = {(version.topic, version.key) for version in conflicts}
        raise SqlError(
            SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent update",
            hint="Execute the statement again.",
        )

    def _write_rows(
        self,
        write: WriteQuery,
        rows: Sequence[RowWrite],
        cancellation: Cancellation,
        total: WriteOutcome,
        returned: WrittenRows | None = None,
    ) -> Generator[Future[WriteOutcome], None, Sequence[RowVersion]]:
        """Write rows; return the records that have changed since they were read."""
        task = WriteTask(self._session, _to_learn_from(write), rows, cancellation, returned)
        post_call(self._post, task.start)
        yield task.outcome
        outcome = task.outcome.result()
        total.count += outcome.count
        if outcome.has_new_columns:
            self._tables.refresh()
        if outcome.error is not None:
            raise outcome.error
        return outcome.conflicts

    def _time_limit(self, cancellation: Cancellation) -> AbstractContextManager[None]:
        """Limit the time of a statement, its writes included."""
        timeout_s = self._engine.limits.timeout_s(self._settings)
        return time_limit(timeout_s, time.monotonic(), cancellation)

    # ---- the statement

    def _prepare(
        self, statement: Statement, parameter_types: Sequence[int], *, is_execution: bool = False
    ) -> WriteQuery:
        assert statement.tree is not None  # noqa: S101 - of WRITE
        write = read_write_statement(statement.tree)
        table = find_table(self._tables.tables(), write.schema, write.name)

        def describe() -> tuple[WriteTarget, SessionTopic | None]:
            session, tables = self._session, self._tables
            target = describe_target(session, tables, table, write.schema, write.name)
            if is_execution:
                require_write_permission(session, target, target.topic)
            return target, None if target.table is None else tables.find_topic(target.table)

        target, topic = call_engine(self._post, describe)
        plan = plan_insert if write.kind is WriteKind.INSERT else plan_change
        return plan(statement, write, target, parameter_types, self._tables)._replace(topic=topic)

    # ---- the rows

    def _find_rows(
        self,
        write: WriteQuery,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        cancellation: Cancellation,
    ) -> list[RowWrite]:
        """Execute the query, and make the messages.

        Raises:
            SqlError: a value cannot be written, or there are too many.
        """
        row = constant_row(write.statement, parameters, parameter_types)
        if row is not None:
            cancellation.check()
            return collect_rows(insertions(write, [row.values], row.oids))
        for attempt in range(1, _MAX_PLANNED + 1):
            try:
                result = self._engine.execute(
                    write.query,
                    write.source,
                    self._settings,
                    parameters,
                    parameter_oids=parameter_types,
                    cancellation=cancellation,
                )
                break
            except ColumnsWidenedError:
                if attempt == _MAX_PLANNED:
                    raise
        try:
            if write.statement.kind is WriteKind.INSERT:
                oids = [column.oid for column in result.columns]
                return collect_rows(insertions(write, result_rows(result), oids))
            return collect_rows(changes(write, result))
        finally:
            result.close()


def _to_learn_from(write: WriteQuery) -> WriteTarget:
    """Return the target; its columns learn from messages only if some may have new fields."""
    target = write.target
    is_new = any(column.sql_type is None for column in write.columns.values())
    return target if is_new or not target.columns else target._replace(known_columns=None)


def _with_count(error: SqlError, count: int) -> SqlError:
    """Return an error that says how many rows were written before it."""
    if not count:
        return error
    rows = "1 row was" if count == 1 else f"{count} rows were"
    written = f"{rows} written before that, and stay."
    detail = f"{error.detail} {written}" if error.detail else written
    return SqlError(
        error.sqlstate, error.message, detail=detail, hint=error.hint, position=error.position
    )
