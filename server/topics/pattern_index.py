"""Matches regular expressions to a topic's name, at a cost that grows with candidates only.

A new topic is matched within the command of its first user, which must not be delayed by all
subscriptions of other clients. So equal expressions are decided once. And most expressions contain
a text that every matching name contains, too, as `orders/` in `^orders/.*\\.eu$`. Such an
expression is tried only for names that contain three characters of this text, those that the fewest
other expressions are found by. Expressions without such a text are tried for every name; there is a
limit on them per connection (`MAX_PATTERNS`).

Expensive matching is limited for each name, and for each connection with the expressions: see
server/expressions/regex/budget.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from server.expressions.regex.budget import SearchAllowance, TooCostlyError
from server.topics.subscriptions.limits.failures import end_failed_subscriptions

if TYPE_CHECKING:
    from server.expressions.topic_names import TopicSelector
    from server.topics.subscriptions.subscription import Subscription

_GRAM_LENGTH: Final = 3
"""Number of characters that an expression is found by."""

_MAX_GRAM_TEXT: Final = 64
"""Length of the part of a text that these are chosen from."""


@dataclass(slots=True, eq=False)
class _Pattern:
    """An expression, with its subscriptions.

    Attributes:
        selector: the expression.
        gram: the characters that it is found by; empty if it has to be tried for every name.
        subscriptions: its subscriptions, with their places among all.
    """

    selector: TopicSelector
    gram: str
    subscriptions: dict[Subscription, int] = field(default_factory=dict)


class PatternIndex:
    """The subscriptions to regular expressions, by expression."""

    def __init__(self) -> None:
        self._patterns: dict[str, _Pattern] = {}
        self._by_gram: dict[str, dict[str, _Pattern]] = {}  # "": expressions without a text
        self._add_count = 0

    def add(self, subscription: Subscription) -> None:
        """Match a subscription's expression from now on."""
        selector = subscription.selector
        pattern = self._patterns.get(selector.text)
        if pattern is None:
            pattern = _Pattern(selector, self._choose_gram(selector.needle))
            self._patterns[selector.text] = pattern
            self._by_gram.setdefault(pattern.gram, {})[selector.text] = pattern
        self._add_count += 1
        pattern.subscriptions[subscription] = self._add_count

    def remove(self, subscription: Subscription) -> None:
        """Stop matching a subscription's expression, if it is here."""
        text = subscription.selector.text
        pattern = self._patterns.get(text)
        if (
            pattern is None
            or pattern.subscriptions.pop(subscription, None) is None
            or pattern.subscriptions
        ):
            return
        del self._patterns[text]
        others = self._by_gram[pattern.gram]
        del others[text]
        if not others:
            del self._by_gram[pattern.gram]

    def subscriptions_for(self, name: str) -> list[Subscription]:
        """Return the subscriptions with expressions that match a topic's name, in order.

        Subscriptions with expressions that take too many steps to match are ended.
        """
        numbers: dict[Subscription, int] = {}
        allowances = defaultdict[int, SearchAllowance](SearchAllowance)  # by number of the session
        for pattern in self.candidates(name):
            chosen = _choose_subscription(pattern, allowances)
            try:
                if chosen.matches_topic(name, allowances[chosen.subscriber.number]):
                    numbers.update(pattern.subscriptions)
            except TooCostlyError as error:
                end_failed_subscriptions(pattern.subscriptions, error)
        return sorted(numbers, key=numbers.__getitem__)

    def _choose_gram(self, needle: str) -> str:
        pattern_counts = {
            gram: len(self._by_gram.get(gram, ())) for gram in _grams(needle[:_MAX_GRAM_TEXT])
        }
        return min(pattern_counts, key=pattern_counts.__getitem__, default="")

    def candidates(self, name: str) -> Iterator[_Pattern]:
        """Yield the expressions that have to be tried for a name, each once."""
        yield from self._by_gram.get("", {}).values()
        if self._by_gram:
            for size in range(1, _GRAM_LENGTH + 1):
                for gram in {name[at : at + size] for at in range(len(name) - size + 1)}:
                    yield from self._by_gram.get(gram, {}).values()


def _grams(needle: str) -> Iterator[str]:
    size = min(len(needle), _GRAM_LENGTH)
    if size:
        for at in range(len(needle) - size + 1):
            yield needle[at : at + size]


def _choose_subscription(pattern: _Pattern, allowances: dict[int, SearchAllowance]) -> Subscription:
    """Return a subscription to an expression, preferably of a connection with steps left."""
    first = next(iter(pattern.subscriptions))
    with_allowance = (
        subscription
        for subscription in pattern.subscriptions
        if allowances[subscription.subscriber.number].remaining
    )
    return next(with_allowance, first)
