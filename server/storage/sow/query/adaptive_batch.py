"""Batches of a query: the number of records that are tested before other tasks run.

The cost of a record is not known in advance if regular expressions search it. So records are tested
in batches, the smaller the more searches each record takes. A batch that reaches a long search
is abandoned, and its records are tested one by one, until they turn out to be cheap again. One
record that takes too many long searches ends the query.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from server.expressions.regex.budget import LONG_SEARCHES, SearchAllowance, TooCostlyError
from server.expressions.regex.patterns import count_regexes
from server.expressions.tree import Expr

_ResultT = TypeVar("_ResultT")

_READS_PER_SEARCH: Final = 4
"""Records whose fields are read in the time of a search."""


class AdaptiveBatchSize:
    """The sizes of a query's batches.

    Args:
        expr: its filter, None for none.
        limit: the maximum number of records of a batch.

    Attributes:
        needs_slices: whether other tasks should run after each batch.
        size: the number of records of the next batch.
        search_allowance: counts the long searches of a batch.
    """

    __slots__ = ("_max_size", "needs_slices", "search_allowance", "size")

    def __init__(self, expr: Expr | None, limit: int) -> None:
        searches_per_record = 0 if expr is None else count_regexes(expr)
        self.needs_slices: Final = searches_per_record > 0
        self.search_allowance: Final = SearchAllowance()
        self._max_size: Final = max(1, limit // (1 + _READS_PER_SEARCH * searches_per_record))
        self.size = self._max_size

    def run_batch(self, test: Callable[[], _ResultT]) -> _ResultT | None:
        """Test a batch.

        Args:
            test: tests as many records as `size`, and returns the result.

        Returns:
            The result; None if the batch is to be tried again with the size that is now set.

        Raises:
            TooCostlyError: a single record takes too many steps.
        """
        self.search_allowance.reset(LONG_SEARCHES if self.size == 1 else 0)
        try:
            result = test()
        except TooCostlyError:
            if self.size == 1:
                raise
            self.size = 1
            return None
        if self.size > 1 or self.search_allowance.remaining == LONG_SEARCHES:
            self.size = min(2 * self.size, self._max_size)
        return result
