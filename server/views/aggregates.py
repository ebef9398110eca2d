"""What the aggregate functions keep of a group's values, and how they answer.

An accumulator takes values in, lets them go again, and gives its answer at any time, in at most
logarithmic time. It holds the same answer as if the values there are had just been counted, in
whichever order they came (AMPS User Guide, Aggregate Functions).

NULL counts as no value for any of them. Where numbers are asked for, a text that is no number makes
the answer NaN, as long as it is there. Of no values at all the answer is NULL, and 0 for counts.

One accumulator may answer for several functions: SUM and AVG of one expression share theirs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, Protocol, Self

from server.expressions import semantics
from server.expressions.joining import joined_octets
from server.expressions.tree import Aggregate, Literal
from server.message_types.base import Value
from server.views.exact import ExactSum, variance
from server.views.extremes import ExtremeHeap

_DEFAULT_SEPARATOR: Final = ","


class Accumulator(Protocol):
    """The values of one expression over a group."""

    def add(self, value: Value) -> None:
        """Take a value in: a scalar, as a compiled expression gives it."""

    def remove(self, value: Value) -> None:
        """Let a value go that has been added."""

    def merge(self, other: Self) -> None:
        """Take in all that another one of the same kind holds."""


class Count:
    """How many values there are."""

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


class Total:
    """How many numbers there are, and their sum."""

    __slots__ = ("_infinite", "_nans", "_negative", "_sum", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum = ExactSum()
        self._nans = 0
        self._infinite = 0
        self._negative = 0  # of the infinite ones

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        self._take(value, 1)

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        self._take(value, -1)

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        self.count += other.count
        self._nans += other._nans
        self._infinite += other._infinite
        self._negative += other._negative
        self._sum.include(other._sum.numerator, other._sum.shift)

    @property
    def sum(self) -> Value:
        """The sum, a double; NULL of nothing."""
        if not self.count:
            return None
        return self._special() if self._nans or self._infinite else self._sum.divided_by(1)

    @property
    def mean(self) -> Value:
        """The mean, a double; NULL of nothing."""
        if not self.count:
            return None
        return self._special() if self._nans or self._infinite else self._sum.divided_by(self.count)

    def _take(self, value: Value, sign: int) -> None:
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
            self._include(sign, numerator, denominator.bit_length() - 1)

    def _include(self, sign: int, numerator: int, shift: int) -> None:
        self._sum.include(sign * numerator, shift)

    def _special(self) -> float:
        """The sum where not all numbers are finite."""
        if self._nans or 0 < self._negative < self._infinite:
            return math.nan
        return -math.inf if self._negative else math.inf


class Spread(Total):
    """How far numbers are from their mean."""

    __slots__ = ("_squares",)

    def __init__(self) -> None:
        super().__init__()
        self._squares = ExactSum()

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        super().merge(other)
        self._squares.include(other._squares.numerator, other._squares.shift)

    @property
    def of_population(self) -> Value:
        """The standard deviation of all there is; NULL of nothing."""
        return self._deviation(self.count)

    @property
    def of_sample(self) -> Value:
        """The standard deviation estimated from a sample; NULL of fewer than two numbers."""
        return self._deviation(self.count - 1)

    def _deviation(self, divisor: int) -> Value:
        if divisor < 1:
            return None
        if self._nans or self._infinite:
            return math.nan
        return math.sqrt(variance(self._sum, self._squares, self.count, divisor))

    def _include(self, sign: int, numerator: int, shift: int) -> None:
        self._sum.include(sign * numerator, shift)
        self._squares.include(sign * numerator * numerator, 2 * shift)


class _Extreme:
    """The least or greatest value; NaN if that is among them."""

    __slots__ = ("_heaps", "_nans")
    _greatest: bool

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
            heap = self._heaps[kind] = ExtremeHeap(kind, greatest=self._greatest)
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
        for kind, theirs in other._heaps.items():
            heap = self._heaps.setdefault(kind, ExtremeHeap(kind, greatest=self._greatest))
            heap.merge(theirs)

    @property
    def value(self) -> Value:
        """The least or greatest value; NULL of nothing."""
        heaps = self._heaps
        if self._nans:
            return math.nan
        if not heaps:
            return None
        if len(heaps) == 1:
            (heap,) = heaps.values()
            return heap.first()
        tops = [heaps[kind].first() for kind in (bool, int, float, str) if kind in heaps]
        return semantics.largest(tops) if self._greatest else semantics.smallest(tops)


class Least(_Extreme):
    """The least value, by `<`."""

    __slots__ = ()
    _greatest = False


class Greatest(_Extreme):
    """The greatest value, by `>`."""

    __slots__ = ()
    _greatest = True


class Distinct:
    """Which values there are, where texts that are numbers are those numbers."""

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
        """How many different values there are."""
        return len(self._counts)

    @property
    def only(self) -> Value:
        """The value that all agree on; NULL of nothing, or if they do not."""
        if len(self._values) != 1:
            return None
        (value,) = self._values.values()
        return value


_NAN_IDENTITY: Final = ("NaN",)


def _identity(value: Value) -> Hashable:
    key = semantics.identity_key(value)
    return key if key == key else _NAN_IDENTITY  # NaN is one value, though it equals nothing


class Texts:
    """Which texts there are, in the order of their bytes."""

    __slots__ = ("_counts", "_list", "_ordered")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._ordered: list[bytes] = []
        self._list: tuple[str, Value] | None = None

    def add(self, value: Value) -> None:
        """See `Accumulator.add`."""
        octets = semantics.octets(value)
        if octets is None:
            return
        count = self._counts.get(octets, 0)
        self._counts[octets] = count + 1
        if not count:
            insort(self._ordered, octets)
            self._list = None

    def remove(self, value: Value) -> None:
        """See `Accumulator.remove`."""
        octets = semantics.octets(value)
        if octets is None:
            return
        self._counts[octets] -= 1
        if not self._counts[octets]:
            del self._counts[octets]
            del self._ordered[bisect_left(self._ordered, octets)]
            self._list = None

    def merge(self, other: Self) -> None:
        """See `Accumulator.merge`."""
        for octets, count in other._counts.items():
            self._counts[octets] = self._counts.get(octets, 0) + count
        self._ordered = sorted(self._counts)
        self._list = None

    def joined(self, separator: str) -> Value:
        """All of them as one text; NULL of nothing, or if that would be too long."""
        if self._list is None or self._list[0] != separator:
            self._list = separator, joined_octets(self._ordered, separator)
        return self._list[1]


class _Function(NamedTuple):
    """What an aggregate function keeps, and how it reads its answer from that."""

    accumulator: Callable[[], Accumulator]
    answer: Callable[[Any], Value]


_FUNCTIONS: Final[dict[str, _Function]] = {
    "ANY": _Function(Least, lambda kept: kept.value),
    "AVG": _Function(Total, lambda kept: kept.mean),
    "COUNT": _Function(Count, lambda kept: kept.count),
    "COUNT_DISTINCT": _Function(Distinct, lambda kept: kept.count),
    "MAX": _Function(Greatest, lambda kept: kept.value),
    "MIN": _Function(Least, lambda kept: kept.value),
    "STDDEV_POP": _Function(Spread, lambda kept: kept.of_population),
    "STDDEV_SAMP": _Function(Spread, lambda kept: kept.of_sample),
    "SUM": _Function(Total, lambda kept: kept.sum),
    "UNIQUE": _Function(Distinct, lambda kept: kept.only),
}


def function_of(node: Aggregate) -> _Function:
    """What a call of an aggregate function keeps of its first argument, and its answer."""
    if node.name == "GROUP_CONCAT":
        separator = _separator(node)
        return _Function(Texts, lambda kept: kept.joined(separator))
    return _FUNCTIONS[node.name]


def _separator(node: Aggregate) -> str:
    if len(node.arguments) < 2:
        return _DEFAULT_SEPARATOR
    literal = node.arguments[1]
    if not isinstance(literal, Literal):
        raise TypeError("the separator of GROUP_CONCAT is not a literal")
    return semantics.text(literal.value) or ""
