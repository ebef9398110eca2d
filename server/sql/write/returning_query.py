"""RETURNING: the records that a statement has written, as a table for a query.

The expressions are those of a query over one table: the rows are the records as they were just
after each of them was written; those of DELETE as they were before. Records that the user may not
read are left out, and so are fields: the columns are those of the topic's table, and new fields
that the statement writes, with the types of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from server.expressions.regex.budget import TooCostlyError
from server.sql.query.errors import SqlError
from server.sql.query.results import QueryColumn, QueryResult
from server.sql.query.statement import Statement, StatementKind
from server.sql.query.tables import Column, ScanRequest, ScanResult, SqlType, Table
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, OUT_OF_MEMORY, PROGRAM_LIMIT_EXCEEDED
from server.sql.tables.arrow_columns import common_type, to_text
from server.sql.tables.columns import FieldColumn, Metadata
from server.sql.tables.errors import MisfitError
from server.sql.tables.metadata_arrays import BODY_METADATA, to_metadata_arrays
from server.sql.tables.record_test import make_record_test
from server.sql.tables.row_conversion import body_reader, read_fields
from server.sql.write.write_statement import WriteStatement, returning_query
from server.topics.subscriptions.delivery.presentation import SelectList

if TYPE_CHECKING:
    from server.message_types.paths import Path
    from server.sql.query.cancellation import Cancellation
    from server.sql.query.query_engine import QueryEngine
    from server.sql.query.session import SqlSession
    from server.sql.tables.instance_tables import SessionTopic
    from server.sql.write.write_target import WriteColumn, WriteTarget
    from server.storage.sow.records import Record

MAX_RETURNED_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the records that RETURNING keeps until all are written."""

_RECORD_BYTES: Final = 300
"""Approximate memory of a record besides its body."""

_MAX_WIDENED: Final = 3
"""Executions of the query, while the written values widen its columns."""

_NUMBER_OIDS: Final = {
    **dict.fromkeys((20, 21, 23), SqlType.BIGINT),
    **dict.fromkeys((700, 701, 1700), SqlType.DOUBLE),
    16: SqlType.BOOLEAN,
    **dict.fromkeys((114, 3802), SqlType.JSONB),
}
"""The types of fields by the types of their values; others are texts."""


class WrittenRows:
    """The records that a statement has written: a `TableSource` of one table.

    Args:
        topic: the topic, as the user sees it.
        table: its table, with the columns that the statement writes.
        outputs: these columns by their names.
    """

    def __init__(
        self, topic: SessionTopic, table: Table, outputs: Mapping[str, FieldColumn | Metadata]
    ) -> None:
        self._topic: Final = topic
        self._table = table
        self._outputs = dict(outputs)
        self._records: list[Record] = []
        self._bytes = 0
        filter_ = topic.permit.filter
        self._matches: Final[Callable[[Record], bool]] = (
            (lambda _: True) if filter_ is None else make_record_test(topic.source.table, filter_)
        )

    def add(self, record: Record) -> None:
        """Add a record, if the user may read it; on the engine's thread.

        Raises:
            SqlError: the records take too much memory, or the user's filter takes too long.
        """
        try:
            if not self._matches(record):
                return
        except TooCostlyError as error:
            raise SqlError(PROGRAM_LIMIT_EXCEEDED, str(error)) from None
        self._records.append(record)
        self._bytes += len(record.body) + _RECORD_BYTES
        if self._bytes > MAX_RETURNED_BYTES:
            raise SqlError(
                OUT_OF_MEMORY,
                f"the rows of RETURNING take more than {MAX_RETURNED_BYTES >> 20} MB",
                hint="Write fewer rows by a statement, or leave out RETURNING.",
            )

    def widen(self, types: Mapping[Path, SqlType]) -> None:
        """Give columns the types that hold the values that were written."""
        widened = {
            name: FieldColumn(output.column._replace(type=types[output.path]), output.path)
            for name, output in self._outputs.items()
            if isinstance(output, FieldColumn) and output.path in types
        }
        self._outputs |= widened
        columns = tuple(
            widened[column.name].column if column.name in widened else column
            for column in self._table.columns
        )
        self._table = self._table._replace(columns=columns)

    def tables(self) -> Sequence[Table]:
        """See `TableSource.tables`."""
        return [self._table]

    def scan(self, requests: Sequence[ScanRequest]) -> Sequence[ScanResult]:
        """See `TableSource.scan`.

        Raises:
            MisfitError: a value does not fit the type of its column.
        """
        return [self._scan(request) for request in requests]

    def _scan(self, request: ScanRequest) -> ScanResult:
        count = len(self._records)
        if not request.columns:
            return ScanResult(pa.table({"": pa.nulls(count)}).select([]), count)
        outputs = [self._outputs[name] for name in request.columns]
        fields = [output for output in outputs if isinstance(output, FieldColumn)]
        arrays: dict[FieldColumn | Metadata, pa.Array] = {}
        if fields:
            paths = [field.path for field in fields]
            reader = body_reader(self._topic.source.table.message_type, paths)
            bodies = [record.body for record in self._records]
            arrays.update(zip(fields, read_fields(reader, fields, bodies), strict=True))
        metadata = [output for output in outputs if isinstance(output, Metadata)]
        records = self._redacted() if BODY_METADATA & set(metadata) else self._records
        for name, array in to_metadata_arrays(records, metadata).items():
            arrays[name] = to_text(array) if name is Metadata.BODY else array
        columns = [arrays[output] for output in outputs]
        return ScanResult(pa.table(columns, names=list(request.columns)), count)

    def _redacted(self) -> Sequence[Record]:
        """Return the records without the fields that the user may not see."""
        permit = self._topic.permit
        if permit.select is None:
            return self._records
        message_type = self._topic.source.table.message_type
        permitted = SelectList(permit.select_text, permit.select, message_type, is_entitlement=True)
        return [record._replace(body=permitted.apply(record.body)) for record in self._records]


class Returning(NamedTuple):
    """The query of a RETURNING.

    Attributes:
        query: the query.
        rows: the rows that it reads.
        columns: the columns of its result, as they are before anything is written.
    """

    query: Statement
    rows: WrittenRows
    columns: tuple[QueryColumn, ...]


class ReturningQueries:
    """Prepares and executes the queries of RETURNING, on worker threads.

    Args:
        engine: executes queries.
        settings: the settings of the client.
    """

    def __init__(self, engine: QueryEngine, settings: SqlSession) -> None:
        self._engine: Final = engine
        self._settings: Final = settings

    def prepare(
        self,
        statement: Statement,
        write: WriteStatement,
        rows: WrittenRows,
        parameter_types: Sequence[int],
        cancellation: Cancellation,
    ) -> Returning:
        """Return the query of a RETURNING.

        Args:
            statement: the statement that writes.
            write: its parts.
            rows: takes the records that it writes.
            parameter_types: the types of its parameters.
            cancellation: ends the description of the result.

        Raises:
            SqlError: the expressions are wrong.
        """
        query = Statement(
            statement.text,
            StatementKind.SELECT,
            "SELECT",
            statement.offset,
            tree=returning_query(write),
            parameter_count=statement.parameter_count,
        )
        found = self._engine.describe(query, rows, self._settings, parameter_types, cancellation)
        return Returning(query, rows, found.columns or ())

    def execute(
        self,
        returning: Returning,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        cancellation: Cancellation,
    ) -> QueryResult:
        """Execute the query, after the rows have been written.

        Raises:
            SqlError: the query fails, or the type of a column is another one than before.
        """
        for attempt in range(1, _MAX_WIDENED + 1):
            try:
                result = self._engine.execute(
                    returning.query,
                    returning.rows,
                    self._settings,
                    parameters,
                    parameter_oids=parameter_types,
                    cancellation=cancellation,
                )
                break
            except MisfitError as misfit:
                if attempt == _MAX_WIDENED:
                    raise
                returning.rows.widen(misfit.types)
        if result.columns != returning.columns:
            result.close()
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "the types of RETURNING have changed by the values that were written",
                hint="Query the rows: the columns have other types now.",
            )
        return result


def make_written_rows(
    topic: SessionTopic,
    target: WriteTarget,
    columns: Mapping[str, WriteColumn],
    oids: Sequence[int],
) -> WrittenRows:
    """Return the table of RETURNING, without rows.

    Args:
        topic: the topic, as the user sees it.
        target: the topic that is written to.
        columns: the columns of fields that are written, by name.
        oids: the types of the values for them, in their order.
    """
    outputs = dict(topic.outputs)
    names = {
        output.path: name for name, output in outputs.items() if isinstance(output, FieldColumn)
    }
    shown = list(topic.table.columns)
    is_typed = target.message_type.capabilities.typed
    for (name, column), oid in zip(columns.items(), oids, strict=True):
        value_type = _NUMBER_OIDS.get(oid, SqlType.TEXT) if is_typed else SqlType.TEXT
        known = names.get(column.path)
        if known is None:
            if topic.permit.select is not None and not topic.permit.select.includes_whole(
                column.path
            ):
                continue
            added = Column(name, value_type)
            outputs[name] = FieldColumn(added, column.path)
            shown.append(added)
            continue
        output = outputs[known]
        assert isinstance(output, FieldColumn)  # noqa: S101 - see `names`
        is_converted = value_type is SqlType.TEXT and column.sql_type is not None
        wider = output.column.type if is_converted else common_type(column.sql_type, value_type)
        replaced = output.column._replace(type=wider or SqlType.TEXT)
        outputs[known] = FieldColumn(replaced, output.path)
        shown = [replaced if one.name == known else one for one in shown]
    return WrittenRows(topic, topic.table._replace(columns=tuple(shown)), outputs)
