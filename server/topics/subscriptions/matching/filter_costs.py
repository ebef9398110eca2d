"""Cost of filters, estimated from samples of the messages.

Theory of operation. To time each test of each message would cost more than the tests. So only few
messages are sampled: such a *look* matches a message like all others, and times the parts. Between
two looks the messages are counted, a run at a time. The time of a filter in looks, divided by the
number of looks since it was added, estimates its time per message; times all messages since, its
total.

A filter is charged for its own test. An index decides for many filters at once which of them are
tested at all: a filter that it seldom finds is seldom charged. Reading the fields of a body serves
all filters, and is reported separately. If there are very many tests, a subset is timed, at even
distances from a random start, and each timed test stands for those up to the next one.

The first looks follow each other soon, later ones after a thousand messages and more. The distance
is randomized, so that periodic messages do not hide from looks. A look during which the thread was
preempted is discarded.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import perf_counter, thread_time
from typing import Final, NamedTuple

_SAMPLE_INTERVAL: Final = 2_000
"""Messages between two looks, about. A look takes two to three times as long as a match."""

_MAX_TIMED: Final = 256
"""Tests that are timed in a look."""

_RATE_SECONDS: Final = 10.0
"""Seconds, or somewhat more, over which the message rate is averaged."""

_KEPT_OFF: Final = 2.0
_KEPT_OFF_SECONDS: Final = 0.000_05
"""Limit of a look's wall time: CPU time times the first, plus the second. Beyond it, the thread was
preempted."""


class FilterCost(NamedTuple):
    """The cost of a filter.

    Attributes:
        topic: the topic of the filter.
        filter: its text, in normal form.
        users: subscriptions that share it.
        messages: messages matched since it was added.
        looks: how many of them were sampled; with none, nothing below is known.
        seconds_each: time per message.
        per_second: recent rate of messages matched per second.
        reading_seconds: time to read the fields of a message, for all filters.
        sharers: number of filters that share `reading_seconds`.
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
        """Total time so far."""
        return self.seconds_each * self.messages

    @property
    def share(self) -> float:
        """Recent share of the engine's time."""
        return self.seconds_each * self.per_second


class FilterTime:
    """Sampled time of one filter; a base class of filters, to save memory.

    Args:
        looks: the looks of the filter's set.

    Attributes:
        seconds: the filter's time in looks.
    """

    __slots__ = ("_looks_before", "_messages_before", "seconds")

    def __init__(self, looks: CostSampler) -> None:
        self.seconds = 0.0
        self._looks_before = looks.count
        self._messages_before = looks.messages

    def cost(
        self, looks: CostSampler, topic: str, text: str, users: int, sharers: int
    ) -> FilterCost:
        """Return the cost of the filter.

        Args:
            looks: see above.
            topic: the topic of the filter.
            text: the filter's text.
            users: number of its users.
            sharers: number of filters in the set.
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


class CostSampler:
    """The looks of a set of filters: which messages are sampled, and the totals.

    Attributes:
        messages: messages matched.
        count: how many of them were sampled.
        due_at: value of `messages` at which the next look is due.
        reading_seconds: total time to read fields in looks.
    """

    __slots__ = ("_earlier", "_mark", "count", "due_at", "messages", "reading_seconds")

    def __init__(self) -> None:
        self.messages = 0
        self.count = 0
        self.due_at = 1
        self.reading_seconds = 0.0
        self._earlier = self._mark = perf_counter(), 0

    def begin(self) -> CostSample:
        """Begin a look at a message, schedule the next one, and return it."""
        now = perf_counter()
        if now - self._mark[0] > _RATE_SECONDS:
            self._earlier, self._mark = self._mark, (now, self.messages)
        between = min(self.count**2, _SAMPLE_INTERVAL)
        self.due_at = self.messages + 1 + int(between * (0.5 + random.random()))  # noqa: S311 - a sample, no secret
        return CostSample()

    def end(self, look: CostSample) -> None:
        """Add the times of a finished look, unless the thread was preempted."""
        if not look.is_believed:
            return
        self.count += 1
        self.reading_seconds += look.reading_seconds
        for spent, seconds in look.seen:
            spent.seconds += seconds

    def rate(self, now: float) -> float:
        """Return the recent rate of messages matched per second.

        Args:
            now: the time by `perf_counter`.
        """
        moment, messages = self._earlier
        return (self.messages - messages) / max(now - moment, 1.0)


class CostSample:
    """One look: the sampled times of one message.

    Attributes:
        seen: filters with the seconds of their tests, times the tests that each stands for.
        reading_seconds: time to read the message's fields.
    """

    __slots__ = ("_begun", "_overhead", "_working", "reading_seconds", "seen")

    def __init__(self) -> None:
        self.seen: list[tuple[FilterTime, float]] = []
        self.reading_seconds = 0.0
        self._working = thread_time()
        self._begun = perf_counter()
        self._overhead = perf_counter() - self._begun

    def timed(self, tests: int) -> range:
        """Return the numbers of the tests to time; the step is the count that each stands for."""
        step = 1 + (tests - 1) // _MAX_TIMED
        return range(random.randrange(step), tests, step) if tests else range(0)  # noqa: S311 - a sample, no secret

    def took(self, begun: float) -> float:
        """Return the seconds elapsed since `begun`, without the overhead of measuring.

        Args:
            begun: the start, by `perf_counter`.
        """
        return max(perf_counter() - begun - self._overhead, 0.0)

    @property
    def is_believed(self) -> bool:
        """True if the thread was not preempted during the look."""
        passed, worked = perf_counter() - self._begun, thread_time() - self._working
        return passed <= _KEPT_OFF * worked + _KEPT_OFF_SECONDS


def costliest(costs: Iterable[FilterCost], most: int) -> list[FilterCost]:
    """Return the highest costs, sorted by recent share of the engine's time, then by total."""
    return sorted(costs, key=lambda one: (one.share, one.seconds), reverse=True)[:most]
