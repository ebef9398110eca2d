"""The state of a queue for the admin interface: counters, consumers and its first messages.

AMPS has a cursor for each replay of the log that serves consumers. A queue here scans its messages
once for each set of filters, and these scans are shown as cursors.

Source: AMPS Monitoring Guide, queues.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final

from server.queues.core.inspection import message, status
from server.queues.core.message_state import VISIBLE
from server.queues.core.message_table import SIZE
from server.queues.topic.descriptions import bookmark_of
from server.queues.topic.filter_matcher import ConsumerFilter
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.queues.core import Queue
    from server.queues.core.inspection import ConsumerStatus, QueueStatus
    from server.queues.topic.message_cache import CachedMessage
    from server.queues.topic.queue_topic import QueueTopic
    from server.storage.journal.files import JournalFile
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import SteadySeconds

_MAX_MESSAGES: Final = 1_000
_MAX_CONSUMERS: Final = 1_000
_MAX_BODIES: Final = 20
_MAX_READ_BYTES: Final = 1 << 20
"""Bytes of bodies that a request reads, on the engine's thread; the last body may go beyond."""
MAX_BODY_BYTES: Final = 4_096
"""Maximum bytes of a body that are shown."""


def details(topic: QueueTopic, log: TransactionLog, steady_s: SteadySeconds) -> dict[str, object]:
    """Describe a queue.

    Args:
        topic: the queue.
        log: the log with its messages.
        steady_s: the time of the steady clock.
    """
    queue, now = topic.core, int(steady_s * MICROSECONDS_PER_SECOND)
    queue_status = status(queue, now)
    counters, entries = queue.counters, queue.lifecycle.entries
    messages = [
        _message(queue, offset, log.journal.files, now)
        for offset in islice(entries.offsets(), _MAX_MESSAGES)
    ]
    oldest = log.last_txid + 1 if queue_status.oldest_txid is None else queue_status.oldest_txid
    return {
        "internal_depth": len(entries.blocks) * SIZE,
        "insert_count": counters.enqueued,
        "delete_count": counters.acknowledged + counters.expired,
        "depth": queue_status.depth,
        "last_queued_txid": _last_queued(queue, log),
        "last_acked_txid": oldest - 1,
        "priority_count": len({entry["priority"] for entry in messages})
        if queue.settings.prioritized
        else 0,
        "seconds_behind": queue_status.oldest_age / MICROSECONDS_PER_SECOND,
        "age_of_oldest_lease": queue_status.oldest_lease_age / MICROSECONDS_PER_SECOND,
        "backlog": queue.leased_count,
        "expired_leases": counters.expired_leases,
        "locally_owned": queue_status.depth
        - queue_status.counts_by_state.get("owned elsewhere", 0),
        "transferred_in": counters.transferred_in,
        "transferred_out": counters.transferred_out,
        "cursors": _cursors(queue, queue_status, log),
        "messages": messages,
    }


def first_messages(topic: QueueTopic, steady_s: SteadySeconds) -> list[dict[str, object]]:
    """Describe the first messages of a queue, with the beginnings of their bodies.

    Beyond a total of bytes, messages have no body, no size and no correlation id (`is_omitted`).

    Args:
        topic: the queue.
        steady_s: the time of the steady clock.

    Raises:
        JournalUnreadableError: the log cannot be read at the moment.
    """
    queue, now = topic.core, int(steady_s * MICROSECONDS_PER_SECOND)
    entries = queue.lifecycle.entries
    messages: list[dict[str, object]] = []
    read_bytes = 0
    for offset in islice(entries.offsets(), _MAX_BODIES):
        described = _describe(queue, offset, now)
        if read_bytes < _MAX_READ_BYTES:
            (found,) = topic.browser.read(entries.txids([offset]))
            read_bytes += 0 if found is None else len(found.body)
            described |= _describe_body(found)
        messages.append(described | {"is_omitted": int("body" not in described)})
    return messages


def _describe(queue: Queue, offset: int, now: int) -> dict[str, object]:
    message_status = message(queue, offset)
    return {
        "bookmark": bookmark_of(queue, offset),
        "state": "" if message_status is None else message_status.state,
        "age": max(now - queue.lifecycle.entries.recorded_at(offset), 0) / MICROSECONDS_PER_SECOND,
        "deliveries": 0 if message_status is None else message_status.deliveries,
        "cancels": 0 if message_status is None else message_status.cancels,
        "leased_to": "" if message_status is None else message_status.leased_to,
    }


def _describe_body(found: CachedMessage | None) -> dict[str, object]:
    body = b"" if found is None else found.body
    return {
        "correlation_id": "" if found is None else found.context.correlation_id or "",
        "is_damaged": int(found is None),
        "size": len(body),
        "body": body[:MAX_BODY_BYTES].decode(errors="replace"),
    }


def _last_queued(queue: Queue, log: TransactionLog) -> int:
    """Return the txid of the last entry of the log that the queue has read."""
    entries = queue.lifecycle.entries
    last = entries.end - 1
    if queue.lifecycle.inactive_count:
        return queue.lifecycle.resume_txid - 1
    return entries.txid(last) if entries.is_present(last) else log.last_txid


def _cursors(
    queue: Queue, queue_status: QueueStatus, log: TransactionLog
) -> list[dict[str, object]]:
    subscriptions = [
        _subscription(consumer) for consumer in queue_status.consumers[:_MAX_CONSUMERS]
    ]
    if not subscriptions:
        return []
    last = _last_queued(queue, log)
    return [
        {
            "cursor_id": 1,
            "state": "stalled" if queue.is_unreadable else "behind" if queue.is_behind else "live",
            "last_processed_txid": last,
            "last_delivered_txid": _last_delivered(queue),
            "last_result": "",
            "processing_count": sum(matched for _, matched in queue_status.scans),
            "cursor_subscriptions": subscriptions,
        }
    ]


def _last_delivered(queue: Queue) -> int:
    """Return the txid of the most recent delivery among leased messages; 0 for none."""
    offset = next(reversed(queue.lifecycle.leases.by_offset), None)
    return 0 if offset is None else queue.lifecycle.entries.txid(offset)


def _subscription(consumer: ConsumerStatus) -> dict[str, object]:
    consumer_filter = consumer.content_filter
    return {
        "client_name": consumer.name,
        "filter": consumer_filter.text if isinstance(consumer_filter, ConsumerFilter) else "",
        "backlog": consumer.held_count,
        "total_backlog": consumer.outstanding,
        "max_backlog": consumer.max_backlog,
        "delivered": consumer.delivered_count,
        "is_active": int(not consumer.is_retired),
    }


def _message(
    queue: Queue, offset: int, files: tuple[JournalFile, ...], now: int
) -> dict[str, object]:
    entries = queue.lifecycle.entries
    message_status = message(queue, offset)
    txid, state = entries.txid(offset), entries.state(offset)
    shown: dict[str, object] = {
        "txid": txid,
        "bookmark": bookmark_of(queue, offset),
        "journal": _journal(files, txid),
        "deliverable": int(state in VISIBLE),
        "age": max(now - entries.recorded_at(offset), 0) / MICROSECONDS_PER_SECOND,
        "locally_owned": int(not entries.owner(offset)),
        # it is stored as one more: `stored_priority`
        "priority": max(entries.priority(offset) - 1, 0),
    }
    if message_status is not None and message_status.leased_at is not None:
        shown["leased_to"] = message_status.leased_to
        shown["leased_age"] = max(now - message_status.leased_at, 0) / MICROSECONDS_PER_SECOND
    return shown


def _journal(files: tuple[JournalFile, ...], txid: int) -> str:
    """Return the path of the journal file with an entry; empty if the file is removed."""
    index = bisect_right(files, txid, key=lambda file: file.first_txid) - 1
    return str(files[index].path) if index >= 0 else ""
