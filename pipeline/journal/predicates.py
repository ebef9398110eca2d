"""Predicates that Spark pushes down, as tests on values.

Only filters with the same semantics here are accepted; Spark applies the others to the rows. A
comparison with NULL is NULL, and a row passes only if all predicates are true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
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
    TimestampType,
)

FilterScalar: TypeAlias = bool | int | float | str | None
"""A value for comparisons: times are microseconds since the Unix epoch."""

ScalarPredicate: TypeAlias = Callable[[FilterScalar], bool]

_COMPARISONS: Final[dict[type[Filter], str]] = {
    EqualTo: "eq",
    GreaterThan: "gt",
    GreaterThanOrEqual: "ge",
    LessThan: "lt",
    LessThanOrEqual: "le",
}
_AFFIXES: Final[dict[type[Filter], str]] = {
    StringStartsWith: "startswith",
    StringEndsWith: "endswith",
    StringContains: "__contains__",
}
ORDERINGS: Final[Mapping[str, Callable[..., Any]]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "gt", "ge", "lt", "le")
}
"""Comparisons by order, which work on columns of numbers as well."""

_OPPOSITES: Final = {"eq": "ne", "gt": "le", "ge": "lt", "lt": "ge", "le": "gt"}

_ARROW: Final[Mapping[str, Callable[[pa.Array, FilterScalar], pa.Array]]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
}
_AFFIX_TESTS: Final[Mapping[str, Callable[..., pa.Array]]] = {
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "__contains__": pc.match_substring,
}
_EXACT: Final = 1 << 53
"""Integers up to this size are exact as floating point numbers."""

_NEVER_TRUE_OF_NULL: Final = frozenset((*ORDERINGS, *_AFFIXES.values(), "in", "not_in"))

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ColumnPredicate:
    """A test of one column.

    Attributes:
        column: its name; for metadata, without the underscore that it may have in the schema.
        is_on_field: whether it is a field of messages.
        operation: eq, ne, gt, ge, lt, le, in, not_in, startswith, endswith, __contains__, null,
            not_null or same (as `eq`, but NULL is the same as NULL).
        values: the values to compare with.
        is_negated: rows pass where the test fails; NULL still does not pass.
    """

    column: str
    operation: str
    values: tuple[FilterScalar, ...] = ()
    is_negated: bool = False
    is_on_field: bool = False

    def test(self) -> ScalarPredicate:
        """Return the test as a function of a value."""
        return _test(self)

    def match_mask(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        """Return the mask of the values that pass; the same as `test` on each, but faster."""
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        passes = _passes(self, column)
        if passes is None:
            return np.fromiter(map(self.test(), column.to_pylist()), np.bool_, len(column))
        return np.asarray(pc.fill_null(passes, fill_value=False).to_numpy(zero_copy_only=False))

    def can_match_range(self, low: int, high: int) -> bool:
        """Return whether a number of a range can pass; True if unknown."""
        value = self.values[0] if self.values else None
        if not isinstance(value, int):
            return True
        match self.operation:
            case "eq":
                return low <= value <= high
            case "gt" | "ge":
                return bool(ORDERINGS[self.operation](high, value))
            case "lt" | "le":
                return bool(ORDERINGS[self.operation](low, value))
            case _:
                return True


def accept(
    filters: Iterable[Filter], schema: StructType
) -> list[tuple[Filter, ColumnPredicate | None]]:
    """Translate the filters that can be tested here.

    Args:
        filters: the filters that Spark pushes down; rows have to pass all of them.
        schema: the columns.

    Returns:
        Each filter with its predicate; None for filters that Spark has to test itself.
    """
    return [(spark_filter, _translate(spark_filter, schema)) for spark_filter in filters]


def without_implied(predicates: Sequence[ColumnPredicate]) -> tuple[ColumnPredicate, ...]:
    """Return predicates without those that others imply.

    Spark adds a not-null test for every column that it compares, before all other filters.
    """
    rejecting = {
        predicate.column for predicate in predicates if predicate.operation in _NEVER_TRUE_OF_NULL
    }
    return tuple(
        predicate
        for predicate in predicates
        if not (predicate.operation == "not_null" and predicate.column in rejecting)
    )


def _translate(spark_filter: Filter, schema: StructType) -> ColumnPredicate | None:
    negated = isinstance(spark_filter, Not)
    inner = spark_filter.child if isinstance(spark_filter, Not) else spark_filter
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.fieldNames():
        return None
    column = attribute[0]
    kind = schema[column].dataType
    match inner:
        case IsNull() | IsNotNull():
            return ColumnPredicate(
                column, "null" if isinstance(inner, IsNull) != negated else "not_null"
            )
        case EqualTo(value=None):  # NULL = NULL is not true
            return None
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            operation = _COMPARISONS[type(inner)]
            values = _literals((inner.value,), kind)
            name = _OPPOSITES[operation] if negated else operation
            return None if values is None else ColumnPredicate(column, name, values)
        case EqualNullSafe():
            values = (None,) if inner.value is None else _literals((inner.value,), kind)
            return None if values is None else ColumnPredicate(column, "same", values, negated)
        case In():
            values = _literals(tuple(inner.value), kind)
            name = "not_in" if negated else "in"
            return None if values is None else ColumnPredicate(column, name, values)
        case StringStartsWith() | StringEndsWith() | StringContains():
            values = _literals((inner.value,), kind)
            name = _AFFIXES[type(inner)]
            return None if values is None else ColumnPredicate(column, name, values, negated)
        case _:
            return None


def _literals(values: tuple[object, ...], kind: DataType) -> tuple[FilterScalar, ...] | None:
    """Return values for comparison with a column; None if Spark's semantics would differ."""
    literals: list[FilterScalar] = []
    for value in values:
        if isinstance(value, bool):
            fits = isinstance(kind, BooleanType)
        elif isinstance(value, int):
            fits = isinstance(kind, (*_WHOLE, DoubleType))
        elif isinstance(value, float):
            fits = isinstance(kind, DoubleType) and value == value  # NaN has its own rules
        elif isinstance(value, str):
            fits = isinstance(kind, StringType) and kind.collation == "UTF8_BINARY"
        elif isinstance(value, datetime):
            fits = isinstance(kind, TimestampType) and value.tzinfo is not None
            value = (value - _EPOCH).total_seconds() if not fits else _microseconds(value)
        else:
            return None
        if not fits:
            return None
        literals.append(value)
    return tuple(literals)


def _microseconds(moment: datetime) -> int:
    elapsed = moment - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _test(predicate: ColumnPredicate) -> ScalarPredicate:
    operation, values, is_negated = predicate.operation, predicate.values, predicate.is_negated
    if operation == "null":
        return lambda value: value is None
    if operation == "not_null":
        return lambda value: value is not None
    if operation == "same":
        (expected,) = values
        return lambda value: (value == expected) is not is_negated
    if operation in ("in", "not_in"):
        members, wanted = frozenset(values), operation == "in"
        return lambda value: value is not None and (value in members) is wanted
    (expected,) = values
    if operation in _AFFIXES.values():
        return lambda value: (
            isinstance(value, str) and getattr(value, operation)(expected) is not is_negated
        )
    compare = _compare(operation)
    return lambda value: value is not None and compare(value, expected)


def _passes(predicate: ColumnPredicate, column: pa.Array) -> pa.Array | None:
    """Return for each value whether it passes, computed by Arrow; None if Arrow cannot do so."""
    operation, values = predicate.operation, predicate.values
    if operation == "null":
        return pc.is_null(column)
    if operation == "not_null":
        return pc.is_valid(column)
    if operation in _AFFIX_TESTS and pa.types.is_string(column.type):
        mask = _AFFIX_TESTS[operation](column, pattern=values[0])
        return pc.invert(mask) if predicate.is_negated else mask
    if operation not in ORDERINGS or (isinstance(values[0], int) and abs(values[0]) > _EXACT):
        return None
    if operation in ("gt", "ge"):  # to Spark, NaN is greater than everything
        return pc.invert(_ARROW[_OPPOSITES[operation]](column, values[0]))
    return _ARROW[operation](column, values[0])


def _compare(operation: str) -> Callable[[Any, Any], bool]:
    """Return a comparison of single values; to Spark, NaN is greater than everything."""
    if operation in ("gt", "ge"):
        opposite = ORDERINGS[_OPPOSITES[operation]]
        return lambda value, expected: not opposite(value, expected)
    return ORDERINGS[operation]
