"""Limits of the work of regular expressions during the evaluation of an expression.

Most searches end within some microseconds. One that does not is a *long search*: it is retried with
more steps, which may take some milliseconds (server/expressions/regex/patterns.py). A filter may
have a thousand patterns, a topic ten thousand filters, a query a million records; so long searches
are counted where a client causes them, for all terms of an evaluation together. Each one is charged
before it begins; beyond the limit the evaluation fails, and the client gets an error.
"""

from __future__ import annotations

from typing import Final, Protocol

LONG_SEARCHES: Final = 3
"""Limit per evaluation, or for all the filters that one message is tested against."""


_LARGE: Final = 64 * 1024
"""Length of a text that makes a long search take about twice as long, in bytes."""


class TooCostlyError(Exception):
    """The evaluation of an expression needs more than the allowed work. The message explains."""

    def __init__(self) -> None:
        super().__init__(
            "its regular expressions take too many steps: expected expressions that do not"
            " backtrack, such as those without nested repetitions, or shorter texts"
        )


def search_cost(size: int) -> int:
    """Return the number of long searches that one in a text counts for.

    Args:
        size: the length of the text, in bytes.
    """
    return min(1 + size // _LARGE, LONG_SEARCHES)


class SearchCounter(Protocol):
    """Counts long searches."""

    @property
    def remaining(self) -> int:
        """The number of long searches still allowed."""

    def spend(self, searches: int = 1) -> None:
        """Charge a long search that is about to begin.

        Args:
            searches: the number that it counts for.

        Raises:
            TooCostlyError: fewer are left.
        """


class SearchAllowance:
    """A number of long searches, until it is renewed.

    Attributes:
        remaining: the number of long searches still allowed.
    """

    __slots__ = ("remaining",)

    def __init__(self) -> None:
        self.remaining = LONG_SEARCHES

    def reset(self, searches: int = LONG_SEARCHES) -> None:
        """Reset the limit, for the next evaluation."""
        self.remaining = searches

    def spend(self, searches: int = 1) -> None:
        """See `SearchCounter.spend`."""
        if self.remaining < searches:
            raise TooCostlyError
        self.remaining -= searches
