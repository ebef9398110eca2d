"""The accumulators of the aggregate functions, and the results computed from them.

An accumulator adds and removes values, and returns its result at any time, in at most logarithmic
time. The result is the same as if it had just been computed from the current values, in any order
(AMPS User Guide, Aggregate Functions).

NULL is not a value for any function. For a numeric function, a text that is not a number makes the
result NaN, until it is removed. Without values the result is NULL, and 0 for counts.

One accumulator may serve several functions: SUM and AVG of one expression share theirs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, Protocol, Self

from server.expressions import semantics
from server.expressions.concat import join_text_bytes
from server.expressions.tree import Aggregate, Literal
from server.message_types.base import Value
from server.storage.views.exact import ExactSum, variance
from server.storage.views.extremes import ExtremeHeap

_DEFAULT_SEPARATOR: Final = ","


class Accumulator(Protocol):
    """The values of one expression over a group."""

    def add(self, value: Value) -> None:
        """Add a value: a scalar, as returned by a compiled expression."""

    def remove(self, value: Value) -> None:
        """Remove a value that was added."""

    def merge(self, other: Self) -> None:
        """Add all values of another accumulator of the same kind."""


class ValueCount:
    """The number of values."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        if value is not None:
            self.count += 1

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        if value is not None:
            self.count -= 1

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        self.count += other.count


class NumberSum:
    """The number of numeric values, and their sum."""

    __slots__ = ("_infinite", "_nans", "_negative", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = ExactSum()
        self._nans = 0
        self._infinite = 0
        self._negative = 0  # of the infinite ones

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        self._add_number(value, 1)

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        self._add_number(value, -1)

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        self.count += other.count
        self._nans += other._nans
        self._infinite += other._infinite
        self._negative += other._negative
        self._sum.add_ratio(other._sum.numerator, other._sum.shift)

    @property
    def sum(self) -> Value:
        """The sum, a double; NULL without values."""
        if not self.count:
            return None
        return self._non_finite_sum() if self._nans or self._infinite else self._sum.divide(1)

    @property
    def mean(self) -> Value:
        """The mean, a double; NULL without values."""
        if not self.count:
            return None
        return (
            self._non_finite_sum() if self._nans or self._infinite else self._sum.divide(self.count)
        )

    def _add_number(self, value: Value, sign: int) -> None:
        number = semantics.number(value)
        if number is None:
            return
        self.count += sign
        try:
            numerator, denominator = number.as_integer_ratio()
        except ValueError:
            self._nans += sign
        except OverflowError:
            self._infinite += sign
            self._negative += sign * (number < 0)
        else:
            self._add_ratio(sign, numerator, denominator.bit_length() - 1)

    def _add_ratio(self, sign: int, numerator: int, shift: int) -> None:
        self._sum.add_ratio(sign * numerator, shift)

    def _non_finite_sum(self) -> float:
        """Return the sum if not all numbers are finite."""
        if self._nans or 0 < self._negative < self._infinite:
            return math.nan
        return -math.inf if self._negative else math.inf


class StandardDeviation(NumberSum):
    """The standard deviation of numbers."""

    __slots__ = ("_squares",)

    def __init__(self) -> None:
        super().__init__()
        self._squares = ExactSum()

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        super().merge(other)
        self._squares.add_ratio(other._squares.numerator, other._squares.shift)

    @property
    def population_deviation(self) -> Value:
        """The standard deviation of the whole population; NULL without values."""
        return self._deviation(self.count)

    @property
    def sample_deviation(self) -> Value:
        """The standard deviation estimated from a sample; NULL with fewer than two numbers."""
        return self._deviation(self.count - 1)

    def _deviation(self, divisor: int) -> Value:
        if divisor < 1:
            return None
        if self._nans or self._infinite:
            return math.nan
        return math.sqrt(variance(self._sum, self._squares, self.count, divisor))

    def _add_ratio(self, sign: int, numerator: int, shift: int) -> None:
        self._sum.add_ratio(sign * numerator, shift)
        self._squares.add_ratio(sign * numerator * numerator, 2 * shift)


class _Extreme:
    """The minimum or maximum of the values; NaN if it is among them."""

    __slots__ = ("_heaps", "_nans")
    _is_maximum: bool

    def __init__(self) -> None:
        self._heaps: dict[type, ExtremeHeap] = {}
        self._nans = 0

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        if value is None:
            return
        if value != value:
            self._nans += 1
            return
        kind = type(value)
        heap = self._heaps.get(kind)
        if heap is None:
            heap = self._heaps[kind] = ExtremeHeap(kind, greatest=self._is_maximum)
        heap.add(value)

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        if value is None:
            return
        if value != value:
            self._nans -= 1
            return
        heap = self._heaps[type(value)]
        heap.remove(value)
        if not heap:
            del self._heaps[type(value)]

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        self._nans += other._nans
        for kind, other_heap in other._heaps.items():
            heap = self._heaps.setdefault(kind, ExtremeHeap(kind, greatest=self._is_maximum))
            heap.merge(other_heap)

    @property
    def value(self) -> Value:
        """The minimum or maximum; NULL without values."""
        heaps = self._heaps
        if self._nans:
            return math.nan
        if not heaps:
            return None
        if len(heaps) == 1:
            (heap,) = heaps.values()
            return heap.first()
        tops = [heaps[kind].first() for kind in (bool, int, float, str) if kind in heaps]
        return semantics.largest(tops) if self._is_maximum else semantics.smallest(tops)


class MinimumValue(_Extreme):
    """The minimum, by `<`."""

    __slots__ = ()
    _is_maximum = False


class MaximumValue(_Extreme):
    """The maximum, by `>`."""

    __slots__ = ()
    _is_maximum = True


class DistinctValues:
    """The distinct values; a text that is a number equals that number."""

    __slots__ = ("_counts", "_values")

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._values: dict[Hashable, Value] = {}

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        if value is None:
            return
        key = _identity(value)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._values.setdefault(key, value)

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        if value is None:
            return
        key = _identity(value)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key], self._values[key]

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        for key, count in other._counts.items():
            self._counts[key] = self._counts.get(key, 0) + count
            self._values.setdefault(key, other._values[key])

    @property
    def count(self) -> int:
        """The number of distinct values."""
        return len(self._counts)

    @property
    def single_value(self) -> Value:
        """The common value of the group; NULL without values, or if they differ."""
        if len(self._values) != 1:
            return None
        (value,) = self._values.values()
        return value


_NAN_IDENTITY: Final = ("NaN",)


def _identity(value: Value) -> Hashable:
    key = semantics.identity_key(value)
    return key if key == key else _NAN_IDENTITY  # NaN counts as one value, though NaN != NaN


class DistinctTexts:
    """The distinct texts, in byte order."""

    __slots__ = ("_cached_join", "_counts", "_ordered")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._ordered: list[bytes] = []
        self._cached_join: tuple[str, Value] | None = None

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        octets = semantics.octets(value)
        if octets is None:
            return
        count = self._counts.get(octets, 0)
        self._counts[octets] = count + 1
        if not count:
            insort(self._ordered, octets)
            self._cached_join = None

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        octets = semantics.octets(value)
        if octets is None:
            return
        self._counts[octets] -= 1
        if not self._counts[octets]:
            del self._counts[octets]
            del self._ordered[bisect_left(self._ordered, octets)]
            self._cached_join = None

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        for octets, count in other._counts.items():
            self._counts[octets] = self._counts.get(octets, 0) + count
        self._ordered = sorted(self._counts)
        self._cached_join = None

    def join_texts(self, separator: str) -> Value:
        """Return all texts joined into one; NULL without values, or if it would be too long."""
        if self._cached_join is None or self._cached_join[0] != separator:
            self._cached_join = separator, join_text_bytes(self._ordered, separator)
        return self._cached_join[1]


class _Function(NamedTuple):
    """An aggregate function: its accumulator, and how to read the result from it."""

    make_accumulator: Callable[[], Accumulator]
    read_result: Callable[[Any], Value]


_FUNCTIONS: Final[dict[str, _Function]] = {
    "ANY": _Function(MinimumValue, lambda accumulator: accumulator.value),
    "AVG": _Function(NumberSum, lambda kept: kept.mean),
    "COUNT": _Function(ValueCount, lambda kept: kept.count),
    "COUNT_DISTINCT": _Function(DistinctValues, lambda kept: kept.count),
    "MAX": _Function(MaximumValue, lambda accumulator: accumulator.value),
    "MIN": _Function(MinimumValue, lambda accumulator: accumulator.value),
    "STDDEV_POP": _Function(StandardDeviation, lambda kept: kept.population_deviation),
    "STDDEV_SAMP": _Function(StandardDeviation, lambda kept: kept.sample_deviation),
    "SUM": _Function(NumberSum, lambda kept: kept.sum),
    "UNIQUE": _Function(DistinctValues, lambda kept: kept.single_value),
}


def function_of(node: Aggregate) -> _Function:
    """Return the accumulator for the first argument of an aggregate call, and its result."""
    if node.name == "GROUP_CONCAT":
        separator = _separator(node)
        return _Function(DistinctTexts, lambda kept: kept.join_texts(separator))
    return _FUNCTIONS[node.name]


def _separator(node: Aggregate) -> str:
    if len(node.arguments) < 2:
        return _DEFAULT_SEPARATOR
    literal = node.arguments[1]
    if not isinstance(literal, Literal):
        raise TypeError("the separator of GROUP_CONCAT is not a literal")
    return semantics.text(literal.value) or ""
