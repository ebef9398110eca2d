"""Converts columns of the record store to Arrow arrays of SQL types.

A column of the record store keeps the values as they are in the bodies; a column of a table has one
type. The empty text is NULL in the record store, as everywhere in the server (AMPS User Guide, AMPS
Data Types), and so it is here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from server.expressions.backends.columns import NumberColumn, TextColumn
from server.sql.query.tables import SqlType
from server.sql.tables.errors import MisfitError
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from server.expressions.backends.columns import Column
    from server.message_types.base import Value
    from server.message_types.paths import Path
    from server.sql.tables.columns import FieldColumn

_BIGINT: Final = range(-(2**63), 2**63)
_TYPE_OF_CLASS: Final = {
    bool: SqlType.BOOLEAN,
    float: SqlType.DOUBLE,
    str: SqlType.TEXT,
    list: SqlType.JSONB,
}


def common_type(left: SqlType | None, right: SqlType | None) -> SqlType | None:
    """Return the narrowest type that holds the values of two types; None stands for NULL only."""
    if left is None or left is right:
        return right
    if right is None:
        return left
    if {left, right} == {SqlType.BIGINT, SqlType.DOUBLE}:
        return SqlType.DOUBLE
    return SqlType.TEXT


def type_of_values(values: Iterable[Value]) -> SqlType | None:
    """Return the narrowest type that holds some values; None if all are NULL."""
    found: SqlType | None = None
    for value in values:
        if value is None or value == "":
            continue
        if type(value) is int:
            kind = SqlType.BIGINT if value in _BIGINT else SqlType.DOUBLE
        else:
            kind = _TYPE_OF_CLASS[type(value)]
        if kind is not found:
            found = common_type(found, kind)
            if found is SqlType.TEXT:
                break
    return found


def type_of_column(column: Column) -> SqlType | None:
    """Return the narrowest type that holds a column; None if all its values are NULL."""
    if isinstance(column, TextColumn):
        return SqlType.TEXT if column.values.null_count < len(column) else None
    if isinstance(column, NumberColumn):
        if column.valid is not None and not column.valid.any():
            return None
        return SqlType.BIGINT if column.values.dtype == np.int64 else SqlType.DOUBLE
    return type_of_values(column.values)


def check_types(found: Iterable[tuple[FieldColumn, SqlType | None]]) -> None:
    """Check the types of values that columns have.

    Args:
        found: columns, and the narrowest types that hold some of their values; None for NULL only.

    Raises:
        MisfitError: a value does not fit the type of its column.
    """
    misfits: dict[Path, SqlType] = {}
    for (column, path), kind in found:
        wider = common_type(misfits.get(path, column.type), kind)
        if wider is not None and wider is not column.type:
            misfits[path] = wider
    if misfits:
        raise MisfitError(misfits)


def to_arrow(column: Column, sql_type: SqlType) -> pa.Array:
    """Convert a column to a type that holds all its values."""
    if isinstance(column, TextColumn) and sql_type is SqlType.TEXT:
        return to_text(column.values)
    if isinstance(column, NumberColumn) and sql_type in (SqlType.BIGINT, SqlType.DOUBLE):
        values = column.values
        if sql_type is SqlType.DOUBLE:
            values = values.astype(np.float64, copy=False)
        elif values.dtype != np.int64:  # all are NULL
            return pa.nulls(len(column), sql_type.arrow_type)
        return pa.array(values, mask=None if column.valid is None else ~column.valid)
    return values_array(column.to_values(), sql_type)


def values_array(values: Sequence[Value], sql_type: SqlType) -> pa.Array:
    """Convert values, one by one, to a type that holds all of them."""
    match sql_type:
        case SqlType.TEXT:
            return text_column(map(_as_text, values))
        case SqlType.JSONB:
            return text_column(
                None if value is None or value == "" else _as_json(value) for value in values
            )
        case SqlType.DOUBLE:
            numbers = [float(value) if isinstance(value, int | float) else None for value in values]
            return pa.array(numbers, pa.float64())
        case _:
            return pa.array(
                [None if value == "" else value for value in values], sql_type.arrow_type
            )


def text_column(texts: Iterable[str | None]) -> pa.Array:
    """Make an array of texts; bytes that are no UTF-8 become U+FFFD, and empty texts NULL."""
    items = [text or None for text in texts]
    try:
        return pa.array(items, pa.string())
    except UnicodeEncodeError:
        return pa.array([None if item is None else _clean(item) for item in items], pa.string())


def to_text(octets: pa.Array) -> pa.Array:
    """Return an array of bytes as texts; bytes that are no UTF-8 become U+FFFD."""
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        items = [
            None if item is None else item.decode(errors="replace") for item in octets.to_pylist()
        ]
        return pa.array(items, pa.string())


def _clean(text: str) -> str:
    """Replace surrogates, which stand for bytes that are no UTF-8."""
    return text_to_bytes(text).decode("utf-8", "replace")


def _as_text(value: Value) -> str | None:
    return value if value is None or isinstance(value, str) else _as_json(value)


def _as_json(value: Value) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        return _clean(json.dumps(value, ensure_ascii=False))
