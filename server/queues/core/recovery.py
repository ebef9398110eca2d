"""Recovery of a queue at startup: its recorded events are replayed, in log order.

Events of other instances are replayed by `RemoteEvents`. Messages are appended as in normal
operation, by `MessageLifecycle.enqueue`. The replay records nothing.

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

_BEFORE_ALL: Final = 0
"""The time of a replay: nothing expires by it, because expirations are events by themselves."""


def replay(lifecycle: MessageLifecycle, event: QueueEvent) -> None:
    """Replay an event of this instance."""
    match event:
        case Acked() | Deferred():
            lifecycle.counters.acknowledged += _end(lifecycle, event)
        case Cancelled():
            for index, offset in lifecycle.find_offsets(event.bookmarks):
                lifecycle.get_or_create_attempts(offset).cancels = event.counts[index]
                lifecycle.counters.cancelled += 1
                if event.retry_at[index] > event.at:
                    lifecycle.delay(offset, event.retry_at[index])
        case Leased():
            for _, offset in lifecycle.find_offsets(event.bookmarks):
                lifecycle.get_or_create_attempts(offset).add_delivery(event.consumer, event.at)
        case Transferred():
            for bookmark, transfer_count in zip(
                event.bookmarks, event.transfer_counts, strict=False
            ):
                lifecycle.apply_claim(
                    bookmark,
                    OwnershipClaim(transfer_count, event.owner),
                    _BEFORE_ALL,
                    may_arrive=True,
                )
        case Expired():
            lifecycle.counters.expired += _end(lifecycle, event)
        case _:  # Sent, Released
            _end(lifecycle, event)


def finish(lifecycle: MessageLifecycle, now: int) -> None:
    """End the replay: expire messages that must not be delivered once more."""
    limit = lifecycle.settings.max_deliveries
    for offset, attempts in list(lifecycle.all_attempts.items()):
        if limit and attempts.deliveries >= limit and not lifecycle.entries.owner(offset):
            lifecycle.expire(offset, (MAX_DELIVERIES,))
    lifecycle.flush(now)


def _end(lifecycle: MessageLifecycle, event: QueueEvent) -> int:
    """Remove messages from the queue; return how many were in it.

    A message that is not here may arrive later: if the event is `Deferred`, and if there are
    inactive messages, because it may have been active when the event happened.
    """
    may_arrive = isinstance(event, Deferred) or lifecycle.inactive_count > 0
    count = 0
    for bookmark in event.bookmarks:
        lifecycle.unrecorded_early_acks.pop(bookmark, None)
        offset = lifecycle.entries.find(bookmark)
        if offset is not None and lifecycle.entries.state(offset) != GONE:
            lifecycle.remove(offset)
            count += 1
        elif may_arrive:
            lifecycle.early_acks.add((bookmark,), event.at)
    return count
