"""Limits on the searches of a topic's filters, per message and over many messages.

Regular expressions with long searches delay the publisher. So there is an allowance of long
searches for all filters that a message is tested for, and one for each test over many messages,
which grows with their number (server/expressions/regex/budget.py). A filter that exceeds it fails.
To detect that takes some time for each filter, too: when several filters of a connection have
failed for one message, its other searching filters are not tried any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from server.expressions.regex.budget import LONG_SEARCHES, TooCostlyError

_MESSAGES_PER_LONG_SEARCH: Final = 100
"""Messages that allow a test one more long search, beyond its allowance at any time."""

_MAX_PER_MESSAGE: Final = LONG_SEARCHES + 1
"""Long searches for one message: one test cannot use up all of them."""


class LongSearchCounter:
    """Counts the long searches of a set of filters.

    Attributes:
        messages: messages matched.
    """

    __slots__ = ("_message", "_remaining", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self._message = 0
        self._remaining = _MAX_PER_MESSAGE

    @property
    def remaining(self) -> int:
        """See `SearchCounter.remaining`."""
        return self._remaining if self._message == self.messages else _MAX_PER_MESSAGE

    def spend(self, searches: int = 1) -> None:
        """See `SearchCounter.spend`."""
        remaining = self.remaining
        if remaining < searches:
            raise TooCostlyError
        self._message = self.messages
        self._remaining = remaining - searches


class ConnectionFailureCounter:
    """Tracks connections with several failed filters for a message: their others are skipped."""

    def __init__(self) -> None:
        self._failures = Counter[int]()

    def add_failure(self, owners: Iterable[int]) -> None:
        """Record that a filter has taken too long.

        Args:
            owners: the numbers of the connections that have it.
        """
        self._failures.update(owners)

    def is_limit_reached(self, owners: Collection[int]) -> bool:
        """Return True if several filters of each of these connections have taken too long."""
        return bool(owners) and all(self._failures[owner] >= LONG_SEARCHES for owner in owners)


class SearchBudget:
    """Limits the long searches of one test: a few at once, then one per many messages.

    Args:
        search_counter: the searches of all tests.
    """

    __slots__ = ("_counted_messages", "_recent_searches", "_search_counter")

    def __init__(self, search_counter: LongSearchCounter) -> None:
        self._search_counter = search_counter
        self._recent_searches = 0.0  # decays with each message
        self._counted_messages = search_counter.messages

    @property
    def remaining(self) -> int:
        """See `SearchCounter.remaining`."""
        return self._search_counter.remaining

    def spend(self, searches: int = 1) -> None:
        """See `SearchCounter.spend`."""
        messages = self._search_counter.messages
        forgotten = (messages - self._counted_messages) / _MESSAGES_PER_LONG_SEARCH
        self._recent_searches = max(0.0, self._recent_searches - forgotten) + searches
        self._counted_messages = messages
        if self._recent_searches > LONG_SEARCHES:
            raise TooCostlyError
        self._search_counter.spend(searches)
