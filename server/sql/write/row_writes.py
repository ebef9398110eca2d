"""The rows of a statement that writes, as the messages and changes that it consists of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlglot import exp

from server.message_types.base import BodyError
from server.sql.query.errors import SqlError
from server.sql.sqlstate import (
    CARDINALITY_VIOLATION,
    DATATYPE_MISMATCH,
    INVALID_PARAMETER_VALUE,
    NOT_NULL_VIOLATION,
    OUT_OF_MEMORY,
    SYNTAX_ERROR,
)
from server.sql.tables.columns import Metadata
from server.sql.write.field_values import FieldTarget, check_verbatim, to_body
from server.sql.write.write_statement import WriteKind, WriteStatement
from server.sql.write.write_target import WriteTarget, metadata_refused, require_fields
from server.sql.write.write_task import (
    InsertedMessage,
    RecordDeletion,
    RecordUpdate,
    RowVersion,
    RowWrite,
    Upsert,
)

if TYPE_CHECKING:
    from server.message_types.base import FieldValue
    from server.sql.query.results import QueryResult
    from server.sql.write.write_query import WriteQuery

MAX_WRITE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the messages of one statement."""

_ROW_BYTES: Final = 200
"""Approximate memory of a row besides its values."""

_MAX_DIGITS: Final = 18
_BODY: Final = Metadata.BODY.value.name
_KEY: Final = Metadata.KEY.value.name
_CORRELATION_ID: Final = Metadata.CORRELATION_ID.value.name
_TOPIC: Final = Metadata.TOPIC.value.name


class ConstantRow(NamedTuple):
    """A row of values, and the types that the client has declared for them; 0 for none."""

    values: Sequence[object]
    oids: Sequence[int]


def constant_row(
    statement: WriteStatement, parameters: Sequence[object], parameter_types: Sequence[int]
) -> ConstantRow | None:
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
    return ConstantRow(values, oids)


def insertions(
    write: WriteQuery, rows: Iterable[Sequence[object]], oids: Sequence[int]
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
            elif name in write.refused and value is not None:
                raise metadata_refused(name)
            else:
                given[name] = value
        body = _body(target, given, fields)
        if write.statement.replaced is not None:
            yield Upsert(body, fields)
        else:
            yield InsertedMessage(body, _text(given, _KEY), _text(given, _CORRELATION_ID))


def _body(target: WriteTarget, given: Mapping[str, object], fields: Sequence[FieldValue]) -> bytes:
    """Return the message of a row: that of the column `_body`, or one of the fields.

    Args:
        target: the topic.
        given: the values of metadata.
        fields: the values of fields.

    Raises:
        SqlError: the row has both, or none of them, or the message cannot be built.
    """
    body = given.get(_BODY)
    if _BODY in given and (body is not None or not fields):
        if any(value is not None for _, value in fields):
            raise metadata_refused(_BODY)
        return to_body(body, is_binary=target.is_binary)
    require_fields(target)
    return _build_body(target, fields)


def changes(write: WriteQuery, result: QueryResult) -> Iterator[RowWrite]:
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
    for values in result_rows(result):
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
                NOT_NULL_VIOLATION,
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


def result_rows(result: QueryResult) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a result."""
    for batch in result.batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class RowBuffer:
    """The rows of one statement, within the limit of their memory.

    Attributes:
        rows: the rows.
    """

    def __init__(self) -> None:
        self.rows: Final[list[RowWrite]] = []
        self._bytes = 0

    def extend(self, rows: Iterable[RowWrite]) -> None:
        """Add rows.

        Raises:
            SqlError: they take too much memory.
        """
        for row in rows:
            self._bytes += _ROW_BYTES
            match row:
                case InsertedMessage(body) | Upsert(body):
                    self._bytes += len(body)
                case RecordUpdate(_, fields):
                    self._bytes += sum(len(value) for _, value in fields if isinstance(value, str))
            if self._bytes > MAX_WRITE_BYTES:
                raise SqlError(
                    OUT_OF_MEMORY,
                    f"the messages of the statement take more than {MAX_WRITE_BYTES >> 20} MB",
                    hint="Write them by several statements.",
                )
            self.rows.append(row)


def collect_rows(rows: Iterable[RowWrite]) -> list[RowWrite]:
    """Return the rows of a statement.

    Raises:
        SqlError: they take too much memory.
    """
    buffer = RowBuffer()
    buffer.extend(rows)
    return buffer.rows


def identity(row: RowWrite) -> tuple[str, str]:
    """Return the topic and the SOW key of a row of UPDATE or DELETE."""
    assert isinstance(row, RecordUpdate | RecordDeletion)  # noqa: S101 - others have no conflicts
    return row.row.topic, row.row.key


def _integer(value: object) -> int:
    assert isinstance(value, int)  # noqa: S101 - of a column of integers
    return value


def _text(given: dict[str, object], name: str) -> str | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value or None
    raise SqlError(
        DATATYPE_MISMATCH, f'column "{name}" is of type text', hint="Cast the value to text."
    )
