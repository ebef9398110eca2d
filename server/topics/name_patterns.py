"""Which of many regular expressions match a topic's name, at a cost that follows those that may.

A new topic is matched inside the command of whoever is the first to use it, who should not pay for
all that others have subscribed to. So equal expressions are decided once. And most contain a text
that all names which they match contain, too, as `orders/` in `^orders/.*\\.eu$`: such an expression
is tried for names only that have three characters of this text, those that the fewest others are
found by. Expressions without such a text are tried for every name; there is a limit to how many a
connection may have (`MOST_PATTERNS`).

What takes many steps is limited for each name, and for each connection whose expressions it are:
see server/expressions/effort.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from server.expressions.effort import Allowance, TooCostlyError
from server.subscriptions.failures import give_up_on

if TYPE_CHECKING:
    from server.expressions.topic_names import TopicSelector
    from server.subscriptions.subscription import Subscription

_GRAM: Final = 3
"""How many characters an expression is found by."""

_LOOKED_AT: Final = 64
"""From how many characters of a text these are chosen."""


@dataclass(slots=True, eq=False)
class _Pattern:
    """An expression, with those who have it.

    Attributes:
        selector: the expression.
        gram: what it is found by; empty if it has to be tried for every name.
        users: who subscribed to it, with their places among all.
    """

    selector: TopicSelector
    gram: str
    users: dict[Subscription, int] = field(default_factory=dict)


class NamePatterns:
    """The subscriptions to regular expressions."""

    def __init__(self) -> None:
        self._patterns: dict[str, _Pattern] = {}
        self._by_gram: dict[str, dict[str, _Pattern]] = {}  # the empty one has all without a text
        self._added = 0

    def add(self, subscription: Subscription) -> None:
        """Match a subscription's expression from now on."""
        selector = subscription.selector
        pattern = self._patterns.get(selector.text)
        if pattern is None:
            pattern = _Pattern(selector, self._choose_gram(selector.needle))
            self._patterns[selector.text] = pattern
            self._by_gram.setdefault(pattern.gram, {})[selector.text] = pattern
        self._added += 1
        pattern.users[subscription] = self._added

    def remove(self, subscription: Subscription) -> None:
        """Match it no more, if it is here."""
        text = subscription.selector.text
        pattern = self._patterns.get(text)
        if pattern is None or pattern.users.pop(subscription, None) is None or pattern.users:
            return
        del self._patterns[text]
        others = self._by_gram[pattern.gram]
        del others[text]
        if not others:
            del self._by_gram[pattern.gram]

    def subscriptions_for(self, name: str) -> list[Subscription]:
        """The subscriptions that are for a topic, as far as its name goes, in order.

        Those end for which that takes too many steps to tell.
        """
        places: dict[Subscription, int] = {}
        efforts = defaultdict[int, Allowance](Allowance)  # by number of the session
        for pattern in self.candidates(name):
            asked = _who_has_effort_left(pattern, efforts)
            try:
                if asked.is_for(name, efforts[asked.subscriber.number]):
                    places.update(pattern.users)
            except TooCostlyError as error:
                give_up_on(pattern.users, error)
        return sorted(places, key=places.__getitem__)

    def _choose_gram(self, needle: str) -> str:
        crowds = {gram: len(self._by_gram.get(gram, ())) for gram in _grams(needle[:_LOOKED_AT])}
        return min(crowds, key=crowds.__getitem__, default="")

    def candidates(self, name: str) -> Iterator[_Pattern]:
        """The expressions that have to be tried for a name, each once."""
        yield from self._by_gram.get("", {}).values()
        if self._by_gram:
            for size in range(1, _GRAM + 1):
                for gram in {name[at : at + size] for at in range(len(name) - size + 1)}:
                    yield from self._by_gram.get(gram, {}).values()


def _grams(needle: str) -> Iterator[str]:
    size = min(len(needle), _GRAM)
    if size:
        for at in range(len(needle) - size + 1):
            yield needle[at : at + size]


def _who_has_effort_left(pattern: _Pattern, efforts: dict[int, Allowance]) -> Subscription:
    """One of those who have an expression, of whose connection many steps may still be asked."""
    first = next(iter(pattern.users))
    left = (one for one in pattern.users if efforts[one.subscriber.number].left)
    return next(left, first)
