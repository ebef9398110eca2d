"""Batch acknowledgement of leased messages.

Nearly all acknowledgements are for consecutive messages of one publisher that one consumer has, so
these are processed in batches where possible.

Source: AMPS User Guide, Acknowledging Messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from server.queues.core.bookmark_index import PublisherIndex, duplicate_bookmarks
from server.queues.core.consumers import ConsumerSlot
from server.queues.core.events import PublisherSequence
from server.queues.core.leases import Lease
from server.queues.core.message_state import MessageLifecycle
from server.queues.core.states import LEASED, SENT

_CLIENT: Final = itemgetter(0)
_SEQUENCE: Final = itemgetter(1)
"""The publisher of a bookmark, and its sequence number."""


def acknowledge_leased(
    lifecycle: MessageLifecycle, bookmarks: Sequence[PublisherSequence], holder: Hashable, now: int
) -> tuple[list[PublisherSequence], list[PublisherSequence]]:
    """Acknowledge messages that consumers hold and that need no other processing.

    Args:
        lifecycle: the messages of the queue.
        bookmarks: the bookmarks.
        holder: the client that must have them, None for any.
        now: the current time.

    Returns:
        The bookmarks of messages that have left the queue, and those that need the slow path.
    """
    acknowledged: list[PublisherSequence] = []
    others: list[PublisherSequence] = []
    for batch in _by_publisher(bookmarks):
        publisher = lifecycle.entries.find_publisher(batch[0][0])
        if publisher is None:
            others += batch
        else:
            others += _of_one_publisher(lifecycle, publisher, batch, holder, now, acknowledged)
    return acknowledged, others


def _of_one_publisher(
    lifecycle: MessageLifecycle,
    publisher: PublisherIndex,
    bookmarks: Sequence[PublisherSequence],
    holder: Hashable,
    now: int,
    acknowledged: list[PublisherSequence],
) -> list[PublisherSequence]:
    """Acknowledge messages of one publisher: append to `acknowledged`, return the others."""
    others: list[PublisherSequence] = []
    sequences = list(map(_SEQUENCE, bookmarks))
    if len(set(sequences)) < len(sequences):
        others += duplicate_bookmarks(bookmarks)
        bookmarks = list(dict.fromkeys(bookmarks))
        sequences = list(map(_SEQUENCE, bookmarks))
    offsets = publisher.find_all(sequences)
    leases = lifecycle.leases.find_leases(offsets)
    start = 0
    for slot, count in _by_slot(leases):
        stop = start + count
        if slot is None or (holder is not None and slot.consumer.client != holder):
            others += bookmarks[start:stop]
        else:
            _remove_leased(lifecycle, slot, publisher, offsets[start:stop], now)
            acknowledged += bookmarks[start:stop]
        start = stop
    return others


def _remove_leased(
    lifecycle: MessageLifecycle,
    slot: ConsumerSlot,
    publisher: PublisherIndex,
    offsets: Sequence[int],
    now: int,
) -> None:
    """Remove messages of one publisher that one consumer has."""
    count = len(offsets)
    state = SENT if lifecycle.settings.at_most_once else LEASED
    lifecycle.leases.end_acknowledged(offsets, now)
    lifecycle.entries.remove_batch(offsets, publisher, state)
    slot.held_offsets.difference_update(offsets)
    slot.consumer.outstanding -= count
    lifecycle.freed_consumers.add(slot.consumer)
    lifecycle.counters.acknowledged += count
    lifecycle.forget_attempts(offsets)


def _by_publisher(bookmarks: Sequence[PublisherSequence]) -> Iterator[Sequence[PublisherSequence]]:
    """Yield batches of consecutive bookmarks that have the same publisher."""
    clients = list(map(_CLIENT, bookmarks))
    if bookmarks and clients.count(clients[0]) == len(clients):  # nearly always
        yield bookmarks
        return
    for _, batch in groupby(bookmarks, _CLIENT):
        yield list(batch)


def _by_slot(leases: Sequence[Lease | None]) -> Iterator[tuple[ConsumerSlot | None, int]]:
    """Yield the slot and the number of consecutive leases that have it."""
    first = leases[0]
    if first is not None and leases.count(first) == len(leases):  # nearly always
        yield first.slot, len(leases)
        return
    for slot, group in groupby(None if lease is None else lease.slot for lease in leases):
        yield slot, len(list(group))
