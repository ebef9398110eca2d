"""Spark's filters as content filters of the server.

A pushed filter may pass too many rows: filters that are not exact are handed back, and Spark
applies them as well. It must never drop a row that Spark would keep. The rules for that, with
columns read by `pipeline.fields` from JSON:

- To the server the empty text is NULL, to Spark it is a text. If an empty text could make
  Spark's filter true, the pushed filter has `OR /a IS NULL`, and is handed back.
- A column of texts holds texts only, so that the server compares bytes with bytes, as Spark does; a
  column of integers holds integers only, and the server compares them exactly.
- NaN is greater than everything to Spark, and not comparable to the server: `d > 1` becomes
  `NOT /d <= 1`.
- Spark rounds a column of single precision before it compares, decimals are exact, and times are
  texts to the server: their filters stay with Spark.
- Fields that are objects or arrays are NULL or several values to the server: filters on them are
  not pushed down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
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
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from server.expressions import tree
from server.expressions.printer import to_text

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_EXACT_LIMIT: Final = 2**53
_SIGNS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_OPPOSITES: Final = {">": "<=", ">=": "<"}
_MAX_LITERALS: Final = 1000


class PushdownResult(NamedTuple):
    """The result of a push-down.

    Attributes:
        filter: the content filter; None for none.
        unsupported_filters: the filters that Spark has to apply as well.
    """

    filter: str | None
    unsupported_filters: list[Filter]


class _ServerFilter(NamedTuple):
    """A filter in the server's language; `is_exact` if it passes no row that Spark would drop."""

    expression: tree.Expr
    is_exact: bool = True


def push_down(filters: Sequence[Filter], schema: StructType) -> PushdownResult:
    """Translate filters into the server's language, as far as possible.

    Args:
        filters: the filters, all of which have to hold.
        schema: the columns that are fields of JSON bodies.
    """
    tests: list[tree.Expr] = []
    handed_back: list[Filter] = []
    for spark_filter in filters:
        test = _test(spark_filter, schema)
        if test is not None:
            tests.append(test.expression)
        if test is None or not test.is_exact:
            handed_back.append(spark_filter)
    return PushdownResult(all_of(tests), handed_back)


def all_of(tests: Iterable[tree.Expr]) -> str | None:
    """Return the text of the conjunction of tests; None for no test."""
    match tuple(tests):
        case ():
            return None
        case (single,):
            return to_text(single)
        case several:
            return to_text(tree.And(several))


def _test(spark_filter: Filter, schema: StructType) -> _ServerFilter | None:
    """Return a filter in the server's language; None if it cannot be translated."""
    negated = isinstance(spark_filter, Not)
    # Each has an attribute, and a value if it compares, but their base class does not declare them.
    inner: Any = spark_filter.child if isinstance(spark_filter, Not) else spark_filter
    path: tuple[str, ...] = inner.attribute
    kind = _leaf(path, schema)
    if kind is None:
        return None
    field = tree.Identifier(path)
    if isinstance(inner, (IsNull, IsNotNull)):
        return _null_test(field, kind, wants_null=isinstance(inner, IsNull) != negated)
    value = inner.value
    if isinstance(kind, StringType):
        return _text_test(inner, field, value, negated=negated)
    if isinstance(kind, (*_INTEGERS, DoubleType, BooleanType)):
        return _number_test(inner, field, kind, value, negated=negated)
    return None


def _leaf(path: tuple[str, ...], schema: StructType) -> DataType | None:
    """Return the type of a column or nested field; None if its name cannot be written."""
    kind: DataType = schema
    for name in path:
        if not isinstance(kind, StructType) or name not in kind.names or not _is_writable(name):
            return None
        kind = kind[name].dataType
    return kind


def _is_writable(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()


def _null_test(field: tree.Identifier, kind: DataType, *, wants_null: bool) -> _ServerFilter | None:
    if isinstance(kind, StringType):
        return _ServerFilter(tree.IsNull(field), is_exact=False) if wants_null else None
    if not isinstance(kind, (*_INTEGERS, DoubleType, BooleanType)):
        return None
    return _ServerFilter(tree.IsNull(field) if wants_null else tree.Not(tree.IsNull(field)))


def _text_test(
    inner: Filter, field: tree.Identifier, value: Any, *, negated: bool
) -> _ServerFilter | None:
    """Return a test of a text column. The literal `''` is not pushed, as the server has none."""
    test: tree.Expr
    empty_may_match = negated
    match inner:
        case EqualTo() if _is_text(value):
            test = tree.Comparison("=", field, tree.Literal(value))
        case GreaterThan() | GreaterThanOrEqual() if _is_text(value):
            test = tree.Comparison(_SIGNS[type(inner)], field, tree.Literal(value))
        case LessThan() | LessThanOrEqual() if _is_text(value):
            test = tree.Comparison(_SIGNS[type(inner)], field, tree.Literal(value))
            empty_may_match = True
        case StringStartsWith() if _is_text(value):
            test = tree.Affix("BEGINS WITH", field, (tree.Literal(value),))
        case StringEndsWith() if _is_text(value):
            test = tree.Affix("ENDS WITH", field, (tree.Literal(value),))
        case StringContains() if _is_text(value):
            call = tree.Call("INSTR", (field, tree.Literal(value)))
            test = tree.Comparison(">", call, tree.Literal(0))
        case In():
            return _membership(inner, field, _is_text, negated=negated)
        case _:
            return None
    if negated:
        test = tree.Not(test)
    if empty_may_match:
        return _ServerFilter(tree.Or((test, tree.IsNull(field))), is_exact=False)
    return _ServerFilter(test)


def _number_test(
    inner: Filter, field: tree.Identifier, kind: DataType, value: Any, *, negated: bool
) -> _ServerFilter | None:
    check: Callable[[Any], bool] = _is_double if isinstance(kind, DoubleType) else _is_integer
    if isinstance(inner, In):
        return _membership(inner, field, check, negated=negated)
    sign = _SIGNS.get(type(inner))
    if sign is None or not check(value):
        return None
    if isinstance(kind, DoubleType) and sign in (">", ">="):
        sign, negated = _OPPOSITES[sign], not negated
    test: tree.Expr = tree.Comparison(sign, field, _literal(value))
    return _ServerFilter(tree.Not(test) if negated else test)


def _membership(
    inner: In, field: tree.Identifier, check: Callable[[Any], bool], *, negated: bool
) -> _ServerFilter | None:
    values: Sequence[Any] = inner.value
    if not negated:
        values = [value for value in values if value is not None]  # no value equals NULL
    if not 0 < len(values) <= _MAX_LITERALS or not all(check(value) for value in values):
        return None
    test: tree.Expr = tree.In(field, tuple(_literal(value) for value in values))
    if not negated:
        return _ServerFilter(test)
    if isinstance(values[0], str):
        return _ServerFilter(tree.Or((tree.Not(test), tree.IsNull(field))), is_exact=False)
    return _ServerFilter(tree.Not(test))


def _literal(value: Any) -> tree.Expr:
    return tree.Literal(int(value) if isinstance(value, bool) else value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < _EXACT_LIMIT


def _is_double(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
