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

_WITHOUT_VALUE: Final[dict[str, Any]] = {one.__name__: one for one in (IsNull, IsNotNull)}
_WITH_VALUE: Final[dict[str, Any]] = {
    one.__name__: one
    for one in (
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
    written = (_written(one) for one in filters)
    return json.dumps([one for one in written if one is not None])


def read_filters(text: str) -> list[Filter]:
    """Return the filters in a text.

    Raises:
        PipelineError: the text does not come from `write_filters`.
    """
    try:
        return [_read(one) for one in json.loads(text)]
    except (ValueError, KeyError, TypeError, IndexError):
        raise option_error(
            OPTION, text, "it is made by pipeline.read(spark, where=...); give filters there"
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
            "Spark applies the filters of one use of a DataFrame to its other uses, too, and rows"
            " are missing then; use pipeline.read(spark, where=..., columns=..., ...), whose filter"
            " stays with its DataFrame",
        )


def _written(one: Filter) -> list[Any] | None:
    if isinstance(one, Not):
        inner = _written(one.child)
        return None if inner is None else ["Not", inner]
    name = type(one).__name__
    path = list(getattr(one, "attribute", ()))
    if name in _WITHOUT_VALUE:
        return [name, path]
    if name not in _WITH_VALUE:
        return None
    value: Any = getattr(one, "value", None)
    values = [_plain(each) for each in (value if isinstance(one, In) else (value,))]
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
        made: Filter = _WITHOUT_VALUE[name](path)
        return made
    values = [datetime.fromisoformat(value) if kind else value for value, *kind in rest[1]]
    compared: Filter = _WITH_VALUE[name](path, tuple(values) if name == In.__name__ else values[0])
    return compared
