"""Exact sums without rounding drift: a value that is added and removed again leaves no error.

A double is an integer divided by a power of two, and so is any sum of doubles. The sum is stored in
this form, in an integer of as many digits as necessary (for prices some 20, never more than 2200
bits), and rounded once, on request. The result depends only on the values that are summed: not on
their order, nor on values that were added and removed before.
"""

from __future__ import annotations

import math


class ExactSum:
    """The exact sum of finite numbers.

    Attributes:
        numerator: the sum, times two to the power of `shift`.
        shift: the number of binary places of the sum.
    """

    __slots__ = ("numerator", "shift")

    def __init__(self) -> None:
        self.numerator = 0
        self.shift = 0

    def add_ratio(self, numerator: int, shift: int) -> None:
        """Add `numerator` divided by two to the power of `shift`."""
        bits = self.shift - shift
        if bits >= 0:
            self.numerator += numerator << bits
        else:
            self.numerator = (self.numerator << -bits) + numerator
            self.shift = shift

    def divide(self, divisor: int) -> float:
        """Return the double nearest to the sum divided by a number above 0."""
        return quotient(self.numerator, divisor << self.shift)


def variance(total: ExactSum, squares: ExactSum, count: int, divisor: int) -> float:
    """Return the sum of the squared distances of numbers from their mean, divided by `divisor`.

    Args:
        total: the sum of the numbers.
        squares: the sum of their squares.
        count: the number of numbers.
        divisor: the divisor: `count`, or `count` - 1 for a sample.
    """
    bits = max(squares.shift, 2 * total.shift)
    first = count * squares.numerator << bits - squares.shift
    second = total.numerator * total.numerator << bits - 2 * total.shift
    return quotient(first - second, count * divisor << bits)


def quotient(numerator: int, denominator: int) -> float:
    """Return the double nearest to a fraction with a denominator above 0; infinite on overflow."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf
