"""One execution of a statement: its result as record batches. Methods run on worker threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from server.sql.flight.arrow_types import (
    digest,
    live_schema,
    parameter_type,
    query_schema,
    with_schema,
)
from server.sql.flight.prepared_statements import PreparedFlightStatement
from server.sql.live.feed import LiveWait
from server.sql.live.rows import LiveRows
from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import SqlError
from server.sql.query.statement import Statement, StatementKind
from server.sql.query.statement_parser import parse
from server.sql.result_columns import ResultChangedError
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, SYNTAX_ERROR
from server.sql.statement_executor import is_query, is_setting

if TYPE_CHECKING:
    from server.sql.flight.client import FlightClient
    from server.sql.query.results import QueryResult
    from server.sql.write.writer import WriteResult, WriteSteps

_TRANSACTIONS: Final = frozenset(
    {
        StatementKind.BEGIN,
        StatementKind.COMMIT,
        StatementKind.ROLLBACK,
        StatementKind.SAVEPOINT,
    }
)

_SUBSCRIBE: Final = "SUBSCRIBE"
_COPY: Final = "COPY ("
"""The beginning of the statement of PostgreSQL's clients that has a SUBSCRIBE."""


def parse_one(text: str) -> Statement:
    """Return the statement of a text.

    Raises:
        SqlError: the text is no SQL, has not one statement, or one that is not supported here.
    """
    if text.lstrip()[: len(_SUBSCRIBE)].upper() == _SUBSCRIBE:
        return _parse_subscribe(text)
    statements = parse(text)
    if len(statements) != 1:
        raise SqlError(SYNTAX_ERROR, "a call executes one statement")
    (statement,) = statements
    if statement.kind in _TRANSACTIONS:
        raise transactions_refused()
    is_known = statement.kind in (StatementKind.WRITE, StatementKind.NOTIFY)
    if not (is_known or is_query(statement) or is_setting(statement)):
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            f"{statement.tag} is not a statement of Flight SQL",
            hint="Results are streams: use SELECT and SUBSCRIBE.",
            position=statement.offset + 1,
        )
    return statement


def has_rows(statement: Statement) -> bool:
    """Return whether a statement is a query or a SUBSCRIBE, or has RETURNING."""
    return is_query(statement) or statement.live is not None


def transactions_refused() -> SqlError:
    """Return the error of calls and statements that begin or end a transaction."""
    return SqlError(
        FEATURE_NOT_SUPPORTED,
        "Flight SQL has no transactions on this server",
        hint="Each statement takes effect by itself: use autocommit.",
    )


def _parse_subscribe(text: str) -> Statement:
    try:
        statements = parse(f"{_COPY}{text.rstrip().rstrip(';')}\n) TO STDOUT")
    except SqlError as error:
        raise _moved(error) from None
    if len(statements) != 1 or statements[0].live is None:
        raise SqlError(SYNTAX_ERROR, "a call executes one statement")
    return statements[0]


def _moved(error: SqlError) -> SqlError:
    """Correct the position of an error in the text of a SUBSCRIBE."""
    if error.position is not None:
        error.position = max(1, error.position - len(_COPY))
    return error


class FlightStatement:
    """One execution, or description, of a statement.

    Args:
        client: the client.
        text: the statement.
        parameters: the values of its parameters.
        parsed: the text as it was parsed; None if it was not yet.
        described: the digest of the columns that the client was told of; empty for none.

    Attributes:
        cancellation: cancels it; from any thread.
        schema: the columns of its result, once it is opened.
    """

    def __init__(
        self,
        client: FlightClient,
        text: str,
        parameters: Sequence[object] = (),
        parsed: Statement | None = None,
        described: bytes = b"",
    ) -> None:
        self.cancellation: Final = Cancellation()
        self.schema = pa.schema([])
        self._text: Final = text
        self._parsed = parsed
        self._described: Final = described
        self._parameters: Final = parameters
        tables = client.make_tables()
        self.cancellation.on_cancel(tables.cancel)
        self._executor: Final = client.make_executor(tables)
        self._rows: QueryResult | LiveRows | None = None
        self._batches: Iterator[pa.RecordBatch | LiveWait] = iter(())
        self._steps: WriteSteps | None = None
        self._returned: QueryResult | None = None

    @property
    def _statement(self) -> Statement:
        if self._parsed is None:
            self._parsed = parse_one(self._text)
        return self._parsed

    def has_rows(self) -> bool:
        """Return whether it is a query or a SUBSCRIBE, or has RETURNING.

        Raises:
            SqlError: the text is no statement.
        """
        return has_rows(self._statement)

    def prepare(self) -> PreparedFlightStatement:
        """Return it as a prepared statement, with the types of its parameters and columns.

        Raises:
            SqlError: the statement is wrong.
        """
        statement = self._statement
        columns, parameter_oids = self._describe()
        parameters = pa.schema(
            [(f"${number}", parameter_type(oid)) for number, oid in enumerate(parameter_oids, 1)]
        )
        return PreparedFlightStatement(self._text, statement, columns, parameters)

    def describe_columns(self) -> pa.Schema:
        """Return the columns of its result; none if it has none.

        Raises:
            SqlError: the statement is wrong.
        """
        return self._describe()[0]

    def _describe(self) -> tuple[pa.Schema, Sequence[int]]:
        """Return the columns of its result, and the OIDs of its parameters."""
        statement, executor = self._statement, self._executor
        if statement.live is not None:
            try:
                columns = executor.describe_live(
                    statement, statement.live, self.cancellation, self._parameters
                )
            except SqlError as error:
                raise _moved(error) from None
            return live_schema(columns), ()
        description = executor.describe(statement, (), self.cancellation)
        return query_schema(description.columns or ()), description.parameter_oids

    def open(self) -> bool:
        """Begin a query, or a SUBSCRIBE.

        Returns:
            False if it has to be written before, by `write`.

        Raises:
            ResultChangedError: it has other columns than the client was told of.
            SqlError: the statement is wrong, or fails before its first row.
        """
        if self.is_write and self._steps is None:
            return False
        result = self._returned or self._open()
        self._rows = result
        if isinstance(result, LiveRows):
            self.schema, self._batches = live_schema(result.columns), result.follow()
        else:
            self.schema, self._batches = query_schema(result.columns), result.batches()
        if not self.is_write:
            self._check_schema(self.schema)
        return True

    def next_batch(self) -> pa.RecordBatch | LiveWait | None:
        """Return the next rows, or the wait for them; None at the end.

        Raises:
            SqlError: it fails or is cancelled.
        """
        for batch in self._batches:
            if isinstance(batch, LiveWait):
                return batch
            if batch.num_rows:
                return with_schema(batch, self.schema)
        return None

    def write(self) -> Future[Any] | int:
        """Execute a statement that writes, or go on with it.

        Returns:
            The wait before it goes on, or the number of rows written at its end. Then
            `open` has the rows of RETURNING.

        Raises:
            SqlError: the statement is wrong, or a row is refused.
        """
        if self._steps is None:
            self._steps = self._executor.writer.run(
                self._statement,
                self._parameters,
                (),
                self.cancellation,
                lambda columns: self._check_schema(query_schema(columns)),
            )
        try:
            return next(self._steps)
        except StopIteration as end:
            result: WriteResult = end.value
            self._returned = result.returned
            return result.row_count

    @property
    def is_write(self) -> bool:
        """Whether it publishes rows."""
        return self._statement.kind is StatementKind.WRITE

    def apply(self) -> None:
        """Execute a statement that has and writes no rows: a setting, or NOTIFY.

        Raises:
            SqlError: the setting does not exist, or the message is refused.
        """
        self._executor.apply(self._statement)

    def close(self) -> None:
        """End the result; harmless if it has ended."""
        self._batches = iter(())
        if self._steps is not None:
            self._steps.close()
        for rows in (self._rows, self._returned):
            if rows is not None:
                rows.close()

    def _open(self) -> QueryResult | LiveRows:
        statement = self._statement
        try:
            return self._executor.open(statement, self.cancellation, self._parameters)
        except SqlError as error:
            raise (error if statement.live is None else _moved(error)) from None

    def _check_schema(self, schema: pa.Schema) -> None:
        if self._described and self._described != digest(schema):
            raise ResultChangedError("Execute the statement again.")
