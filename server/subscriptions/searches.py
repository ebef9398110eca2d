"""How long the filters of a topic may search for one message, and for many.

Regular expressions that search for long hold up whoever publishes. So there is an allowance of long
searches for all filters that a message is tested for, and one for each test over many messages,
which grows with them (server/expressions/effort.py).
"""

from __future__ import annotations

from typing import Final

from server.expressions.effort import LONG_SEARCHES, TooCostlyError

_MESSAGES_PER_LONG_SEARCH: Final = 100
"""After so many messages a test may do another one, beyond those that it may do at any time."""


class Searches:
    """The long searches that the filters of a set have done.

    Attributes:
        messages: how many messages have been matched.
        left: long searches that there may be for the message at hand.
        left_in_all: the same, however `left` is renewed meanwhile.
    """

    __slots__ = ("_message", "left", "left_in_all", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self._message = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """The message at hand is matched filter by filter, to find those that take too long."""
        self.left = LONG_SEARCHES
        self.left_in_all = 2 * LONG_SEARCHES

    def spend(self) -> None:
        """See `Effort.spend`."""
        if self._message != self.messages:
            self._message = self.messages
            self.begin_anew()
        if not (self.left and self.left_in_all):
            raise TooCostlyError
        self.left -= 1
        self.left_in_all -= 1


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

    def spend(self) -> None:
        """See `Effort.spend`."""
        messages = self._searches.messages
        forgotten = (messages - self._counted) / _MESSAGES_PER_LONG_SEARCH
        self._done = max(0.0, self._done - forgotten) + 1
        self._counted = messages
        if self._done > LONG_SEARCHES:
            raise TooCostlyError
        self._searches.spend()
