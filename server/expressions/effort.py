"""What regular expressions may take out of whoever evaluates an expression.

Most searches end within some microseconds. One that does not is a *long search*: it is tried again
with more steps, which may take some milliseconds (server/expressions/patterns.py). A
filter may have a thousand patterns, a topic ten thousand filters, a query a million records; so
long searches are counted where they are done for somebody, all terms of an evaluation together. Who
does one asks before; beyond what there is, the evaluation fails, and whoever asked for it is told.
"""

from __future__ import annotations

from typing import Final, Protocol

LONG_SEARCHES: Final = 3
"""How many there may be in one evaluation, or for all filters that a message is tested for."""


_LARGE: Final = 64 * 1024
"""Bytes of a text with which a long search takes about twice as long."""


class TooCostlyError(Exception):
    """An expression cannot be evaluated with the work that is allowed. The text says why."""

    def __init__(self) -> None:
        super().__init__(
            "its regular expressions take too many steps: expected expressions that do not"
            " backtrack, such as those without nested repetitions, or shorter texts"
        )


def searches_in(size: int) -> int:
    """For how many long searches one in a text counts.

    Args:
        size: the length of the text, in bytes.
    """
    return min(1 + size // _LARGE, LONG_SEARCHES)


class Effort(Protocol):
    """Counts long searches."""

    @property
    def left(self) -> int:
        """How many there may still be."""

    def spend(self, searches: int = 1) -> None:
        """Count one that is about to begin.

        Args:
            searches: for how many it counts.

        Raises:
            TooCostlyError: there have been enough.
        """


class Allowance:
    """So many long searches, until it is renewed.

    Attributes:
        left: how many there may still be.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = LONG_SEARCHES

    def renew(self, searches: int = LONG_SEARCHES) -> None:
        """Something else is evaluated from now on."""
        self.left = searches

    def spend(self, searches: int = 1) -> None:
        """See `Effort.spend`."""
        if self.left < searches:
            raise TooCostlyError
        self.left -= searches
