"""The queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from server.queues.core.states import FOREIGN
from server.statistics.resources import QUEUES
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import topic_ids
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.queues.core.counts import QueueCounters
    from server.queues.topic.queue_topic import QueueTopic
    from server.statistics.schema import StatisticValue
    from server.topics.topic_table import TopicTable
    from server.util.clock import Clock


class QueuesSource:
    """The queues. Create it after their recovery: counts begin there.

    Counts of queues that come later begin when they are first listed.

    Args:
        topics: has them.
        clock: the time.
    """

    resource = QUEUES

    def __init__(self, topics: TopicTable, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._baselines: dict[QueueTopic, QueueCounters] = {}
        self._list_queues()

    def _list_queues(self) -> list[QueueTopic]:
        queues, known = list(self._topics.queues or ()), self._baselines
        self._baselines = {
            queue: known[queue] if queue in known else replace(queue.core.counters)
            for queue in queues
        }
        return queues

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        now = int(self._clock.steady() * MICROSECONDS_PER_SECOND)
        queues = self._list_queues()
        ids = topic_ids((queue.name, queue.message_type.name) for queue in queues)
        for entry_id, queue in zip(ids, queues, strict=True):
            values = _dynamic_values(queue, now, self._baselines[queue])
            yield StatisticsEntry(entry_id, _static_values_of(queue), values)


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
    return 0.0 if since is None else max(now - since, 0) / MICROSECONDS_PER_SECOND
