"""Batch acknowledgement of leased messages.

Nearly all acknowledgements are of consecutive messages of one publisher that one consumer has, so
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
    lifecycle: MessageLifecycle, marks: Sequence[PublisherSequence], holder: Hashable, now: int
) -> tuple[list[PublisherSequence], list[PublisherSequence]]:
    """Acknowledge messages that consumers hold and that need no other processing.

    Args:
        lifecycle: the messages of the queue.
        marks: the bookmarks.
        holder: the client that must have them, None for any.
        now: the current time.

    Returns:
        The bookmarks of messages that have left the queue, and those that need the slow path.
    """
    done: list[PublisherSequence] = []
    others: list[PublisherSequence] = []
    for alike in _by_publisher(marks):
        publisher = lifecycle.entries.find_publisher(alike[0][0])
        if publisher is None:
            others += alike
        else:
            others += _of_one_publisher(lifecycle, publisher, alike, holder, now, done)
    return done, others


def _of_one_publisher(
    lifecycle: MessageLifecycle,
    publisher: PublisherIndex,
    marks: Sequence[PublisherSequence],
    holder: Hashable,
    now: int,
    done: list[PublisherSequence],
) -> list[PublisherSequence]:
    """Acknowledge messages of one publisher; append to `done`, return the other bookmarks."""
    others: list[PublisherSequence] = []
    sequences = list(map(_SEQUENCE, marks))
    if len(set(sequences)) < len(sequences):
        others += duplicate_bookmarks(marks)
        marks = list(dict.fromkeys(marks))
        sequences = list(map(_SEQUENCE, marks))
    places = publisher.find_all(sequences)
    leases = lifecycle.leases.find_leases(places)
    start = 0
    for slot, count in _seats(leases):
        stop = start + count
        if slot is None or (holder is not None and slot.consumer.client != holder):
            others += marks[start:stop]
        else:
            _finish(lifecycle, slot, publisher, places[start:stop], now)
            done += marks[start:stop]
        start = stop
    return others


def _finish(
    lifecycle: MessageLifecycle,
    slot: ConsumerSlot,
    publisher: PublisherIndex,
    places: Sequence[int],
    now: int,
) -> None:
    """Remove messages of one publisher that one consumer has."""
    count = len(places)
    state = SENT if lifecycle.settings.at_most_once else LEASED
    lifecycle.leases.end_acknowledged(places, now)
    lifecycle.entries.remove_batch(places, publisher, state)
    slot.held_places.difference_update(places)
    slot.consumer.outstanding -= count
    lifecycle.freed_consumers.add(slot.consumer)
    lifecycle.counters.acknowledged += count
    lifecycle.forget_attempts(places)


def _by_publisher(marks: Sequence[PublisherSequence]) -> Iterator[Sequence[PublisherSequence]]:
    """Yield runs of bookmarks that have the same publisher."""
    clients = list(map(_CLIENT, marks))
    if marks and clients.count(clients[0]) == len(clients):  # nearly always
        yield marks
        return
    for _, alike in groupby(marks, _CLIENT):
        yield list(alike)


def _seats(leases: Sequence[Lease | None]) -> Iterator[tuple[ConsumerSlot | None, int]]:
    """Yield runs of leases that have the same slot: the slot, and the length of the run."""
    one = leases[0]
    if one is not None and leases.count(one) == len(leases):  # nearly always
        yield one.slot, len(leases)
        return
    for slot, alike in groupby(None if lease is None else lease.slot for lease in leases):
        yield slot, len(list(alike))
