"""Runs the statements of one client, on worker threads, one statement at a time.

A statement that has rows is a generator of output, so that it can be suspended while the client
does not read: its thread is free for other clients meanwhile. Statements of transactions, settings
and cursors are executed here; queries by the `QueryEngine`.

Transactions are blocks without an effect, except that an error makes the rest of a block fail, as
drivers expect, and that cursors end with them. Each query reads a snapshot of its own, and each
statement that writes takes effect by itself (`TransactionBlock`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakSet

from server.sql.copy_input import CopySource
from server.sql.copy_output import CopyEncoder
from server.sql.cursors import Cursors, OpenCursor
from server.sql.live.feed import LiveWait
from server.sql.live.rows import LiveRows
from server.sql.postgres import messages
from server.sql.postgres.events import (
    DescribePortalRequested,
    DescribeStatementRequested,
    ExecuteRequested,
    ParseRequested,
    StatementRequested,
)
from server.sql.postgres.messages import TEXT_FORMAT, TransactionStatus
from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import SqlError
from server.sql.query.statement import Statement, StatementKind
from server.sql.result_columns import (
    check_unchanged,
    to_result_columns,
)
from server.sql.row_cursor import RowCursor
from server.sql.sqlstate import (
    CONFIGURATION_LIMIT_EXCEEDED,
    FEATURE_NOT_SUPPORTED,
    IN_FAILED_SQL_TRANSACTION,
    INVALID_SQL_STATEMENT_NAME,
    NO_ACTIVE_SQL_TRANSACTION,
    SYNTAX_ERROR,
)
from server.sql.statement_executor import MAX_OPEN_RESULTS, is_query, notification
from server.sql.statement_output import Output, StatementOutput, send_rows
from server.sql.write.transaction_block import TransactionBlock

if TYPE_CHECKING:
    from server.sql.postgres.portals import (
        Portal,
        PreparedStatement,
    )
    from server.sql.postgres.protocol import PostgresProtocol
    from server.sql.postgres.types import ResultColumn
    from server.sql.query.results import Description
    from server.sql.query.session import SqlSession
    from server.sql.query.statement import CopyFormat
    from server.sql.statement_executor import StatementExecutor
    from server.sql.write.write_task import WriteOutcome
    from server.sql.write.writer import WriteResult, WriteSteps


_TRANSACTION_ENDS: Final = frozenset({StatementKind.COMMIT, StatementKind.ROLLBACK})


@dataclass(slots=True)
class StatementPlan:
    """A prepared statement.

    Attributes:
        statement: the statement; None for an empty one.
        description: its parameters and columns, once they are known.
        parameter_types: the OIDs of parameters that the client asked for.
        described: the columns described to the client; None if it has not asked.
    """

    statement: Statement | None
    description: Description | None = None
    parameter_types: tuple[int, ...] = ()
    described: Sequence[ResultColumn] | None = None


@dataclass(slots=True)
class BoundStatement:
    """A statement with its parameters: what a portal executes.

    Attributes:
        plan: the statement.
        parameters: the values of its parameters.
        cursor: its rows, once it is executed.
        described: the columns described to the client; None if it has not asked.
    """

    plan: StatementPlan
    parameters: tuple[object, ...]
    cursor: OpenCursor | None = None
    described: Sequence[ResultColumn] | None = None


StatementEvent: TypeAlias = (
    StatementRequested
    | ParseRequested
    | DescribeStatementRequested[StatementPlan]
    | DescribePortalRequested[StatementPlan, BoundStatement]
    | ExecuteRequested[StatementPlan, BoundStatement]
)
"""The events that are answered by a generator of output."""


class StatementRunner:
    """Runs the statements of one client.

    Args:
        executor: executes statements that are no matter of the protocol.
        session: the client's settings.
        protocol: the state of its connection; prepared statements, cursors and the state of the
            transaction are changed here, while an event is unanswered.
    """

    def __init__(
        self,
        executor: StatementExecutor,
        session: SqlSession,
        protocol: PostgresProtocol[StatementPlan, BoundStatement],
    ) -> None:
        self._executor: Final = executor
        self._session: Final = session
        self._protocol: Final = protocol
        self._block: Final = TransactionBlock(session)
        self._cursors: Final = Cursors()
        self._results = WeakSet[RowCursor | LiveRows]()
        self._described: tuple[str, Sequence[ResultColumn]] | None = None  # the last statement
        session.notify = self._notify_channel

    # ---- events of the protocol

    def answer(self, event: StatementEvent, cancellation: Cancellation) -> StatementOutput:
        """Answer an event."""
        match event:
            case StatementRequested(text):
                return self.run_text(text, cancellation)
            case ParseRequested(_, text, parameter_types):
                return self.prepare(text, parameter_types, cancellation)
            case DescribeStatementRequested(prepared):
                return self.describe_statement(prepared, cancellation)
            case DescribePortalRequested(portal):
                return self.describe_portal(portal, cancellation)
            case ExecuteRequested(portal, row_limit):
                return self.execute(portal, row_limit, cancellation)

    def run_text(self, text: str, cancellation: Cancellation) -> StatementOutput:
        """Run the statements of a text, up to the first that fails."""
        statements = self._executor.engine.parse(text)
        cancellation.check()
        if not statements:
            yield Output(messages.EMPTY_QUERY_RESPONSE)
        for statement in statements:
            self._check_transaction(statement)
            yield from self._run_simple(statement, cancellation)
        return self._protocol.ready

    def prepare(
        self, text: str, parameter_types: tuple[int, ...], cancellation: Cancellation
    ) -> StatementOutput:
        """Prepare a statement."""
        statements = self._executor.engine.parse(text)
        cancellation.check()
        if len(statements) > 1:
            raise SqlError(
                SYNTAX_ERROR, "cannot insert multiple commands into a prepared statement"
            )
        plan = StatementPlan(statements[0] if statements else None, None, parameter_types)
        if plan.statement is not None:
            self._check_transaction(plan.statement)
            if plan.statement.parameter_count:
                self._describe(plan, cancellation)
        types = () if plan.description is None else plan.description.parameter_oids
        return lambda: self._protocol.complete_parse(plan, types)
        yield  # a generator, as the others are

    def describe_statement(
        self, prepared: PreparedStatement[StatementPlan], cancellation: Cancellation
    ) -> StatementOutput:
        """Describe the columns of a prepared statement."""
        columns = self._columns_of(prepared.plan, cancellation)
        prepared.plan.described = columns
        self._described = None if columns is None else (prepared.text.strip(), columns)
        return lambda: self._protocol.complete_describe(columns)
        yield

    def describe_portal(
        self, portal: Portal[StatementPlan, BoundStatement], cancellation: Cancellation
    ) -> StatementOutput:
        """Describe the columns of a portal."""
        bound = portal.cursor
        columns = self._columns_of(bound.plan, cancellation)
        bound.described = columns
        return lambda: self._protocol.complete_describe(columns)
        yield

    def execute(
        self,
        portal: Portal[StatementPlan, BoundStatement],
        row_limit: int,
        cancellation: Cancellation,
    ) -> StatementOutput:
        """Execute a portal, or continue with it."""
        bound = portal.cursor
        statement = bound.plan.statement
        if statement is None:
            return lambda: self._protocol.complete_execute("")
        self._check_transaction(statement)
        if statement.kind is StatementKind.COPY_OUT:
            count = yield from self._copy(statement, cancellation, bound.parameters)
            tag = f"COPY {count}"
        elif statement.kind is StatementKind.FETCH:
            cursor = self._cursors.find(statement.name)
            formats = portal.formats(len(cursor.rows.columns))
            cancellation.on_cancel(cursor.cancellation.cancel)
            count = yield from send_rows(cursor.rows, statement.count, formats, statement.timeout_s)
            tag = f"FETCH {count}"
        elif is_query(statement):
            if bound.cursor is None:
                if bound.described is None:
                    bound.described = bound.plan.described
                types = bound.plan.parameter_types
                bound.cursor = yield from self._open(
                    statement, cancellation, bound.parameters, types, bound.described
                )
            rows = bound.cursor.rows
            cancellation.on_cancel(bound.cursor.cancellation.cancel)
            formats = portal.formats(len(rows.columns))
            count = yield from send_rows(rows, row_limit or None, formats)
            if row_limit and count == row_limit and rows.has_more:
                return self._protocol.suspend
            is_select = statement.kind is StatementKind.SELECT
            tag = bound.cursor.tag or (f"SELECT {count}" if is_select else statement.tag)
        else:
            types = bound.plan.parameter_types
            tag = yield from self._apply(statement, cancellation, bound.parameters, types)
        return lambda: self._protocol.complete_execute(tag)

    def begin_at_once(self, event: StatementEvent) -> bool:
        """Begin to answer an event on the engine's thread, if it takes no time to do so.

        Nothing waits then until `end_at_once`: the generator of output raises `NotAtOnceError`, and
        the event has to be answered on a worker thread.
        """
        statement: Statement | None = None
        types: Sequence[int] = ()
        match event:
            case StatementRequested(text) | ParseRequested(_, text):
                statement = self._executor.engine.known_statement(text)
                types = event.parameter_types if isinstance(event, ParseRequested) else ()
            case DescribeStatementRequested(prepared):
                statement, types = prepared.plan.statement, prepared.plan.parameter_types
            case DescribePortalRequested(portal) | ExecuteRequested(portal):
                plan = portal.cursor.plan
                statement = plan.statement if portal.cursor.cursor is None else None
                types = plan.parameter_types
        return statement is not None and self._executor.begin_at_once(statement, types)

    def end_at_once(self) -> None:
        """Allow statements to wait again."""
        self._executor.end_at_once()

    def on_error(self) -> None:
        """Note that a statement has failed; called before the error is sent."""
        if self._protocol.transaction_status is TransactionStatus.ACTIVE:
            self._protocol.transaction_status = TransactionStatus.FAILED

    def close(self) -> None:
        """End all cursors."""
        self._cursors.close_all(held=True)

    @property
    def _is_in_block(self) -> bool:
        """Whether a transaction block has begun; the protocol has the state of the transaction."""
        return self._protocol.transaction_status is not TransactionStatus.IDLE

    # ---- queries

    def _run_simple(
        self, statement: Statement, cancellation: Cancellation
    ) -> Generator[Output, None, None]:
        if is_query(statement) or statement.kind is StatementKind.FETCH:
            limit: int | None = None
            if statement.kind is StatementKind.FETCH:
                cursor = self._cursors.find(statement.name)
                limit = statement.count
                cancellation.on_cancel(cursor.cancellation.cancel)
            else:
                cursor = yield from self._open(statement, cancellation)
            columns = cursor.rows.columns
            formats = [TEXT_FORMAT] * len(columns)
            yield Output(messages.row_description(columns, formats))
            count = yield from send_rows(cursor.rows, limit, formats, statement.timeout_s)
            has_count = statement.kind in (StatementKind.SELECT, StatementKind.FETCH)
            tag = cursor.tag or (f"{statement.tag} {count}" if has_count else statement.tag)
        elif statement.kind is StatementKind.COPY_OUT:
            count = yield from self._copy(statement, cancellation)
            tag = f"COPY {count}"
        else:
            tag = yield from self._apply(statement, cancellation, ())
        yield Output(messages.command_complete(tag))

    def _open(
        self,
        statement: Statement,
        cancellation: Cancellation,
        parameters: Sequence[object] = (),
        parameter_types: Sequence[int] = (),
        described: Sequence[ResultColumn] | None = None,
    ) -> Generator[Output, None, OpenCursor]:
        """Execute a query, or a statement that writes; return its rows, or those of RETURNING."""
        if sum(not rows.is_finished for rows in self._results) >= MAX_OPEN_RESULTS:
            raise SqlError(
                CONFIGURATION_LIMIT_EXCEEDED,
                f"a session has at most {MAX_OPEN_RESULTS} results open",
            )
        if statement.has_returning:
            written = yield from self._write(
                statement, cancellation, parameters, parameter_types, described
            )
            assert written.returned is not None  # noqa: S101 - of a statement with RETURNING
            cursor = OpenCursor(
                RowCursor(written.returned),
                cancellation,
                tag=f"{statement.tag} {written.row_count}",
            )
        else:
            result = self._executor.open(statement, cancellation, parameters, parameter_types)
            rows = result if isinstance(result, LiveRows) else RowCursor(result)
            check_unchanged(described, rows.columns)
            cursor = OpenCursor(rows, cancellation)
        self._results.add(cursor.rows)
        return cursor

    def _copy(
        self, statement: Statement, cancellation: Cancellation, parameters: Sequence[object] = ()
    ) -> Generator[Output, None, int]:
        assert statement.copy is not None  # noqa: S101 - of COPY_OUT
        rows = (yield from self._open(statement, cancellation, parameters)).rows
        encoder = CopyEncoder(statement.copy, rows.columns)
        try:
            self._check_copied(statement, statement.copy, rows.columns)
            yield Output(encoder.begin())
            for batch in rows.follow() if isinstance(rows, LiveRows) else rows.take(None):
                if isinstance(batch, LiveWait):
                    yield Output(b"", 0, batch)
                else:
                    yield Output(encoder.rows(batch), batch.num_rows)
        finally:
            rows.close()
        yield Output(encoder.end())
        return rows.taken

    def _check_copied(
        self, statement: Statement, copy: CopyFormat, columns: Sequence[ResultColumn]
    ) -> None:
        """Check the columns of a binary COPY of the query that was described last.

        Binary data do not tell their types. ADBC reads them by those of that description.
        """
        if copy.format == "binary" and self._described is not None:
            query, described = self._described
            if _is_copy_of(statement.text, query):
                check_unchanged(described, columns, "Execute the statement again.")

    def _columns_of(
        self, plan: StatementPlan, cancellation: Cancellation
    ) -> Sequence[ResultColumn] | None:
        statement = plan.statement
        if statement is None:
            return None
        if statement.kind is StatementKind.FETCH:
            return self._cursors.find(statement.name).rows.columns
        if not is_query(statement):
            return None
        description = self._describe(plan, cancellation)
        return None if description.columns is None else to_result_columns(description.columns)

    def _describe(self, plan: StatementPlan, cancellation: Cancellation) -> Description:
        if plan.description is None:
            assert plan.statement is not None  # noqa: S101 - by its callers
            cancellation.check()
            plan.description = self._executor.describe(
                plan.statement, plan.parameter_types, cancellation
            )
        return plan.description

    # ---- other statements

    def _check_transaction(self, statement: Statement) -> None:
        if (
            self._protocol.transaction_status is TransactionStatus.FAILED
            and statement.kind not in _TRANSACTION_ENDS
        ):
            raise SqlError(
                IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    def _apply(
        self,
        statement: Statement,
        cancellation: Cancellation,
        parameters: Sequence[object],
        parameter_types: Sequence[int] = (),
    ) -> Generator[Output, None, str]:
        """Execute a statement without rows; return its tag."""
        match statement.kind:
            case StatementKind.WRITE:
                result = yield from self._write(
                    statement, cancellation, parameters, parameter_types
                )
                return f"{statement.tag} {result.row_count}"
            case StatementKind.COPY_IN:
                return (yield from self._copy_in(statement, cancellation))
            case StatementKind.SET | StatementKind.RESET | StatementKind.DISCARD:
                yield from self._change_settings(statement)
            case (
                StatementKind.BEGIN
                | StatementKind.COMMIT
                | StatementKind.ROLLBACK
                | StatementKind.SAVEPOINT
            ):
                return self._change_transaction(statement)
            case StatementKind.DEALLOCATE:
                self._deallocate(statement)
            case StatementKind.DECLARE:
                yield from self._declare(statement, cancellation, parameters)
            case StatementKind.MOVE:
                return f"MOVE {self._move(statement, cancellation)}"
            case StatementKind.CLOSE:
                self._cursors.close(statement.name)
            case StatementKind.NOTIFY:
                self._notify(statement)
            case StatementKind.LISTEN | StatementKind.UNLISTEN:
                self._executor.apply(statement)
        return statement.tag

    def _change_transaction(self, statement: Statement) -> str:
        """Begin or end a block, or do nothing for a savepoint; return the tag."""
        match statement.kind:
            case StatementKind.BEGIN:
                self._protocol.transaction_status = TransactionStatus.ACTIVE
                self._block.begin(statement)
            case StatementKind.COMMIT | StatementKind.ROLLBACK:
                failed = self._protocol.transaction_status is TransactionStatus.FAILED
                self._protocol.transaction_status = TransactionStatus.IDLE
                self._cursors.close_all(held=False)
                is_rollback = failed or statement.kind is StatementKind.ROLLBACK
                self._block.end(is_rollback=is_rollback)
                return "ROLLBACK" if failed else statement.tag
            case StatementKind.SAVEPOINT if not self._is_in_block:
                raise SqlError(
                    NO_ACTIVE_SQL_TRANSACTION,
                    f"{statement.tag} can only be used in transaction blocks",
                )
            case StatementKind.SAVEPOINT if statement.tag == "ROLLBACK":
                self._block.check_partial_rollback()
        return statement.tag

    def _notify(self, statement: Statement) -> None:
        self._block.check_write("NOTIFY", is_in_block=self._is_in_block)
        self._executor.apply(statement)
        if self._is_in_block:
            self._block.add_rows(1)

    def _notify_channel(self, channel: str, payload: str) -> None:
        """Publish for `pg_notify`, as NOTIFY does."""
        self._notify(notification(channel, payload))

    def _deallocate(self, statement: Statement) -> None:
        if not self._protocol.deallocate(statement.name):
            raise SqlError(
                INVALID_SQL_STATEMENT_NAME, f'prepared statement "{statement.name}" does not exist'
            )

    def _move(self, statement: Statement, cancellation: Cancellation) -> int:
        """Skip rows of a cursor; return their number."""
        cursor = self._cursors.find(statement.name)
        if isinstance(cursor.rows, LiveRows):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "the cursor of a SUBSCRIBE cannot be moved",
                hint="Use FETCH.",
            )
        cancellation.on_cancel(cursor.cancellation.cancel)
        return sum(batch.num_rows for batch in cursor.rows.take(statement.count))

    def _write(
        self,
        statement: Statement,
        cancellation: Cancellation,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        described: Sequence[ResultColumn] | None = None,
    ) -> Generator[Output, None, WriteResult]:
        self._block.check_write(statement.tag.split()[0], is_in_block=self._is_in_block)
        steps = self._executor.writer.run(
            statement,
            parameters,
            parameter_types,
            cancellation,
            lambda columns: check_unchanged(described, to_result_columns(columns)),
        )
        return (yield from self._follow(steps))

    def _copy_in(
        self, statement: Statement, cancellation: Cancellation
    ) -> Generator[Output, None, str]:
        """Write the rows of a COPY FROM STDIN; return its tag."""
        self._block.check_write("COPY FROM", is_in_block=self._is_in_block)
        target = self._executor.writer.prepare_copy(statement)
        is_binary = statement.copy is not None and statement.copy.format == "binary"
        yield Output(messages.copy_in_response(len(target.oids), binary=is_binary))
        steps = self._executor.writer.copy(target, CopySource(), cancellation)
        result = yield from self._follow(steps)
        return f"{statement.tag} {result.row_count}"

    def _follow(
        self,
        steps: Generator[CopySource | Future[WriteOutcome], None, WriteResult] | WriteSteps,
    ) -> Generator[Output, None, WriteResult]:
        """Execute the steps of a statement that writes, and count its rows."""
        written = 0
        try:
            while True:
                awaited = next(steps)
                if isinstance(awaited, CopySource):
                    yield Output(b"", wait=awaited)
                    continue
                yield Output(b"", awaited=awaited)
                written += awaited.result().count
        except StopIteration as end:
            result: WriteResult = end.value
            return result
        finally:
            if self._is_in_block:
                self._block.add_rows(written)

    def _change_settings(self, statement: Statement) -> Iterator[Output]:
        session = self._session
        before = session.reported()
        if self._is_in_block and "READ ONLY" in statement.options:
            self._block.begin(statement)
        if statement.kind is not StatementKind.DISCARD:
            self._executor.apply(statement)
        elif statement.name == "ALL":
            self._executor.discard()
            self._cursors.close_all(held=True)
            self._protocol.deallocate(None)
        for name, value in session.reported().items():
            if before.get(name) != value:
                yield Output(messages.parameter_status(name, value))

    def _declare(
        self, statement: Statement, cancellation: Cancellation, parameters: Sequence[object]
    ) -> Generator[Output, None, None]:
        is_held = "HOLD" in statement.options
        if not (self._is_in_block or is_held):
            raise SqlError(
                NO_ACTIVE_SQL_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks"
            )
        name = statement.name or ""
        self._cursors.check_new(name)
        cursor_cancellation = Cancellation()  # the cursor outlives the statement
        cancellation.on_cancel(cursor_cancellation.cancel)
        cursor = yield from self._open(statement, cursor_cancellation, parameters)
        cursor.is_held = is_held
        self._cursors.add(name, cursor)
        fetch = Statement(f"FETCH ALL FROM {name}", StatementKind.FETCH, "FETCH", name=name)
        plan = StatementPlan(fetch)
        self._protocol.add_portal(name, plan, BoundStatement(plan, ()))


def _is_copy_of(copy: str, query: str) -> bool:
    """Return whether a COPY is one of a query, as both are written."""
    word, _, rest = copy.partition("(")
    rest = rest.lstrip()
    is_query = word.strip().upper() == "COPY" and rest.startswith(query)
    return is_query and rest[len(query) :].lstrip().startswith(")")
