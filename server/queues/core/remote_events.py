"""Events that other instances have recorded of a queue that they share with this one.

Their timestamps are from another clock, so their arrival times are used instead. Events arrive in
the order in which they happened at their instance, but in no order relative to local events:
messages may be leased here that were acknowledged there, or may not have arrived. Events of missing
messages are retained until these arrive. A message that has left the queue there leaves it here.

Source: AMPS User Guide, Replicated Queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from server.queues.core.events import (
    Cancelled,
    Leased,
    PublisherSequence,
    QueueEvent,
    Released,
    Transferred,
)
from server.queues.core.message_state import MessageLifecycle
from server.queues.core.ownership import OwnershipClaim
from server.queues.core.states import FOREIGN, GONE, SENT

INITIAL_PEER_LATENCY_US: Final = 50_000
"""The assumed latency of other instances, in microseconds, before it has been measured."""

_AVERAGE_WEIGHT: Final = 16
"""Weight of the past in a moving average, relative to the latest value."""

_BEFORE_ALL: Final = 0
"""The time of a replay: nothing expires by it, because expirations are events by themselves."""


class RemoteEvents:
    """Applies the events of other instances to the local messages.

    Args:
        lifecycle: the messages.
        may_arrive: returns whether a message that is not here may still arrive.

    Attributes:
        peer_latency_us: how long other instances take from the arrival of a message here to its
            end, in microseconds; a moving average.
    """

    def __init__(
        self, lifecycle: MessageLifecycle, may_arrive: Callable[[PublisherSequence], bool]
    ) -> None:
        self.peer_latency_us = INITIAL_PEER_LATENCY_US
        self._lifecycle: Final = lifecycle
        self._may_arrive: Final = may_arrive
        self._uncertain_bookmarks: list[PublisherSequence] = []

    def apply_event(self, event: QueueEvent, now: int, *, is_replay: bool = False) -> None:
        """Apply an event of another instance; nothing is recorded.

        Args:
            event: the event that the instance has recorded.
            now: its arrival time.
            is_replay: whether it arrived in an earlier run of this instance, and is read from the
                log.
        """
        lifecycle = self._lifecycle
        match event:
            case Released():
                lifecycle.peer_released_barriers.update(
                    offset for _, offset in lifecycle.find_offsets(event.bookmarks)
                )
            case Cancelled():
                for index, offset in lifecycle.find_offsets(event.bookmarks):
                    attempts = lifecycle.get_or_create_attempts(offset)
                    attempts.cancels = max(attempts.cancels, event.counts[index])
                    delay = event.retry_at[index] - event.at
                    if delay > 0 and lifecycle.entries.state(offset) == FOREIGN:
                        lifecycle.delay(offset, now + delay)
            case Leased():
                for _, offset in lifecycle.find_offsets(event.bookmarks):
                    lifecycle.get_or_create_attempts(offset).add_delivery(event.consumer, now)
            case Transferred():
                for bookmark, transfer_count in zip(
                    event.bookmarks, event.transfer_counts, strict=False
                ):
                    self._apply_claim(
                        bookmark,
                        OwnershipClaim(transfer_count, event.owner),
                        now,
                        is_replay=is_replay,
                    )
            case _:  # Acked, Deferred, Expired, Sent
                self._remove_ended(event.bookmarks, now, is_replay=is_replay)

    def finish_recovery(self) -> None:
        """End the replay: drop acknowledgements and claims of messages that cannot arrive."""
        lifecycle = self._lifecycle
        uncertain_bookmarks, self._uncertain_bookmarks = self._uncertain_bookmarks, []
        unreachable = [
            bookmark
            for bookmark in (*uncertain_bookmarks, *lifecycle.ownership.early_claims)
            if not self._may_arrive(bookmark)
        ]
        lifecycle.early_acks.drop_acks(unreachable)
        lifecycle.ownership.drop_early_claims(unreachable)

    def _apply_claim(
        self, bookmark: PublisherSequence, claim: OwnershipClaim, now: int, *, is_replay: bool
    ) -> None:
        may_arrive = is_replay or self._may_arrive(bookmark)
        self._lifecycle.apply_claim(
            bookmark, claim, _BEFORE_ALL if is_replay else now, may_arrive=may_arrive
        )

    def _remove_ended(
        self, bookmarks: Iterable[PublisherSequence], now: int, *, is_replay: bool
    ) -> None:
        """Remove messages that have left the queue elsewhere."""
        lifecycle, entries = self._lifecycle, self._lifecycle.entries
        for bookmark in bookmarks:
            lifecycle.unrecorded_early_acks.pop(bookmark, None)
            offset = entries.find(bookmark)
            state = GONE if offset is None else entries.state(offset)
            if offset is not None and state != GONE:
                if state == SENT:
                    continue
                if state == FOREIGN:
                    self.peer_latency_us += (
                        now - entries.recorded_at(offset) - self.peer_latency_us
                    ) // _AVERAGE_WEIGHT
                if lifecycle.end_lease(offset) is not None:
                    lifecycle.counters.ended_elsewhere += 1
                lifecycle.remove(offset)
                lifecycle.counters.acknowledged += 1
            elif is_replay or self._may_arrive(bookmark):
                lifecycle.early_acks.add((bookmark,), now)
                if is_replay:
                    self._uncertain_bookmarks.append(bookmark)
