"""Converts values to Arrow columns, by a schema.

Spark does not check the columns of a source: a NULL where the schema says NOT NULL causes an
exception deep in its Java code, or a row that a filter skips. So it is checked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from pipeline.errors import SchemaError


def check_names(schema: StructType) -> None:
    """Refuse a schema with two columns of the same name.

    Raises:
        PipelineError: there are two.
    """
    name, times = Counter(schema.names).most_common(1)[0] if schema.names else ("", 1)
    if times > 1:
        raise SchemaError(f"schema: column {name!r}: {times} columns have this name, expected one")


def column_of(values: Iterable[Any], field: pa.Field) -> pa.Array:
    """Return a column of values.

    Args:
        values: the values; None is NULL.
        field: its name and type.

    Raises:
        PipelineError: a value is out of the type's range.
    """
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise SchemaError(f"schema: column {field.name!r} of type {field.type}: {error}") from None


def require_values(column: pa.Array, field: pa.Field) -> None:
    """Refuse a NULL where the schema says NOT NULL.

    Args:
        column: the values.
        field: the column's name and type, including nested ones.

    Raises:
        PipelineError: there is a NULL.
    """
    missing = _missing(column, field, field.name)
    if missing is not None:
        raise SchemaError(
            f"schema: column {missing!r} is NOT NULL, and a message has no value for it; remove"
            " NOT NULL"
        )


def _missing(column: pa.Array, field: pa.Field, path: str) -> str | None:
    """Return the path of a missing value; None if there is none."""
    if column.null_count and not field.nullable:
        return path
    if pa.types.is_struct(field.type):
        members = zip(column.drop_null().flatten(), field.type, strict=True)
        places = (_missing(values, member, f"{path}.{member.name}") for values, member in members)
        return next((place for place in places if place is not None), None)
    if pa.types.is_map(field.type):
        return _missing(column.drop_null().items, field.type.item_field, f"{path}.value")
    if pa.types.is_list(field.type):
        return _missing(column.flatten(), field.type.value_field, f"{path}.element")
    return None
