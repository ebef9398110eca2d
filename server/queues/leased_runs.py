"""Many messages that consumers have are acknowledged at once.

Nearly all acknowledgements are of messages of one publisher that one consumer has, which follow one
another; what can be done for all of them is done so.

Source: AMPS User Guide, Acknowledging Messages.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from server.queues.consumers import Seat
from server.queues.events import Mark
from server.queues.leases import Lease
from server.queues.ledger import Ledger
from server.queues.marks import Publisher, repeated
from server.queues.states import LEASED, SENT

_CLIENT: Final = itemgetter(0)
_SEQUENCE: Final = itemgetter(1)
"""The publisher of a bookmark, and its number for the message."""


def acknowledge_leased(
    ledger: Ledger, marks: Sequence[Mark], holder: Hashable, now: int
) -> tuple[list[Mark], list[Mark]]:
    """Acknowledge messages that somebody has and that nothing else is known of.

    Args:
        ledger: what becomes of the messages of the queue.
        marks: the bookmarks.
        holder: the client that must have them, None for any.
        now: the moment.

    Returns:
        What has left the queue, and what has to go the long way.
    """
    done: list[Mark] = []
    others: list[Mark] = []
    for alike in _by_publisher(marks):
        publisher = ledger.entries.publisher(alike[0][0])
        if publisher is None:
            others += alike
        else:
            others += _of_one_publisher(ledger, publisher, alike, holder, now, done)
    return done, others


def _of_one_publisher(
    ledger: Ledger,
    publisher: Publisher,
    marks: Sequence[Mark],
    holder: Hashable,
    now: int,
    done: list[Mark],
) -> list[Mark]:
    """The same for messages of one publisher; adds to what has left, and gives the others."""
    others: list[Mark] = []
    sequences = list(map(_SEQUENCE, marks))
    if len(set(sequences)) < len(sequences):
        others += repeated(marks)
        marks = list(dict.fromkeys(marks))
        sequences = list(map(_SEQUENCE, marks))
    places = publisher.find_all(sequences)
    leases = ledger.leases.of(places)
    start = 0
    for seat, count in _seats(leases):
        stop = start + count
        if seat is None or (holder is not None and seat.consumer.client != holder):
            others += marks[start:stop]
        else:
            _finish(ledger, seat, publisher, places[start:stop], now)
            done += marks[start:stop]
        start = stop
    return others


def _finish(
    ledger: Ledger, seat: Seat, publisher: Publisher, places: Sequence[int], now: int
) -> None:
    """Messages of one publisher that one consumer has leave the queue."""
    count = len(places)
    state = SENT if ledger.settings.at_most_once else LEASED
    ledger.leases.end_all(places, now)
    ledger.entries.remove_all(places, publisher, state)
    seat.held.difference_update(places)
    seat.consumer.outstanding -= count
    ledger.freed.add(seat.consumer)
    ledger.counters.acknowledged += count
    ledger.forget_attempts(places)


def _by_publisher(marks: Sequence[Mark]) -> Iterator[Sequence[Mark]]:
    """Bookmarks of one publisher that follow one another, together."""
    clients = list(map(_CLIENT, marks))
    if marks and clients.count(clients[0]) == len(clients):  # nearly always
        yield marks
        return
    for _, alike in groupby(marks, _CLIENT):
        yield list(alike)


def _seats(leases: Sequence[Lease | None]) -> Iterator[tuple[Seat | None, int]]:
    """Whose some leases are, one after the other, and how many follow one another that are."""
    one = leases[0]
    if one is not None and leases.count(one) == len(leases):  # nearly always
        yield one.seat, len(leases)
        return
    for seat, alike in groupby(None if lease is None else lease.seat for lease in leases):
        yield seat, len(list(alike))
