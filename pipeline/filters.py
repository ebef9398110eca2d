"""Spark's filters, serialized as an option of a read.

Spark passes its filters to a Python source (`DataSourceReader.pushFilters`), but caches the result
with the DataFrame that `load()` returned, and uses it for every further use of that DataFrame: with
other filters, with none, or twice in one query. Rows are missing then. So no source of ours takes
filters in this way. The `where` of `pipeline.read` becomes an option instead, and applies to the
DataFrame that it returns, however that is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pipeline.errors import option_error

OPTION: Final = "where"
PUSHDOWN: Final = "pushdown"
"""The option that made Spark push filters down."""

_WITHOUT_VALUE: Final[dict[str, Any]] = {
    spark_filter.__name__: spark_filter for spark_filter in (IsNull, IsNotNull)
}
_WITH_VALUE: Final[dict[str, Any]] = {
    spark_filter.__name__: spark_filter
    for spark_filter in (
        EqualNullSafe,
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
        StringContains,
        StringEndsWith,
        StringStartsWith,
    )
}
_PLAIN: Final = (bool, int, float, str, type(None))


def write_filters(filters: Iterable[Filter]) -> str:
    """Serialize the filters that can be serialized; Spark applies all of them anyway."""
    written = (_written(spark_filter) for spark_filter in filters)
    return json.dumps([spark_filter for spark_filter in written if spark_filter is not None])


def read_filters(text: str) -> list[Filter]:
    """Return the filters in a text.

    Raises:
        PipelineError: the text does not come from `write_filters`.
    """
    try:
        return [_read(spark_filter) for spark_filter in json.loads(text)]
    except (ValueError, KeyError, TypeError, IndexError):
        raise option_error(
            OPTION, text, "expected a text of pipeline.read(spark, where=...); give filters there"
        ) from None


def refuse_pushdown(text: str) -> None:
    """Refuse Spark's push-down, with advice.

    Raises:
        PipelineError: it was requested.
    """
    if text.lower() != "false":
        raise option_error(
            PUSHDOWN,
            text,
            "Spark applies the filters of one use of a DataFrame to its other uses, too, which lose"
            " rows; use pipeline.read(spark, where=..., columns=..., ...), whose filter stays with"
            " its DataFrame",
        )


def _written(spark_filter: Filter) -> list[Any] | None:
    if isinstance(spark_filter, Not):
        inner = _written(spark_filter.child)
        return None if inner is None else ["Not", inner]
    name = type(spark_filter).__name__
    path = list(getattr(spark_filter, "attribute", ()))
    if name in _WITHOUT_VALUE:
        return [name, path]
    if name not in _WITH_VALUE:
        return None
    value: Any = getattr(spark_filter, "value", None)
    values = [_plain(each) for each in (value if isinstance(spark_filter, In) else (value,))]
    return None if None in values else [name, path, values]


def _plain(value: object) -> list[Any] | None:
    """Return a value for JSON, in a list; with the name of its type if it is a time."""
    if isinstance(value, datetime):
        return [value.isoformat(), "datetime"]
    return [value] if isinstance(value, _PLAIN) else None


def _read(written: list[Any]) -> Filter:
    name, *rest = written
    if name == "Not":
        return Not(_read(rest[0]))
    path = tuple(rest[0])
    if name in _WITHOUT_VALUE:
        filter_: Filter = _WITHOUT_VALUE[name](path)
        return filter_
    values = [datetime.fromisoformat(value) if kind else value for value, *kind in rest[1]]
    compared: Filter = _WITH_VALUE[name](path, tuple(values) if name == In.__name__ else values[0])
    return compared
