"""What the record says at a start: the events of a queue happen again, in the order of the log.

Messages come as they came before, by `Ledger.enqueue`. Nothing is recorded of what happens again.

Source: AMPS User Guide, Startup and Recovery for Queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from server.queues.events import (
    MAX_DELIVERIES,
    Acked,
    Cancelled,
    Deferred,
    Event,
    Expired,
    Leased,
    Mark,
    Transferred,
)
from server.queues.states import GONE

if TYPE_CHECKING:
    from server.queues.ledger import Ledger

_LONG_AGO: Final = 0
"""The moment of a replay: nothing expires by it, because expirations are events by themselves."""


def replay(ledger: Ledger, event: Event, local_owner: str) -> None:
    """Let an event of the record happen again.

    Args:
        ledger: the messages of the queue.
        event: the event.
        local_owner: the name of this instance, which `Transferred` may name.
    """
    match event:
        case Acked() | Deferred():
            ledger.counters.acknowledged += _end(ledger, event)
        case Cancelled():
            for index, place in _known(ledger, event.marks):
                ledger.attempt(place).cancels = event.counts[index]
                ledger.counters.cancelled += 1
                if event.retry_at[index] > event.at:
                    ledger.delay(place, event.retry_at[index])
        case Leased():
            for _, place in _known(ledger, event.marks):
                attempts = ledger.attempt(place)
                attempts.deliveries += 1
                attempts.last_consumer = event.consumer
                attempts.last_leased = event.at
        case Transferred():
            owner = "" if event.owner == local_owner else event.owner
            for _, place in _known(ledger, event.marks):
                ledger.transfer(place, owner, _LONG_AGO)
        case Expired():
            ledger.counters.expired += _end(ledger, event)
        case _:  # Sent, Released
            _end(ledger, event)


def finish(ledger: Ledger, now: int) -> None:
    """The record has been replayed: remove what must not be delivered once more."""
    limit = ledger.settings.max_deliveries
    for place, attempts in list(ledger.all_attempts.items()):
        if limit and attempts.deliveries >= limit:
            ledger.expire(place, (MAX_DELIVERIES,))
    ledger.flush(now)


def _end(ledger: Ledger, event: Event) -> int:
    """Let messages leave the queue; returns how many were in it.

    One that is not here comes later: if the event says so, and if there are inactive messages,
    which may have been active when it happened.
    """
    is_to_come = isinstance(event, Deferred) or ledger.inactive > 0
    count = 0
    for mark in event.marks:
        ledger.taken.pop(mark, None)
        place = ledger.entries.find(mark)
        if place is not None and ledger.entries.state(place) != GONE:
            ledger.remove(place)
            count += 1
        elif is_to_come:
            ledger.deferred.add((mark,), event.at)
    return count


def _known(ledger: Ledger, marks: Iterable[Mark]) -> Iterable[tuple[int, int]]:
    """The messages of an event that are in the queue: their positions in it, and their places."""
    for index, mark in enumerate(marks):
        place = ledger.entries.find(mark)
        if place is not None and ledger.entries.state(place) != GONE:
            yield index, place
