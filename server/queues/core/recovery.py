"""Recovery of a queue at startup: its recorded events are replayed, in log order.

Events of other instances are replayed by `elsewhere`. Messages are appended as in normal operation,
by `MessageLifecycle.enqueue`. The replay records nothing.

Source: AMPS User Guide, Startup and Recovery for Queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.queues.core.events import (
    MAX_DELIVERIES,
    Acked,
    Cancelled,
    Deferred,
    Expired,
    Leased,
    QueueEvent,
    Transferred,
)
from server.queues.core.ownership import OwnershipClaim
from server.queues.core.states import GONE

if TYPE_CHECKING:
    from server.queues.core.message_state import MessageLifecycle

_LONG_AGO: Final = 0
"""The time of a replay: nothing expires by it, because expirations are events by themselves."""


def replay(ledger: MessageLifecycle, event: QueueEvent) -> None:
    """Replay an event of this instance."""
    match event:
        case Acked() | Deferred():
            ledger.counters.acknowledged += _end(ledger, event)
        case Cancelled():
            for index, place in ledger.known(event.marks):
                ledger.attempt(place).cancels = event.counts[index]
                ledger.counters.cancelled += 1
                if event.retry_at[index] > event.at:
                    ledger.delay(place, event.retry_at[index])
        case Leased():
            for _, place in ledger.known(event.marks):
                attempts = ledger.attempt(place)
                attempts.deliveries += 1
                attempts.last_consumer = event.consumer
                attempts.last_leased = event.at
        case Transferred():
            for mark, turn in zip(event.marks, event.turns, strict=False):
                ledger.claim(mark, OwnershipClaim(turn, event.owner), _LONG_AGO, may_come=True)
        case Expired():
            ledger.counters.expired += _end(ledger, event)
        case _:  # Sent, Released
            _end(ledger, event)


def finish(ledger: MessageLifecycle, now: int) -> None:
    """End the replay: expire messages that must not be delivered once more."""
    limit = ledger.settings.max_deliveries
    for place, attempts in list(ledger.all_attempts.items()):
        if limit and attempts.deliveries >= limit and not ledger.entries.owner(place):
            ledger.expire(place, (MAX_DELIVERIES,))
    ledger.flush(now)


def _end(ledger: MessageLifecycle, event: QueueEvent) -> int:
    """Remove messages from the queue; return how many were in it.

    A message that is not here may arrive later: if the event says so, and if there are inactive
    messages, because it may have been active when the event happened.
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
