"""What deciding filters costs, known from a close look at few of the messages.

Theory of operation. To time each test of each message would cost more than the tests. So only now
and then is a message looked at closely: it is matched as all others are, and what its parts take is
timed. Between two looks the messages are counted, a run at a time. What a filter took in looks, by
the number of looks since it came, is what it takes of each message; times all messages since, what
it has taken so far.

A filter is charged for its own test. An index decides for many filters at once which of them are
tested at all: one that it seldom finds is seldom charged. Reading the fields of a body is for all
filters together, and shown apart. Of very many tests some are timed, taken at even distances from
an arbitrary beginning, and each stands for those between.

The first looks come soon after each other, later ones after a thousand messages and more, and never
after the same number, so that messages that repeat themselves do not hide from them. If the thread
was kept from its work during a look, what it has seen is not believed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import perf_counter, thread_time
from typing import Final, NamedTuple

_MOST_BETWEEN: Final = 2_000
"""Messages between two looks, about. A look takes two to three times what a match takes."""

_MOST_TIMED: Final = 256
"""Tests that are timed in a look."""

_RATE_SECONDS: Final = 10.0
"""Over how long, or somewhat longer, the rate of messages is averaged."""

_KEPT_OFF: Final = 2.0
_KEPT_OFF_SECONDS: Final = 0.000_05
"""When more time than this has gone by, by the time at work and in itself, somebody else worked."""


class FilterCost(NamedTuple):
    """What a filter costs.

    Attributes:
        topic: the topic that it is on.
        filter: its text, in its normal form.
        users: subscriptions that share it.
        messages: how many have been matched since it came.
        looks: of how many of them it is known what they took; with none, nothing else is.
        seconds_each: what it takes of a message.
        per_second: how many messages are matched a second, lately.
        reading_seconds: what it takes to read the fields of a message for all filters.
        sharers: how many filters share that.
    """

    topic: str
    filter: str
    users: int
    messages: int
    looks: int
    seconds_each: float
    per_second: float
    reading_seconds: float
    sharers: int

    @property
    def seconds(self) -> float:
        """What it has taken so far."""
        return self.seconds_each * self.messages

    @property
    def share(self) -> float:
        """The part of the engine's time that it takes, lately."""
        return self.seconds_each * self.per_second


class Spent:
    """What has been seen of what one filter takes; filters are such, to take little memory.

    Args:
        looks: those at the messages that it is decided for.

    Attributes:
        seconds: what it took in looks.
    """

    __slots__ = ("_looks_before", "_messages_before", "seconds")

    def __init__(self, looks: Looks) -> None:
        self.seconds = 0.0
        self._looks_before = looks.count
        self._messages_before = looks.messages

    def cost(self, looks: Looks, topic: str, text: str, users: int, sharers: int) -> FilterCost:
        """What it costs.

        Args:
            looks: see above.
            topic: the topic that the filter is on.
            text: the filter.
            users: its users.
            sharers: how many filters there are.
        """
        seen = looks.count - self._looks_before
        return FilterCost(
            topic,
            text,
            users,
            looks.messages - self._messages_before,
            seen,
            self.seconds / seen if seen else 0.0,
            looks.rate(perf_counter()),
            looks.reading_seconds / looks.count if looks.count else 0.0,
            sharers,
        )


class Looks:
    """The looks at messages that a set of filters is decided for.

    Attributes:
        messages: how many messages have been matched.
        count: how many of them were looked at.
        due_at: at how many messages the next look is due.
        reading_seconds: what reading their fields took in looks.
    """

    __slots__ = ("_earlier", "_mark", "count", "due_at", "messages", "reading_seconds")

    def __init__(self) -> None:
        self.messages = 0
        self.count = 0
        self.due_at = 1
        self.reading_seconds = 0.0
        self._earlier = self._mark = perf_counter(), 0

    def begin(self) -> Look:
        """Look at a message."""
        now = perf_counter()
        if now - self._mark[0] > _RATE_SECONDS:
            self._earlier, self._mark = self._mark, (now, self.messages)
        between = min(self.count**2, _MOST_BETWEEN)
        self.due_at = self.messages + 1 + int(between * (0.5 + random.random()))  # noqa: S311 - a sample, no secret
        return Look()

    def end(self, look: Look) -> None:
        """Take note of what has been seen."""
        if not look.is_believed:
            return
        self.count += 1
        self.reading_seconds += look.reading_seconds
        for spent, seconds in look.seen:
            spent.seconds += seconds

    def rate(self, now: float) -> float:
        """How many messages are matched a second, lately.

        Args:
            now: by the clock of `perf_counter`.
        """
        moment, messages = self._earlier
        return (self.messages - messages) / max(now - moment, 1.0)


class Look:
    """One look at a message.

    Attributes:
        seen: whose test took how many seconds, times the tests that it stands for.
        reading_seconds: what reading the message's fields took.
    """

    __slots__ = ("_begun", "_overhead", "_working", "reading_seconds", "seen")

    def __init__(self) -> None:
        self.seen: list[tuple[Spent, float]] = []
        self.reading_seconds = 0.0
        self._working = thread_time()
        self._begun = perf_counter()
        self._overhead = perf_counter() - self._begun

    def timed(self, tests: int) -> range:
        """Which of so many tests are to be timed; its step is the number that one stands for."""
        step = 1 + (tests - 1) // _MOST_TIMED
        return range(random.randrange(step), tests, step) if tests else range(0)  # noqa: S311 - a sample, no secret

    def took(self, begun: float) -> float:
        """Seconds that something took that has just ended, without what it takes to find out.

        Args:
            begun: when it began, by `perf_counter`.
        """
        return max(perf_counter() - begun - self._overhead, 0.0)

    @property
    def is_believed(self) -> bool:
        """Whether the thread has been at work all the time."""
        passed, worked = perf_counter() - self._begun, thread_time() - self._working
        return passed <= _KEPT_OFF * worked + _KEPT_OFF_SECONDS


def costliest(costs: Iterable[FilterCost], most: int) -> list[FilterCost]:
    """The costs of filters that take most of the engine's time, lately and then so far."""
    return sorted(costs, key=lambda one: (one.share, one.seconds), reverse=True)[:most]
