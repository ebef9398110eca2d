"""Functions of numbers. They return NaN or an infinity where C's library does, and never raise."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final, TypeAlias

from server.expressions import semantics
from server.expressions.functions.registry import Function, Parameter
from server.expressions.numerals import bounded
from server.message_types.base import Value

_NUMBER, _ANY, _INTEGER = Parameter.NUMBER, Parameter.ANY, Parameter.INTEGER
NumberArgument: TypeAlias = int | float

EARTH_RADIUS: Final = 6_371_000.0
"""Metres, the mean radius; the reference names the formula but not the radius."""


def _double(function: Callable[[float], float]) -> Callable[[NumberArgument], float]:
    """Return a function of doubles with the results of C at the edges of its domain."""

    def apply(value: NumberArgument) -> float:
        try:
            return function(float(value))
        except ValueError:
            return semantics.NAN
        except OverflowError:
            return math.inf

    return apply


def _logarithm(function: Callable[[float], float]) -> Callable[[NumberArgument], float]:
    return _double(lambda value: function(value) if value else -math.inf)


_natural = _logarithm(math.log)


def _log(value: NumberArgument, argument: NumberArgument | None = None) -> float:
    """Return LOG(number) or LOG(base, number)."""
    if argument is None:
        return _natural(value)
    result = semantics.divide(_natural(argument), _natural(value))
    return semantics.NAN if result is None else float(result)


def _power(base: NumberArgument, exponent: NumberArgument) -> float:
    try:
        return math.pow(base, exponent)
    except ValueError:  # zero to a negative power, or a root of a negative number
        return math.inf if base == 0 else semantics.NAN
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf


def _absolute(value: NumberArgument) -> NumberArgument:
    return bounded(abs(value)) if isinstance(value, int) else abs(value)


def _rounding(function: Callable[[float], int]) -> Callable[[NumberArgument], NumberArgument]:
    """Return a rounding function that keeps integers, NaN, infinities, and the type double."""

    def apply(value: NumberArgument) -> NumberArgument:
        if isinstance(value, int) or not math.isfinite(value):
            return value
        return float(function(value))

    return apply


def _round(value: NumberArgument, places: int = 0) -> NumberArgument:
    """Round half away from zero, in decimal digits, so that 2.675 to two places is 2.68."""
    if not math.isfinite(value) or places > 330 or (isinstance(value, int) and places >= 0):
        return value
    if places < -330:
        return 0 if isinstance(value, int) else 0.0
    with localcontext() as context:
        context.prec = 700
        digits = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    return bounded(int(digits)) if isinstance(value, int) else float(digits)


def _sign(value: NumberArgument) -> NumberArgument:
    return semantics.NAN if value != value else (value > 0) - (value < 0)


def _width_bucket(
    value: NumberArgument, low: NumberArgument, high: NumberArgument, count: int
) -> Value:
    if count <= 0 or low == high or not (math.isfinite(low) and math.isfinite(high)):
        return None
    if value != value:
        return semantics.NAN
    share = (value - low) / (high - low)
    if share < 0:
        return 0
    return count + 1 if share >= 1 else int(share * count) + 1


def _cotangent(value: float) -> float:
    tangent = math.tan(value)
    return 1 / tangent if tangent else math.inf


def _geo_distance(
    lat1: NumberArgument, lon1: NumberArgument, lat2: NumberArgument, lon2: NumberArgument
) -> float:
    if not all(math.isfinite(value) for value in (lat1, lon1, lat2, lon2)):
        return semantics.NAN
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    half_phi, half_lambda = (phi2 - phi1) / 2, math.radians(lon2 - lon1) / 2
    haversine = (
        math.sin(half_phi) ** 2 + math.cos(phi1) * math.cos(phi2) * math.sin(half_lambda) ** 2
    )
    return 2 * EARTH_RADIUS * math.asin(min(1.0, math.sqrt(haversine)))


_SECTION = "Numbers"

_OF_ONE_DOUBLE: Final = (
    ("SQRT", "The square root; NaN for a negative number.", _double(math.sqrt)),
    ("EXP", "e to the power of the number.", _double(math.exp)),
    ("LN", "The natural logarithm.", _natural),
    ("LOG2", "The logarithm to base 2.", _logarithm(math.log2)),
    ("LOG10", "The logarithm to base 10.", _logarithm(math.log10)),
    ("ACOS", "The arc cosine, in radians.", _double(math.acos)),
    ("ASIN", "The arc sine, in radians.", _double(math.asin)),
    ("ATAN", "The arc tangent, in radians.", _double(math.atan)),
    ("COS", "The cosine of an angle in radians.", _double(math.cos)),
    ("COT", "The cotangent of an angle in radians.", _double(_cotangent)),
    ("SIN", "The sine of an angle in radians.", _double(math.sin)),
    ("SINH", "The hyperbolic sine.", _double(math.sinh)),
    ("TAN", "The tangent of an angle in radians.", _double(math.tan)),
    ("TANH", "The hyperbolic tangent.", _double(math.tanh)),
    ("RADIANS", "Degrees as radians.", _double(math.radians)),
    ("DEGREES", "Radians as degrees.", _double(math.degrees)),
)

FUNCTIONS: Final = (
    Function("ABS", _SECTION, "The number without its sign.", _absolute, (_NUMBER,)),
    Function(
        "ROUND",
        _SECTION,
        "The number rounded to as many decimal places as the second argument says, "
        "or to a whole one; halves away from zero.",
        _round,
        (_NUMBER,),
        (_INTEGER,),
    ),
    Function(
        "CEILING", _SECTION, "The least whole number not below.", _rounding(math.ceil), (_NUMBER,)
    ),
    Function(
        "FLOOR", _SECTION, "The greatest whole number not above.", _rounding(math.floor), (_NUMBER,)
    ),
    Function("SIGN", _SECTION, "-1, 0 or 1.", _sign, (_NUMBER,)),
    Function(
        "POWER",
        _SECTION,
        "The first number to the power of the second.",
        _power,
        (_NUMBER, _NUMBER),
    ),
    Function(
        "LOG",
        _SECTION,
        "The natural logarithm; with two arguments, "
        "the logarithm of the second to the base of the first.",
        _log,
        (_NUMBER,),
        (_NUMBER,),
    ),
    *(
        Function(name, _SECTION, summary, implementation, (_NUMBER,))
        for name, summary, implementation in _OF_ONE_DOUBLE
    ),
    Function(
        "GREATEST",
        _SECTION,
        "The argument that is greatest by `>`; NULLs are left out.",
        lambda *values: semantics.largest(values),
        (_ANY,),
        variadic=_ANY,
    ),
    Function(
        "LEAST",
        _SECTION,
        "The argument that is least by `<`; NULLs are left out.",
        lambda *values: semantics.smallest(values),
        (_ANY,),
        variadic=_ANY,
    ),
    Function(
        "WIDTH_BUCKET",
        _SECTION,
        "Which of as many equal parts as the fourth argument says of the range from the second to "
        "the third holds the first, from 1; 0 below, one more than there are above.",
        _width_bucket,
        (_NUMBER, _NUMBER, _NUMBER, _INTEGER),
    ),
    Function(
        "GEO_DISTANCE",
        "Places",
        "Metres between two places, each given as latitude and longitude in signed degrees.",
        _geo_distance,
        (_NUMBER, _NUMBER, _NUMBER, _NUMBER),
    ),
)
"""AMPS User Guide: Numeric Functions, Geospatial Functions. But for ABS, ROUND and GEO_DISTANCE the
reference gives names only; those do what their namesakes in SQL and C do."""
