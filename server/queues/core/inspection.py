"""Inspection of a queue: its messages, its status, and why a message is not delivered.

All functions are read-only. Those that iterate over many messages are generators, so that callers
can iterate in time slices; messages that leave meanwhile are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.queues.core.consumers import Consumer, ConsumerSlot
from server.queues.core.events import PublisherSequence
from server.queues.core.message_state import VISIBLE
from server.queues.core.message_table import SHIFT
from server.queues.core.queue import Queue
from server.queues.core.states import (
    AVAILABLE,
    BARRIER,
    BEHIND,
    DELAYED,
    FOREIGN,
    GONE,
    LEASED,
    NAMES,
    SENT,
)
from server.util.clock import MICROSECONDS_PER_SECOND

_MAX_EXAMINED = 1_000


_AVAILABLE = np.isin(np.arange(256), sorted(VISIBLE))
"""For each state, whether a query of the queue sees a message in it."""


def available(queue: Queue) -> NDArray[np.uint64]:
    """Return the messages that a query of the queue sees, in the order of delivery.

    They are unleased, owned by this instance, and not delayed. The order is that of the messages;
    filters, backlogs and barriers decide which consumer gets them, and when.

    Returns:
        Their txids.
    """
    txid_columns: list[NDArray[np.uint64]] = []
    priority_columns: list[NDArray[np.uint64]] = []
    for _, block in sorted(queue.lifecycle.entries.blocks.items()):
        is_visible = _AVAILABLE[np.frombuffer(bytes(block.states), np.uint8)]
        txid_columns.append(np.array(block.txids, np.uint64)[: len(is_visible)][is_visible])
        if queue.settings.prioritized:
            priorities = np.zeros(len(is_visible), np.uint64)
            priorities[: len(block.priorities)] = block.priorities
            priority_columns.append(priorities[is_visible])
    if not txid_columns:
        return np.zeros(0, np.uint64)
    txids = np.concatenate(txid_columns)
    if priority_columns:
        return txids[np.argsort(~np.concatenate(priority_columns), kind="stable")]
    return txids


class QueueContents(NamedTuple):
    """The messages in a queue at one moment, in arrival order.

    Attributes:
        txids: their txids.
        offsets: their offsets.
        states: their states.
    """

    txids: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    states: NDArray[np.uint8]


def contents(queue: Queue) -> QueueContents:
    """Return all messages in the queue, leased, delayed and foreign ones included."""
    txid_columns = [np.zeros(0, np.uint64)]
    offset_columns = [np.zeros(0, np.int64)]
    state_columns = [np.zeros(0, np.uint8)]
    for number, block in sorted(queue.lifecycle.entries.blocks.items()):
        states = np.frombuffer(bytes(block.states), np.uint8)
        indexes = np.flatnonzero((states != GONE) & (states != SENT))
        txid_columns.append(np.array(block.txids, np.uint64)[indexes])
        offset_columns.append(indexes + (number << SHIFT))
        state_columns.append(states[indexes])
    return QueueContents(
        np.concatenate(txid_columns), np.concatenate(offset_columns), np.concatenate(state_columns)
    )


def leases_of(queue: Queue, bookmark: PublisherSequence) -> tuple[int, int]:
    """Return the number of unsuccessful leases of a message, and when the last one began.

    The time is in microseconds since 1970. Both are 0 if there was none.
    """
    offset = queue.lifecycle.entries.find(bookmark)
    attempts = None if offset is None else queue.lifecycle.find_attempts(offset)
    return (0, 0) if attempts is None else (attempts.deliveries, attempts.last_leased)


def is_available(queue: Queue, bookmark: PublisherSequence) -> bool:
    """Return whether a query of the queue sees a message."""
    entries = queue.lifecycle.entries
    offset = entries.find(bookmark)
    return offset is not None and entries.state(offset) in VISIBLE


def first_available(queue: Queue) -> int | None:
    """Return the offset of the oldest message that `available` returns; None if there is none."""
    entries = queue.lifecycle.entries
    return next((offset for offset in entries.offsets() if entries.state(offset) in VISIBLE), None)


def all_offsets(queue: Queue) -> Iterator[int]:
    """Return the offsets of all messages, in arrival order, for `sow_delete` by filter."""
    return queue.lifecycle.entries.offsets()


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """The status of one message. Times are microseconds since 1970.

    Attributes:
        txid: its txid.
        bookmark: its bookmark.
        state: the name of its state.
        recorded_at: when it was recorded.
        expires_at: when it expires, None for never.
        owner: the instance that owns it, empty for this one.
        deliveries: number of deliveries, a current lease included.
        cancels: number of cancels.
        leased_to: the name of the consumer that has it, empty if it is not leased.
        leased_at: when it was leased, None if it is not.
    """

    txid: int
    bookmark: PublisherSequence
    state: str
    recorded_at: int
    expires_at: int | None
    owner: str
    deliveries: int
    cancels: int
    leased_to: str
    leased_at: int | None


def message(queue: Queue, offset: int) -> MessageStatus | None:
    """Return the status of a message; None if it has left the queue."""
    lifecycle = queue.lifecycle
    entries = lifecycle.entries
    state = entries.state(offset)
    if state in (GONE, SENT):
        return None
    lease = lifecycle.leases.by_offset.get(offset)
    attempts = lifecycle.find_attempts(offset)
    return MessageStatus(
        entries.txid(offset),
        entries.bookmark(offset),
        NAMES[state],
        entries.recorded_at(offset),
        entries.expires_at(offset) or None,
        entries.owner(offset),
        (attempts.deliveries if attempts else 0) + (lease is not None),
        attempts.cancels if attempts else 0,
        lease.slot.consumer.name if lease else "",
        lease.leased_at if lease else None,
    )


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """The status of one consumer at a queue.

    Attributes:
        name: the name of its client.
        content_filter: its filter, None for all messages.
        is_retired: whether it gets no more messages, and only holds some.
        held_count: messages of this queue that it has.
        outstanding: messages of all queues that it has.
        max_backlog: its backlog.
        delivered_count: messages of this queue delivered to it.
    """

    name: str
    content_filter: object
    is_retired: bool
    held_count: int
    outstanding: int
    max_backlog: int
    delivered_count: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The status of a queue at one time.

    Attributes:
        counts_by_state: messages by state, without states that have none.
        depth: messages in the queue.
        inactive_count: messages in the log that do not count yet.
        early_ack_count: acknowledgements that wait for their messages.
        oldest_txid: the txid of the oldest message, None if there is none.
        oldest_age: the age of the oldest message, in microseconds; 0 if there is none.
        oldest_lease_age: the age of the oldest lease, in microseconds.
        consumers: in arrival order.
        scans: for each scan, the rank that it has reached, and its number of matched messages.
    """

    counts_by_state: dict[str, int]
    depth: int
    inactive_count: int
    early_ack_count: int
    oldest_txid: int | None
    oldest_age: int
    oldest_lease_age: int
    consumers: list[ConsumerStatus]
    scans: list[tuple[int, int]]


def status(queue: Queue, now: int) -> QueueStatus:
    """Return the status of a queue."""
    lifecycle = queue.lifecycle
    entries = lifecycle.entries
    head = entries.head
    is_empty = head == entries.end
    since = lifecycle.leases.oldest_leased_at()
    return QueueStatus(
        {
            NAMES[state]: count
            for state, count in enumerate(entries.state_counts)
            if count and state not in (GONE, SENT)
        },
        queue.depth,
        lifecycle.inactive_count,
        len(lifecycle.early_acks),
        None if is_empty else entries.txid(head),
        0 if is_empty else max(now - entries.recorded_at(head), 0),
        0 if since is None else max(now - since, 0),
        [_consumer_status(slot) for slot in queue.dispatch.slots.values()],
        [(scan.position, scan.matched_count) for scan in queue.dispatch.scans],
    )


def _consumer_status(slot: ConsumerSlot) -> ConsumerStatus:
    consumer = slot.consumer
    return ConsumerStatus(
        consumer.name,
        slot.content_filter,
        not slot.is_active,
        len(slot.held_offsets),
        consumer.outstanding,
        consumer.max_backlog,
        slot.delivered_count,
    )


def oldest_lease(queue: Queue, consumer: Consumer) -> int | None:
    """Return when a consumer got the message that it has had longest, in microseconds since 1970.

    If it has very many messages, only some of them are examined.

    Returns:
        None if it has none.
    """
    slot = queue.dispatch.slots.get(consumer)
    held = () if slot is None else islice(slot.held_offsets, _MAX_EXAMINED)
    by_offset = queue.lifecycle.leases.by_offset
    return min(
        (by_offset[offset].leased_at for offset in held if offset in by_offset), default=None
    )


class Obstacle(NamedTuple):
    """One reason why a message is not delivered.

    Attributes:
        kind: `lease`, `delay`, `key`, `owner`, `barrier`, `backlog`, `queue backlog`, `filter`,
            `priority`, `not looked at`, `no consumer`.
        text: the reason as a sentence.
        consumer: the name of the consumer concerned, empty for all.
    """

    kind: str
    text: str
    consumer: str = ""


def obstacles(queue: Queue, offset: int, now: int) -> list[Obstacle]:
    """Return why a message is not delivered; empty if the next call of `deliver` delivers it.

    The message is matched against filters, for which its body is read.
    """
    entries = queue.lifecycle.entries
    state = entries.state(offset)
    if state == LEASED:
        return [_lease_obstacle(queue, offset, now)]
    if state == DELAYED:
        return [Obstacle("delay", "was cancelled, and waits for its retry")]
    if state == BEHIND:
        return [_key_obstacle(queue, offset)]
    if state == FOREIGN:
        return [Obstacle("owner", f"is owned by the instance {entries.owner(offset)}")]
    if state == AVAILABLE:
        return _available_obstacles(queue, offset)
    if state == BARRIER and entries.head < offset:
        return [_barrier_obstacle(queue)]
    return [] if queue.dispatch.slots else [_NO_CONSUMER]


_NO_CONSUMER = Obstacle("no consumer", "the queue has no subscribers")


def _lease_obstacle(queue: Queue, offset: int, now: int) -> Obstacle:
    lease = queue.lifecycle.leases.by_offset[offset]
    name = lease.slot.consumer.name
    age = (now - lease.leased_at) / MICROSECONDS_PER_SECOND
    end = "without end"
    if lease.expires_at is not None:
        end = f"for another {(lease.expires_at - now) / MICROSECONDS_PER_SECOND:.1f} s"
    return Obstacle("lease", f"has been leased to {name} for {age:.1f} s, {end}", name)


def _key_obstacle(queue: Queue, offset: int) -> Obstacle:
    entries = queue.lifecycle.entries
    key = entries.key(offset)
    first = next(each for each in entries.offsets() if entries.key(each) == key)
    state = _state_name(queue, first)
    text = f"waits for message {entries.txid(first)} of the same key, which is {state}"
    return Obstacle("key", text)


def _state_name(queue: Queue, offset: int) -> str:
    return NAMES[queue.lifecycle.entries.state(offset)]


def _barrier_obstacle(queue: Queue) -> Obstacle:
    entries = queue.lifecycle.entries
    head = entries.head
    return Obstacle(
        "barrier",
        f"is a barrier, and waits for message {entries.txid(head)},"
        f" which is {_state_name(queue, head)}, and all others before it",
    )


def _available_obstacles(queue: Queue, offset: int) -> list[Obstacle]:
    lifecycle, dispatch = queue.lifecycle, queue.dispatch
    entries = lifecycle.entries
    if lifecycle.barriers and lifecycle.barriers[0] < offset:
        txid = entries.txid(lifecycle.barriers[0])
        return [Obstacle("barrier", f"comes after the barrier {txid}, which has not been passed")]
    max_backlog = queue.settings.max_backlog
    if max_backlog is not None and queue.leased_count >= max_backlog:
        leased = f"{queue.leased_count} of {max_backlog} messages are leased"
        return [Obstacle("queue backlog", f"the queue's backlog is full: {leased}")]
    slots = [slot for slot in dispatch.slots.values() if slot.is_active]
    if not slots:
        return [_NO_CONSUMER]
    matching_consumers = set(dispatch.find_matching_consumers(offset) or ())
    consumer_obstacles = [
        _consumer_obstacle(queue, offset, slot, slot.consumer in matching_consumers)
        for slot in slots
    ]
    return (
        []
        if None in consumer_obstacles
        else [each for each in consumer_obstacles if each is not None]
    )


def _consumer_obstacle(
    queue: Queue, offset: int, slot: ConsumerSlot, matches_filter: bool
) -> Obstacle | None:
    """Return why a consumer does not get a message, None if it does."""
    consumer = slot.consumer
    name = consumer.name
    if not matches_filter:
        return Obstacle("filter", f"does not match the filter of {name}", name)
    if consumer.is_held_back:
        return Obstacle("backlog", f"{name} does not read what it was sent", name)
    if consumer.max_backlog <= 0:
        return Obstacle("backlog", f"{name} has paused with a backlog of 0", name)
    if slot.free_backlog <= 0:
        text = f"{name} has a full backlog: {consumer.outstanding} of {consumer.max_backlog}"
        if queue.settings.prioritized:
            ahead = queue.lifecycle.order.count_before(offset)
            return Obstacle("priority", f"{text}, and {ahead} messages go first", name)
        return Obstacle("backlog", text, name)
    has_passed = queue.dispatch.has_scanned(slot, queue.lifecycle.order.rank(offset))
    if queue.dispatch.is_behind and not has_passed:
        text = f"has not been matched with the filter of {name} yet"
        return Obstacle("not looked at", text, name)
    return None
