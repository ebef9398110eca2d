"""The queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from server.queues.core.states import FOREIGN
from server.statistics.resources import QUEUES
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.names import topic_ids

if TYPE_CHECKING:
    from server.queues.core.counts import QueueCounters
    from server.queues.topic.queue_topic import QueueTopic
    from server.statistics.schema import StatisticValue
    from server.util.clock import Clock

_MICROSECONDS = 1_000_000


class QueuesSource:
    """The queues. Create it after their recovery: counts begin there.

    Args:
        queues: all of them.
        clock: the time.
    """

    resource = QUEUES

    def __init__(self, queues: Iterable[QueueTopic], clock: Clock) -> None:
        topics = list(queues)
        ids = topic_ids((topic.name, topic.message_type.name) for topic in topics)
        self._clock = clock
        self._queues = [
            (name, topic, _static_values_of(topic), replace(topic.core.counters))
            for name, topic in zip(ids, topics, strict=True)
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        now = int(self._clock.steady() * _MICROSECONDS)
        for name, queue, static_values, at_start in self._queues:
            yield StatisticsEntry(name, static_values, _dynamic_values(queue, now, at_start))


def _static_values_of(queue: QueueTopic) -> tuple[StatisticValue, ...]:
    spec = queue.spec
    return (
        spec.max_backlog or 0,
        spec.message_type,
        spec.target_queue_depth or 0,
        spec.name,
    )


def _dynamic_values(
    queue: QueueTopic, now: int, at_start: QueueCounters
) -> tuple[StatisticValue, ...]:
    core = queue.core
    lifecycle = core.lifecycle
    entries, counters = lifecycle.entries, core.counters
    leased_at = lifecycle.leases.oldest_leased_at()
    is_empty = entries.head == entries.end
    return (
        counters.acknowledged - at_start.acknowledged,
        _age(leased_at, now),
        core.leased_count,
        sum(slot.is_active for slot in core.dispatch.slots.values()),
        len(lifecycle.early_acks),
        counters.enqueued - at_start.enqueued,
        counters.expired_leases - at_start.expired_leases,
        lifecycle.inactive_count,
        core.depth - entries.state_counts[FOREIGN],
        int(queue.shared_queue.transfers.is_proxy),
        core.depth,
        _age(None if is_empty else entries.recorded_at(entries.head), now),
        counters.transferred_in,
        counters.transferred_out,
    )


def _age(since: int | None, now: int) -> float:
    """Return the seconds since a moment; 0 if there was no such moment."""
    return 0.0 if since is None else max(now - since, 0) / _MICROSECONDS
