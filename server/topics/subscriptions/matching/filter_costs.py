"""Cost of filters, estimated from samples of the messages.

Theory of operation. To time each test of each message would cost more than the tests. So only few
messages are sampled: a *sample* matches a message like all others, and times the parts. Between
two samples the messages are counted, a batch at a time. The time of a filter in samples, divided by
the number of samples since it was added, estimates its time per message; times all messages since,
its total.

A filter is charged for its own test. An index decides for many filters at once which of them are
tested at all: a filter that it seldom finds is seldom charged. Reading the fields of a body serves
all filters, and is reported separately. If there are very many tests, a subset is timed, at even
distances from a random start, and each timed test stands for those up to the next one.

The first samples follow each other soon, later ones after a thousand messages and more. The
distance is randomized, so that samples do not miss periodic messages. A sample during which the
thread was preempted is dropped.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import perf_counter, thread_time
from typing import Final, NamedTuple

_SAMPLE_INTERVAL: Final = 2_000
"""Messages between two samples, about. A sample takes two to three times as long as a match."""

_MAX_TIMED_TESTS: Final = 256
"""Tests that are timed in a sample."""

_RATE_SECONDS: Final = 10.0
"""Seconds, or somewhat more, over which the message rate is averaged."""

_MAX_WALL_FACTOR: Final = 2.0
_MAX_WALL_EXTRA_S: Final = 0.000_05
"""Limit of a sample's wall time: CPU time times the first, plus the second. Beyond it, the thread
was preempted."""


class FilterCost(NamedTuple):
    """The cost of a filter.

    Attributes:
        topic: the topic of the filter.
        filter: its text, in normal form.
        user_count: subscriptions that share it.
        messages: messages matched since it was added.
        sample_count: the number of sampled messages; with none, nothing below is known.
        seconds_per_message: time per message.
        messages_per_second: recent rate of messages matched per second.
        reading_seconds: time to read the fields of a message, for all filters.
        filter_count: number of filters that share `reading_seconds`.
    """

    topic: str
    filter: str
    user_count: int
    messages: int
    sample_count: int
    seconds_per_message: float
    messages_per_second: float
    reading_seconds: float
    filter_count: int

    @property
    def total_seconds(self) -> float:
        """Total time so far."""
        return self.seconds_per_message * self.messages

    @property
    def engine_share(self) -> float:
        """Recent share of the engine's time."""
        return self.seconds_per_message * self.messages_per_second


class FilterTime:
    """Sampled time of one filter; a base class of filters, to save memory.

    Args:
        sampler: samples the filter's set.

    Attributes:
        sampled_seconds: the filter's time in samples.
    """

    def __init__(self, sampler: CostSampler) -> None:
        self.sampled_seconds = 0.0
        self._samples_before = sampler.sample_count
        self._messages_before = sampler.messages

    def cost(
        self, sampler: CostSampler, topic: str, text: str, user_count: int, filter_count: int
    ) -> FilterCost:
        """Return the cost of the filter.

        Args:
            sampler: samples the filter's set.
            topic: the topic of the filter.
            text: the filter's text.
            user_count: number of its users.
            filter_count: number of filters in the set.
        """
        sample_count = sampler.sample_count - self._samples_before
        return FilterCost(
            topic,
            text,
            user_count,
            sampler.messages - self._messages_before,
            sample_count,
            self.sampled_seconds / sample_count if sample_count else 0.0,
            sampler.message_rate(perf_counter()),
            sampler.reading_seconds / sampler.sample_count if sampler.sample_count else 0.0,
            filter_count,
        )


class CostSampler:
    """The samples of a set of filters: when messages are sampled, and the totals.

    Attributes:
        messages: messages matched.
        sample_count: the number of sampled messages.
        next_sample_at: value of `messages` at which the next sample is due.
        reading_seconds: total time to read fields in samples.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.sample_count = 0
        self.next_sample_at = 1
        self.reading_seconds = 0.0
        self._earlier_count = self._latest_count = perf_counter(), 0

    def begin_sample(self) -> CostSample:
        """Begin to sample a message, schedule the next sample, and return this one."""
        now = perf_counter()
        if now - self._latest_count[0] > _RATE_SECONDS:
            self._earlier_count, self._latest_count = self._latest_count, (now, self.messages)
        interval = min(self.sample_count**2, _SAMPLE_INTERVAL)
        self.next_sample_at = self.messages + 1 + int(interval * (0.5 + random.random()))  # noqa: S311 - a sample, no secret
        return CostSample()

    def end_sample(self, sample: CostSample) -> None:
        """Add the times of a finished sample, unless the thread was preempted."""
        if not sample.is_valid:
            return
        self.sample_count += 1
        self.reading_seconds += sample.reading_seconds
        for filter_time, seconds in sample.test_times:
            filter_time.sampled_seconds += seconds

    def message_rate(self, now: float) -> float:
        """Return the recent rate of messages matched per second.

        Args:
            now: the time by `perf_counter`.
        """
        since_s, messages = self._earlier_count
        return (self.messages - messages) / max(now - since_s, 1.0)


class CostSample:
    """One sample: the times of one message.

    Attributes:
        test_times: filters with the seconds of their tests, times the tests that each stands for.
        reading_seconds: time to read the message's fields.
    """

    def __init__(self) -> None:
        self.test_times: list[tuple[FilterTime, float]] = []
        self.reading_seconds = 0.0
        self._begun_cpu_s = thread_time()
        self._begun_s = perf_counter()
        self._overhead_s = perf_counter() - self._begun_s

    def tests_to_time(self, tests: int) -> range:
        """Return the numbers of the tests to time; the step is the count that each stands for."""
        step = 1 + (tests - 1) // _MAX_TIMED_TESTS
        return range(random.randrange(step), tests, step) if tests else range(0)  # noqa: S311 - a sample, no secret

    def elapsed_since(self, start_s: float) -> float:
        """Return the seconds elapsed since `start_s`, without the overhead of measuring.

        Args:
            start_s: the start, by `perf_counter`.
        """
        return max(perf_counter() - start_s - self._overhead_s, 0.0)

    @property
    def is_valid(self) -> bool:
        """True if the thread was not preempted during the sample."""
        wall_s, cpu_s = perf_counter() - self._begun_s, thread_time() - self._begun_cpu_s
        return wall_s <= _MAX_WALL_FACTOR * cpu_s + _MAX_WALL_EXTRA_S


def costliest(costs: Iterable[FilterCost], limit: int) -> list[FilterCost]:
    """Return the highest costs, sorted by recent share of the engine's time, then by total."""
    return sorted(costs, key=lambda one: (one.engine_share, one.total_seconds), reverse=True)[
        :limit
    ]
