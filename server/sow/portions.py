"""How many records of a query are tested before others have their turn.

What a record costs is not known before, if regular expressions search in it. So records are tested
in portions, the smaller the more searches each record takes. A portion that comes to a long search
is given up, and its records are tested one by one, until they turn out to be cheap again. One
record that takes too many long searches is the end of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from server.expressions.effort import LONG_SEARCHES, Allowance, TooCostlyError
from server.expressions.patterns import searches
from server.expressions.tree import Expr

_Found = TypeVar("_Found")


class Portions:
    """The sizes of a query's portions.

    Args:
        expr: its filter, None for none.
        most: how many records a portion has at most.

    Attributes:
        are_slices: whether others should have their turn after each of them.
        size: how many records the next one has.
        effort: counts the long searches of a portion.
    """

    __slots__ = ("_most", "are_slices", "effort", "size")

    def __init__(self, expr: Expr | None, most: int) -> None:
        in_each = 0 if expr is None else searches(expr)
        self.are_slices: Final = in_each > 0
        self.effort: Final = Allowance()
        self._most: Final = max(1, most // (1 + in_each))  # to read a record is like a search
        self.size = self._most

    def test(self, found: Callable[[], _Found]) -> _Found | None:
        """Test a portion.

        Args:
            found: tests so many records, and gives what it has found.

        Returns:
            That; None if it is to be tried again with a portion of the size that is wanted now.

        Raises:
            TooCostlyError: a single record takes too many steps.
        """
        self.effort.renew(LONG_SEARCHES if self.size == 1 else 0)
        try:
            result = found()
        except TooCostlyError:
            if self.size == 1:
                raise
            self.size = 1
            return None
        if self.size > 1 or self.effort.left == LONG_SEARCHES:
            self.size = min(2 * self.size, self._most)
        return result
