"""Types of columns as msgspec types, which read and convert values.

Two kinds are types of our own, whose values `hook` converts: times that are not ISO 8601, and whole
numbers that may be written like `5.0`, as the server's sums are. The types that msgspec supports
itself are faster, and are tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from types import GenericAlias
from typing import Annotated, Any, Final, TypedDict, cast

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from pipeline.errors import SchemaError
from pipeline.times import TimeRule, to_date, to_moment
from server.expressions.numerals import numeral

_BITS: Final[Mapping[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
_SIMPLE: Final[Mapping[type[DataType], type]] = {
    StringType: str,
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    DateType: date,
    TimestampType: datetime,
    TimestampNTZType: datetime,
    BinaryType: bytes,
}


class _OurType(type):
    """A type whose instances are those of another type: msgspec checks the result of a hook."""

    made: type

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.made)


def _our_type(name: str, made: type) -> _OurType:
    return _OurType(name, (), {"made": made})


_MOMENT: Final = _our_type("Moment", datetime)
_DAY: Final = _our_type("Day", date)
_REAL: Final = _our_type("Real", float)
_WHOLE: Final = {bits: _our_type(f"Whole{bits}", int) for bits in _BITS.values()}
_TIMES: Final[Mapping[type[DataType], _OurType]] = {
    DateType: _DAY,
    TimestampType: _MOMENT,
    TimestampNTZType: _MOMENT,
}


def is_time(kind: DataType) -> bool:
    """Return whether the values of a column are times."""
    return type(kind) in _TIMES


def field_type(
    kind: DataType,
    column: str,
    *,
    own_times: bool = False,
    lenient: bool = False,
    from_text: bool = False,
) -> Any:
    """Return the msgspec type for the type of a column.

    Args:
        kind: the column's type.
        column: its name.
        own_times: whether times may have other forms than msgspec supports.
        lenient: whether whole numbers may be written with a fraction of zero.
        from_text: whether numbers may be texts, in forms that JSON does not have.

    Raises:
        PipelineError: there is none.
    """

    def inner(kind: DataType) -> Any:
        return field_type(kind, column, own_times=own_times, lenient=lenient, from_text=from_text)

    if own_times and is_time(kind):
        return cast("Any", _TIMES[type(kind)]) | None
    bits = _BITS.get(type(kind))
    if bits is not None:
        return cast("Any", _WHOLE[bits]) | None if lenient else _bounded(bits) | None
    if from_text and isinstance(kind, (FloatType, DoubleType)):
        return cast("Any", _REAL) | None
    simple = _SIMPLE.get(type(kind))
    if simple is not None:
        return simple | None
    if isinstance(kind, ArrayType):
        return GenericAlias(list, (inner(kind.elementType),)) | None
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return GenericAlias(dict, (str, inner(kind.valueType))) | None
    if isinstance(kind, StructType):
        members = {field.name: inner(field.dataType) for field in kind}
        make = cast("Any", TypedDict)  # the type checker knows it with literal members only
        return make("Member", members, total=False) | None
    advice = "; Spark's parse_json(body) converts a message" if kind == VariantType() else ""
    raise SchemaError(
        f"schema: column {column!r}: no field of a message is of type {kind.simpleString()}{advice}"
    )


def hook(times: TimeRule, *, from_text: bool) -> Callable[[type, Any], Any]:
    """Return the hook with which msgspec creates values of our own types.

    Args:
        times: the rule for times.
        from_text: whether texts can be numbers.
    """
    makers: dict[object, Callable[[Any], Any]] = {
        _MOMENT: lambda value: to_moment(value, times),
        _DAY: lambda value: to_date(value, times),
        _REAL: _real_number(from_text=from_text),
        **{kind: _whole_number(bits, from_text=from_text) for bits, kind in _WHOLE.items()},
    }
    return lambda kind, value: makers[kind](value)


def _bounded(bits: int) -> Any:
    limit = 1 << (bits - 1)
    return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]


def _whole_number(bits: int, *, from_text: bool) -> Callable[[Any], int]:
    limit = 1 << (bits - 1)

    def make(value: Any) -> int:
        number = _parsed(value) if from_text and isinstance(value, str) else value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"expected a whole number, got {value!r}")  # noqa: TRY004 - as hooks do
        if not -limit <= number < limit:
            raise ValueError(f"expected a whole number of {bits} bits, got {value!r}")
        return number

    return make


def _real_number(*, from_text: bool) -> Callable[[Any], float]:
    def make(value: Any) -> float:
        number = numeral(value) if from_text and isinstance(value, str) else value
        if not isinstance(number, (int, float)) or isinstance(number, bool):
            raise ValueError(f"expected a number, got {value!r}")  # noqa: TRY004 - as hooks do
        if not isfinite(number):
            raise ValueError(f"expected a number of 64 bits, got {value!r}")
        return float(number)

    return make


def _parsed(text: str) -> int | float:
    if numeral(text) is None:  # to Python itself, `1_000` and ` 1` are numbers
        raise ValueError(f"expected a whole number, got {text!r}")
    try:
        return int(text)
    except ValueError:
        return float(text)
