"""Sums that do not drift: whatever is added and taken away again leaves nothing behind.

A double is a whole number divided by a power of two, so that any sum of doubles is one as well. It
is kept as such, in an integer of as many digits as it takes (for prices some 20, never more than
2200 bits), and rounded once, when somebody asks for it. The result depends on what is summed and on
nothing else: not on the order, nor on what came and went before.
"""

from __future__ import annotations

import math


class ExactSum:
    """The sum of finite numbers, exactly.

    Attributes:
        numerator: the sum, times two to the power of `shift`.
        shift: how many binary places the sum has.
    """

    __slots__ = ("numerator", "shift")

    def __init__(self) -> None:
        self.numerator = 0
        self.shift = 0

    def include(self, numerator: int, shift: int) -> None:
        """Add `numerator` divided by two to the power of `shift`."""
        places = self.shift - shift
        if places >= 0:
            self.numerator += numerator << places
        else:
            self.numerator = (self.numerator << -places) + numerator
            self.shift = shift

    def divided_by(self, divisor: int) -> float:
        """The double nearest to the sum divided by a number above 0."""
        return quotient(self.numerator, divisor << self.shift)


def variance(total: ExactSum, squares: ExactSum, count: int, divisor: int) -> float:
    """The sum of the squared distances of numbers from their mean, divided.

    Args:
        total: the sum of the numbers.
        squares: the sum of their squares.
        count: how many they are.
        divisor: what to divide by.
    """
    places = max(squares.shift, 2 * total.shift)
    first = count * squares.numerator << places - squares.shift
    second = total.numerator * total.numerator << places - 2 * total.shift
    return quotient(first - second, count * divisor << places)


def quotient(numerator: int, denominator: int) -> float:
    """The double nearest to a fraction whose denominator is above 0; infinite if none is near."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf
