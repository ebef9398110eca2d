"""How long the filters of a topic may search for one message, and for many.

Regular expressions that search for long hold up whoever publishes. So there is an allowance of long
searches for all filters that a message is tested for, and one for each test over many messages,
which grows with them (server/expressions/effort.py). A filter that wants more has failed. To find
that out takes some time for each filter, too: when several of a connection have failed for one
message, its others that search are not tried any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from server.expressions.effort import LONG_SEARCHES, TooCostlyError

_MESSAGES_PER_LONG_SEARCH: Final = 100
"""After so many messages a test may do another one, beyond those that it may do at any time."""

_FOR_ALL: Final = LONG_SEARCHES + 1
"""Long searches for one message: one test cannot use up all of them."""


class Searches:
    """The long searches that the filters of a set have done.

    Attributes:
        messages: how many messages have been matched.
    """

    __slots__ = ("_left", "_message", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self._message = 0
        self._left = _FOR_ALL

    @property
    def left(self) -> int:
        """See `Effort.left`."""
        return self._left if self._message == self.messages else _FOR_ALL

    def spend(self, searches: int = 1) -> None:
        """See `Effort.spend`."""
        left = self.left
        if left < searches:
            raise TooCostlyError
        self._message = self.messages
        self._left = left - searches


class Hopeless:
    """Whose filters are not tried any more for a message, because several have taken too long."""

    def __init__(self) -> None:
        self._failures = Counter[int]()

    def add(self, owners: Iterable[int]) -> None:
        """Take note of a filter that has taken too long.

        Args:
            owners: the numbers of the connections that have it.
        """
        self._failures.update(owners)

    def are(self, owners: Collection[int]) -> bool:
        """Whether these are all connections of which several filters have taken too long."""
        return bool(owners) and all(self._failures[one] >= LONG_SEARCHES for one in owners)


class TestEffort:
    """Counts the long searches of one test: few at once, and one in many messages.

    Args:
        searches: those of all tests.
    """

    __slots__ = ("_counted", "_done", "_searches")

    def __init__(self, searches: Searches) -> None:
        self._searches = searches
        self._done = 0.0  # of which some are forgotten with each message
        self._counted = searches.messages

    @property
    def left(self) -> int:
        """See `Effort.left`."""
        return self._searches.left

    def spend(self, searches: int = 1) -> None:
        """See `Effort.spend`."""
        messages = self._searches.messages
        forgotten = (messages - self._counted) / _MESSAGES_PER_LONG_SEARCH
        self._done = max(0.0, self._done - forgotten) + searches
        self._counted = messages
        if self._done > LONG_SEARCHES:
            raise TooCostlyError
        self._searches.spend(searches)
