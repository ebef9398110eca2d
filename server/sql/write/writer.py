"""Executes the statements of one client that write.

    statement -> query for the rows -> all messages -> WriteTask on the engine's thread -> count

The query is executed as any other, so a user changes only records that the user may read. All
messages are made before the first is published: an error in a value writes nothing. While the
messages are published and persisted, the statement occupies no thread.

A record of UPDATE or DELETE that has changed since it was read is left alone, and the query is
executed again for it, as PostgreSQL does it (READ COMMITTED).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from sqlglot import exp

from server.message_types.base import BodyError
from server.sql.query.cancellation import BY_TIMEOUT, Cancellation
from server.sql.query.errors import (
    CARDINALITY_VIOLATION,
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    OUT_OF_MEMORY,
    SYNTAX_ERROR,
    SqlError,
)
from server.sql.query.results import Description
from server.sql.query.rewrite import check_read_only
from server.sql.query.statement import Statement, StatementKind
from server.sql.query.tables import SqlType, Table, TableKind, find_table
from server.sql.tables.columns import Metadata
from server.sql.tables.errors import ColumnsWidenedError, ScanError
from server.sql.write.field_values import FieldTarget, check_verbatim, to_body
from server.sql.write.returning_query import (
    Returning,
    ReturningQueries,
    WrittenRows,
    make_written_rows,
)
from server.sql.write.row_versions import VersionedRows
from server.sql.write.write_statement import (
    WriteKind,
    WriteStatement,
    read_write_statement,
    rows_query,
)
from server.sql.write.write_target import (
    INSERTED_METADATA,
    WRONG_OBJECT_TYPE,
    WriteColumn,
    WriteTarget,
    check_no_overlap,
    describe_target,
    is_metadata,
    metadata_refused,
    not_writable,
    require_write_permission,
)
from server.sql.write.write_task import (
    InsertedMessage,
    RecordDeletion,
    RecordUpdate,
    RowVersion,
    RowWrite,
    Upsert,
    WriteOutcome,
    WriteTask,
)
from server.storage.sow.keys.key_source import PublisherKeys

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.message_types.base import FieldValue
    from server.sql.query.execution import QueryEngine
    from server.sql.query.results import QueryColumn, QueryResult
    from server.sql.query.session import SqlSession
    from server.sql.query.tables import TableSource
    from server.sql.tables.catalogue import SessionTables, SessionTopic

MAX_WRITE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the messages of one statement."""

_ROW_BYTES: Final = 200
"""Approximate memory of a row besides its values."""

_MAX_ATTEMPTS: Final = 20
"""Executions of UPDATE or DELETE whose records other clients change meanwhile."""

_MAX_PLANNED: Final = 3
_MAX_DIGITS: Final = 18
_CALL_TIMEOUT_S: Final = 30.0
_SERIALIZATION_FAILURE: Final = "40001"
_NOT_NULL_VIOLATION: Final = "23502"
_UNKNOWN_OIDS: Final = (0, 705)

_BODY: Final = Metadata.BODY.value.name
_KEY: Final = Metadata.KEY.value.name
_CORRELATION_ID: Final = Metadata.CORRELATION_ID.value.name
_TOPIC: Final = Metadata.TOPIC.value.name

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


class _WriteQuery(NamedTuple):
    """A statement that writes, prepared for execution.

    Attributes:
        statement: the statement.
        target: the topic.
        columns: the columns of fields that are written, by name, in order.
        metadata: the metadata that are written, in the order of the columns.
        query: the query for the rows.
        source: the tables that it reads.
        topic: the topic as the user sees it; None if it is no table.
    """

    statement: WriteStatement
    target: WriteTarget
    columns: dict[str, WriteColumn]
    metadata: tuple[str, ...]
    query: Statement
    source: TableSource
    topic: SessionTopic | None = None


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
        post: Callable[[Callable[[], None]], None],
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
        write: _WriteQuery,
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
        timer = self._start_timer(cancellation)
        total = WriteOutcome()
        returned: QueryResult | None = None
        try:
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
        finally:
            if timer is not None:
                timer.cancel()
        return WriteResult(total.count, returned)

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
                rows = [row for row in rows if _identity(row) in pending]
            if not rows:
                return
            task = WriteTask(self._session, _to_learn_from(write), rows, cancellation, returned)
            self._post_call(task.start)
            yield task.outcome
            outcome = task.outcome.result()
            total.count += outcome.count
            if outcome.has_new_columns:
                self._tables.refresh()
            if outcome.error is not None:
                raise outcome.error
            if not outcome.conflicts:
                return
            pending = {(version.topic, version.key) for version in outcome.conflicts}
        raise SqlError(
            _SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent update",
            hint="Execute the statement again.",
        )

    def _start_timer(self, cancellation: Cancellation) -> threading.Timer | None:
        """Start the time limit of a statement, which holds for its writes as well."""
        own = self._settings.statement_timeout_s
        limits = [one for one in (own, self._engine.limits.statement_timeout_s) if one > 0]
        if not limits:
            return None
        timer = threading.Timer(min(limits), cancellation.cancel, (BY_TIMEOUT,))
        timer.daemon = True
        timer.start()
        return timer

    # ---- the statement

    def _prepare(
        self, statement: Statement, parameter_types: Sequence[int], *, is_execution: bool = False
    ) -> _WriteQuery:
        assert statement.tree is not None  # noqa: S101 - of WRITE
        write = read_write_statement(statement.tree)
        table = find_table(self._tables.tables(), write.schema, write.name)

        def describe() -> tuple[WriteTarget, SessionTopic | None]:
            session, tables = self._session, self._tables
            target = describe_target(session, tables, table, write.schema, write.name)
            if is_execution:
                require_write_permission(session, target, target.topic)
            return target, None if target.table is None else tables.find_topic(target.table)

        target, topic = self._call(describe)
        prepare = self._prepare_insert if write.kind is WriteKind.INSERT else self._prepare_change
        return prepare(statement, write, target, parameter_types)._replace(topic=topic)

    def _prepare_insert(
        self,
        statement: Statement,
        write: WriteStatement,
        target: WriteTarget,
        parameter_types: Sequence[int],
    ) -> _WriteQuery:
        table = target.table
        if table is not None and table.kind in (TableKind.VIEW, TableKind.CONFLATED):
            raise not_writable(table)
        if target.records is not None and target.records.is_container and table is not None:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f'"{target.topic}" stands for the topics of a pattern',
                hint='Write to one of these topics by its name: INSERT INTO "topic" (...).',
            )
        metadata = tuple(name for name in write.columns if is_metadata(name, target))
        columns = {name: target.find_column(name) for name in write.columns if name not in metadata}
        self._check_insert(write, target, columns, metadata)
        assert write.source is not None  # noqa: S101 - of INSERT
        types = [
            _metadata_type(name, target) if name in metadata else columns[name].sql_type
            for name in write.columns
        ]
        source = _with_types(write.source, types, parameter_types)
        query = self._as_query(statement, source)
        return _WriteQuery(write, target, columns, metadata, query, self._tables)

    @staticmethod
    def _check_insert(
        write: WriteStatement,
        target: WriteTarget,
        columns: dict[str, WriteColumn],
        metadata: Sequence[str],
    ) -> None:
        refused = [name for name in metadata if name not in INSERTED_METADATA]
        if _BODY in metadata and columns:
            refused.append(_BODY)
        if _KEY in metadata and not _has_publisher_keys(target):
            refused.append(_KEY)
        if refused:
            raise metadata_refused(refused[0])
        if _BODY not in metadata:
            _require_fields(target)
            if not columns:
                raise metadata_refused(metadata[0])
        if not target.is_flat:
            check_no_overlap(columns)
        if write.replaced is not None:
            _check_conflict(write, target, columns, metadata)

    def _prepare_change(
        self,
        statement: Statement,
        write: WriteStatement,
        target: WriteTarget,
        parameter_types: Sequence[int],
    ) -> _WriteQuery:
        table = target.table
        if table is None or target.records is None:
            if table is not None:
                raise not_writable(table)
            is_of_pattern = target.records is not None and target.records.is_container
            hint = "Publish to it by INSERT."
            if is_of_pattern and target.records is not None:
                hint = f'Write to the table "{target.records.name}", WHERE _topic is the name.'
            raise SqlError(
                WRONG_OBJECT_TYPE,
                f'"{target.topic}" is no table with records that the user may read',
                hint=hint,
            )
        columns: dict[str, WriteColumn] = {}
        for name in write.columns:
            if is_metadata(name, target):
                raise metadata_refused(name)
            column = columns[name] = target.find_column(name)
            target.check_updatable(name, column.path)
        if columns:
            _require_fields(target)
        if not target.is_flat:
            check_no_overlap(columns)
        rows = VersionedRows(self._tables, table)
        metadata = (_KEY, rows.version_column, *((_TOPIC,) if _has_topic(table) else ()))
        values = [
            _with_type(value, column.sql_type, parameter_types)
            for value, column in zip(write.values, columns.values(), strict=True)
        ]
        query = self._as_query(statement, rows_query(write, metadata, values))
        return _WriteQuery(write, target, columns, metadata, query, rows)

    @staticmethod
    def _as_query(statement: Statement, tree: exp.Expr) -> Statement:
        check_read_only(tree)
        return Statement(
            statement.text,
            StatementKind.SELECT,
            "SELECT",
            statement.offset,
            tree=tree,
            parameter_count=statement.parameter_count,
        )

    # ---- the rows

    def _find_rows(
        self,
        write: _WriteQuery,
        parameters: Sequence[object],
        parameter_types: Sequence[int],
        cancellation: Cancellation,
    ) -> list[RowWrite]:
        """Execute the query, and make the messages.

        Raises:
            SqlError: a value cannot be written, or there are too many.
        """
        row = _constant_row(write.statement, parameters, parameter_types)
        if row is not None:
            cancellation.check()
            return list(_limited(self._insertions(write, [row.values], row.oids)))
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
                return list(_limited(self._insertions(write, _rows(result), oids)))
            return list(_limited(_changes(write, result)))
        finally:
            result.close()

    def _insertions(
        self, write: _WriteQuery, rows: Iterable[Sequence[object]], oids: Sequence[int]
    ) -> Iterator[RowWrite]:
        """Yield the rows of INSERT.

        Args:
            write: the statement.
            rows: the values.
            oids: the types of their columns.
        """
        names, target = write.statement.columns, write.target
        if len(oids) != len(names):
            more = "target columns than expressions", "expressions than target columns"
            raise SqlError(SYNTAX_ERROR, f"INSERT has more {more[len(oids) > len(names)]}")
        targets = {
            name: FieldTarget(name, column.sql_type, target.message_type)
            for name, column in write.columns.items()
        }
        for values in rows:
            given: dict[str, object] = {}
            fields: list[FieldValue] = []
            for name, value, oid in zip(names, values, oids, strict=True):
                if name in targets:
                    fields.append((write.columns[name].path, targets[name].to_value(value, oid)))
                else:
                    given[name] = value
            if _BODY in given:
                body = to_body(given[_BODY], is_binary=target.is_binary)
            else:
                body = _build_body(target, fields)
            if write.statement.replaced is not None:
                yield Upsert(body, fields)
            else:
                yield InsertedMessage(body, _text(given, _KEY), _text(given, _CORRELATION_ID))

    # ---- the engine's thread

    def _call(self, work: Callable[[], _ResultT]) -> _ResultT:
        """Do something on the engine's thread; return its result."""
        result: Future[_ResultT] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except Exception as error:  # any error: the worker thread must not wait without end
                result.set_exception(error)

        self._post_call(run)
        try:
            return result.result(_CALL_TIMEOUT_S)
        except TimeoutError:
            raise ScanError("the engine is busy: no answer in time") from None

    def _post_call(self, call: Callable[[], None]) -> None:
        try:
            self._post(call)
        except RuntimeError:
            raise ScanError("the instance is stopping") from None


def _to_learn_from(write: _WriteQuery) -> WriteTarget:
    """Return the target, whose columns learn from messages only if some may have new fields."""
    target = write.target
    is_new = any(column.sql_type is None for column in write.columns.values())
    return target if is_new or not target.columns else target._replace(known_columns=None)


class _ConstantRow(NamedTuple):
    """A row of values, and the types that the client has declared for them; 0 for none."""

    values: Sequence[object]
    oids: Sequence[int]


def _constant_row(
    statement: WriteStatement, parameters: Sequence[object], parameter_types: Sequence[int]
) -> _ConstantRow | None:
    """Return the row of an INSERT of a single row of constants and parameters.

    Such a row needs no query. Of several rows, each column has one type, which a query decides on.
    """
    source = statement.source
    if not isinstance(source, exp.Values) or len(source.expressions) != 1:
        return None
    row = source.expressions[0]
    values: list[object] = []
    oids: list[int] = []
    for node in row.expressions if isinstance(row, exp.Tuple) else [row]:
        oid = 0
        match node:
            case exp.Parameter():
                index = int(node.this.name) - 1
                if index >= len(parameters):
                    return None
                values.append(parameters[index])
                oid = parameter_types[index] if index < len(parameter_types) else 0
            case exp.Null():
                values.append(None)
            case exp.Boolean():
                values.append(bool(node.this))
            case exp.Literal() if node.is_string:
                values.append(node.name)
            case exp.Literal() if node.name.isdigit() and len(node.name) < _MAX_DIGITS:
                values.append(int(node.name))
            case _:
                return None
        oids.append(oid)
    return _ConstantRow(values, oids)


def _changes(write: _WriteQuery, result: QueryResult) -> Iterator[RowWrite]:
    """Yield the rows of UPDATE and DELETE."""
    target, count = write.target, len(write.metadata)
    oids = [column.oid for column in result.columns[count:]]
    columns = list(write.columns.items())
    targets = [
        FieldTarget(
            name,
            column.sql_type,
            target.message_type,
            has_fields=target.has_fields(column.path),
        )
        for name, column in columns
    ]
    seen: set[tuple[str, str]] = set()
    for values in _rows(result):
        metadata = dict(zip(write.metadata, values, strict=False))
        topic = str(metadata.get(_TOPIC) or target.topic)
        version = RowVersion(str(values[0]), topic, _integer(values[1]))
        if (topic, version.key) in seen:
            raise SqlError(
                CARDINALITY_VIOLATION, "an expression of UPDATE returns several rows for a record"
            )
        seen.add((topic, version.key))
        if write.statement.kind is WriteKind.DELETE:
            yield RecordDeletion(version)
            continue
        fields = [
            (column.path, field.to_value(value, oid))
            for (_, column), field, value, oid in zip(
                columns, targets, values[count:], oids, strict=True
            )
        ]
        yield RecordUpdate(version, fields)


def _build_body(target: WriteTarget, fields: Sequence[FieldValue]) -> bytes:
    """Return a message of fields; NULLs are left out.

    Raises:
        SqlError: the message type cannot have a value, or the record would have no key.
    """
    present = [(path, value) for path, value in fields if value is not None]
    records = target.records
    if records is not None and target.key_fields and not records.needs_context:
        filled = {path for path, value in present if value != ""}
        missing = [path for path in target.key_fields if not _covers(filled, path)]
        if missing:
            name = ".".join(map(str, missing[0]))
            raise SqlError(
                _NOT_NULL_VIOLATION,
                f'null value in column "{name}" of relation "{target.topic}" violates not-null'
                " constraint",
                detail="It is a part of the key.",
            )
    try:
        body = target.message_type.build(present)
    except (BodyError, ValueError, OverflowError, TypeError) as error:
        raise SqlError(INVALID_PARAMETER_VALUE, f"the message cannot be built: {error}") from None
    check_verbatim(target.message_type, present, body)
    return body


def _covers(filled: set[tuple[str | int, ...]], path: tuple[str | int, ...]) -> bool:
    """Return whether a field has a value, or is within one."""
    return any(path[:length] in filled for length in range(1, len(path) + 1))


def _check_conflict(
    write: WriteStatement,
    target: WriteTarget,
    columns: dict[str, WriteColumn],
    metadata: Sequence[str],
) -> None:
    """Check that ON CONFLICT is what a delta does: it sets all columns that are no key."""
    if target.records is None or not target.key_fields or metadata:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            "ON CONFLICT needs a topic with a Key, and fields",
            hint="INSERT without ON CONFLICT replaces the whole record.",
        )
    key = {name for name, column in columns.items() if column.path in target.key_fields}
    if len(key) < len(target.key_fields) or (write.conflict_key and set(write.conflict_key) != key):
        raise SqlError(
            "42P10",
            "there is no unique constraint matching the ON CONFLICT specification",
            hint="The columns of the key are "
            + ", ".join(".".join(map(str, path)) for path in target.key_fields)
            + "; INSERT has to name them all.",
        )
    assert write.replaced is not None  # noqa: S101 - by the caller
    if write.replaced - key != columns.keys() - key:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            "ON CONFLICT DO UPDATE has to set all columns that INSERT names",
            hint="Write SET column = EXCLUDED.column for each column that is no key.",
        )


def _require_fields(target: WriteTarget) -> None:
    """Raise an error if messages cannot be made of fields."""
    if not target.message_type.capabilities.build:
        raise SqlError(
            FEATURE_NOT_SUPPORTED,
            f"messages of type {target.message_type.name} cannot be made of fields",
            hint="INSERT whole messages, by the column _body.",
        )


def _has_publisher_keys(target: WriteTarget) -> bool:
    records = target.records
    return records is not None and isinstance(records.key_source(target.topic), PublisherKeys)


def _has_topic(table: Table) -> bool:
    return any(column.name == _TOPIC for column in table.columns) and _TOPIC in table.key


def _metadata_type(name: str, target: WriteTarget) -> SqlType:
    return SqlType.BYTEA if name == _BODY and target.is_binary else SqlType.TEXT


def _with_types(
    source: exp.Expr, types: Sequence[SqlType | None], parameter_types: Sequence[int]
) -> exp.Expr:
    """Return the rows of INSERT, whose parameters have the types of their columns."""
    if isinstance(source, exp.Values):
        for row in source.expressions:
            if isinstance(row, exp.Tuple):
                row.set(
                    "expressions",
                    [
                        _with_type(value, kind, parameter_types)
                        for value, kind in zip(row.expressions, types, strict=True)
                    ],
                )
    elif isinstance(source, exp.Select) and len(source.expressions) == len(types):
        source.set(
            "expressions",
            [
                _with_type(value, kind, parameter_types)
                for value, kind in zip(source.expressions, types, strict=True)
            ],
        )
    return source


def _with_type(value: exp.Expr, kind: SqlType | None, parameter_types: Sequence[int]) -> exp.Expr:
    """Return a parameter with the type of its column, if the client has given it none."""
    inner = value
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if kind is None or not isinstance(inner, exp.Parameter):
        return value
    number = int(inner.this.name)
    declared = parameter_types[number - 1] if number <= len(parameter_types) else 0
    if declared not in _UNKNOWN_OIDS:
        return value
    return exp.Cast(
        this=inner.copy(), to=exp.DataType.build(kind.sql_name, dialect="postgres", udt=True)
    )


def _rows(result: QueryResult) -> Iterator[tuple[object, ...]]:
    for batch in result.batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _limited(rows: Iterable[RowWrite]) -> Iterator[RowWrite]:
    """Yield rows, within the limit of their memory."""
    total = 0
    for row in rows:
        total += _ROW_BYTES
        match row:
            case InsertedMessage(body) | Upsert(body):
                total += len(body)
            case RecordUpdate(_, fields):
                total += sum(len(value) for _, value in fields if isinstance(value, str))
        if total > MAX_WRITE_BYTES:
            raise SqlError(
                OUT_OF_MEMORY,
                f"the messages of the statement take more than {MAX_WRITE_BYTES >> 20} MB",
                hint="Write them by several statements.",
            )
        yield row


def _identity(row: RowWrite) -> tuple[str, str]:
    assert isinstance(row, RecordUpdate | RecordDeletion)  # noqa: S101 - others have no conflicts
    return row.row.topic, row.row.key


def _integer(value: object) -> int:
    assert isinstance(value, int)  # noqa: S101 - of a column of integers
    return value


def _text(given: dict[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value or None
    raise SqlError("42804", f'column "{name}" is of type text', hint="Cast the value to text.")


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
