"""A text report on an instance's queues: shows operators why messages are not delivered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from server.queues.core.inspection import first_available, status
from server.queues.topic.descriptions import bookmark_of, describe_obstacles
from server.queues.topic.filter_matcher import ConsumerFilter
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.queues.core.inspection import ConsumerStatus
    from server.queues.topic.queue_topic import QueueTopic

_MAX_CONSUMERS: Final = 100


def report(queues: Iterable[QueueTopic], now: float) -> str:
    """Describe queues.

    Args:
        queues: the queues.
        now: the time, in seconds since 1970.

    Returns:
        Lines: for each queue its contents, its consumers, and the reasons why the oldest message
        and the first one that no consumer has are not delivered.
    """
    return "\n".join(
        line for queue in queues for line in _lines(queue, int(now * MICROSECONDS_PER_SECOND))
    )


def _lines(topic: QueueTopic, now: int) -> Iterator[str]:
    queue = topic.core
    queue_status = status(queue, now)
    states = ", ".join(f"{count} {state}" for state, count in queue_status.counts_by_state.items())
    title = f"queue {topic.name} ({topic.message_type.name})"
    yield f"{title}: {queue_status.depth} messages: {states or '-'}"
    if queue_status.inactive_count:
        yield f"  {queue_status.inactive_count} more are in the log, beyond TargetQueueDepth"
    if queue_status.early_ack_count:
        yield f"  {queue_status.early_ack_count} acknowledgements came before their messages"
    if topic.shared_queue.is_shared:
        yield _sharing(topic)
    for consumer in queue_status.consumers[:_MAX_CONSUMERS]:
        yield f"  consumer {_consumer(consumer)}"
    if len(queue_status.consumers) > _MAX_CONSUMERS:
        yield f"  and {len(queue_status.consumers) - _MAX_CONSUMERS} more consumers"
    if queue_status.oldest_txid is None:
        return
    head = queue.lifecycle.entries.head
    age_s = queue_status.oldest_age / MICROSECONDS_PER_SECOND
    oldest = f"{bookmark_of(queue, head)}, of {age_s:.1f} s ago"
    yield f"  the oldest message, {oldest}: {describe_obstacles(queue, head, now)}"
    first = first_available(queue)
    if first not in (None, head):
        why = describe_obstacles(queue, first, now)
        yield f"  the first that no consumer has, {bookmark_of(queue, first)}: {why}"


def _sharing(topic: QueueTopic) -> str:
    counters = topic.core.counters
    proxy = ", acts for others" if topic.shared_queue.transfers.is_proxy else ""
    return (
        f"  shared with other instances: {counters.transferred_in} messages have been moved to this"
        f" one, {counters.transferred_out} by it, {counters.owned_twice} of which had been"
        f" published at both (owned_twice); {counters.ended_elsewhere} were with consumers"
        f" here when another one acknowledged them{proxy}"
    )


def _consumer(consumer: ConsumerStatus) -> str:
    consumer_filter = consumer.content_filter
    filter_ = (
        f", filter {consumer_filter.text}" if isinstance(consumer_filter, ConsumerFilter) else ""
    )
    retired = ", gets no more" if consumer.is_retired else ""
    return (
        f"{consumer.name}: has {consumer.outstanding} of {consumer.max_backlog},"
        f" {consumer.held_count} of this"
        f" queue; was sent {consumer.delivered_count}{filter_}{retired}"
    )
