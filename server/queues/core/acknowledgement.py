"""Acknowledgements: messages leave the queue, are returned to it, or are expired.

Source: AMPS User Guide, Acknowledging Messages. Our extensions: delays of cancelled messages,
extension of leases.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from server.queues.core.bulk_ack import acknowledge_leased
from server.queues.core.consumers import ConsumerSlot
from server.queues.core.events import FORCED_EXPIRE, Acked, Cancelled, Deferred, PublisherSequence
from server.queues.core.message_state import MessageLifecycle
from server.queues.core.states import BARRIER, GONE, LEASED, SENT


class AckOutcome(Enum):
    """The outcome that an acknowledgement reports for a message."""

    DONE = "done"
    CANCEL = "cancel"
    EXPIRE = "expire"


@dataclass(slots=True)
class AckResult:
    """The result of an acknowledgement.

    Attributes:
        affected_count: number of messages that it took effect on, deferred ones not included.
        deferred_bookmarks: bookmarks of messages that have not arrived; retained until they do.
        refusals: bookmarks that it had no effect on, each with the reason as text.
    """

    affected_count: int = 0
    deferred_bookmarks: list[PublisherSequence] = field(default_factory=list)
    refusals: list[tuple[PublisherSequence, str]] = field(default_factory=list)


HAS_LEFT: Final = "the message has left the queue"
NOT_LEASED: Final = "the message is not leased"
LEASED_ELSEWHERE: Final = "the message is leased to another client"
IS_BARRIER: Final = "the message is a barrier, which needs no acknowledgement"
NOT_IN_QUEUE: Final = "the message is not in the queue"


class AckProcessor:
    """Applies acknowledgements to the messages of one queue.

    Args:
        lifecycle: the messages of the queue.
        may_arrive: returns whether a message that is not here may still arrive.
        enqueue_received: see `Queue`.
    """

    def __init__(
        self,
        lifecycle: MessageLifecycle,
        may_arrive: Callable[[PublisherSequence], bool],
        enqueue_received: Callable[[], None],
    ) -> None:
        self._lifecycle: Final = lifecycle
        self._settings: Final = lifecycle.settings
        self._may_arrive: Final = may_arrive
        self._enqueue_received: Final = enqueue_received

    def acknowledge(
        self,
        bookmarks: Sequence[PublisherSequence],
        now: int,
        client: Hashable = None,
        outcome: AckOutcome = AckOutcome.DONE,
        delay: int | None = None,
    ) -> AckResult:
        """Acknowledge messages by their bookmarks.

        Args:
            bookmarks: the bookmarks.
            now: the current time.
            client: the client that acknowledges; None for the server itself, which is unrestricted.
            outcome: whether the messages are done, cancelled or expired.
            delay: microseconds before cancelled messages are available again; None for the delay
                that the queue is configured with.
        """
        self._enqueue_received()
        result = AckResult()
        entries = self._lifecycle.entries
        offsets: list[int] = []
        if not self._settings.keyed and (outcome is AckOutcome.DONE or self._settings.at_most_once):
            holder = client if self._settings.strict else None
            acknowledged, bookmarks = acknowledge_leased(self._lifecycle, bookmarks, holder, now)
            result.affected_count = len(acknowledged)
            if acknowledged and not self._settings.at_most_once:
                self._lifecycle.events.append(Acked(now, acknowledged))
        for bookmark in bookmarks:
            offset = entries.find(bookmark)
            if offset is not None and entries.state(offset) != GONE:
                offsets.append(offset)
            elif outcome is AckOutcome.DONE and self._may_arrive(bookmark):
                result.deferred_bookmarks.append(bookmark)
            else:
                result.refusals.append(
                    (bookmark, HAS_LEFT if entries.has_arrived(bookmark) else NOT_IN_QUEUE)
                )
        if result.deferred_bookmarks:
            self._lifecycle.early_acks.add(result.deferred_bookmarks, now)
            self._lifecycle.events.append(Deferred(now, result.deferred_bookmarks))
        if offsets:
            self._acknowledge(offsets, now, client, outcome, delay, result)
        self._lifecycle.flush(now)
        return result

    def acknowledge_offsets(
        self,
        offsets: Iterable[int],
        now: int,
        client: Hashable = None,
        outcome: AckOutcome = AckOutcome.DONE,
        delay: int | None = None,
    ) -> AckResult:
        """Acknowledge messages that were found by key or filter. See `acknowledge`.

        Call it in batches for many messages: each call appends one event to the journal.
        """
        result = AckResult()
        entries = self._lifecycle.entries
        present = [offset for offset in offsets if entries.state(offset) not in (GONE, SENT)]
        self._acknowledge(present, now, client, outcome, delay, result)
        self._lifecycle.flush(now)
        return result

    def refusal_reason(self, offset: int, client: Hashable) -> str | None:
        """Return why a client cannot acknowledge a message of the queue; None if it can."""
        state = self._lifecycle.entries.state(offset)
        if state in (GONE, SENT):
            return HAS_LEFT
        return self._refusal_reason(offset, state, client, AckOutcome.DONE)

    def _acknowledge(
        self,
        offsets: Iterable[int],
        now: int,
        client: Hashable,
        outcome: AckOutcome,
        delay: int | None,
        result: AckResult,
    ) -> None:
        lifecycle = self._lifecycle
        entries = lifecycle.entries
        if self._settings.at_most_once:
            outcome = AckOutcome.DONE
        acknowledged: list[PublisherSequence] = []
        cancelled: list[tuple[PublisherSequence, int, int]] = []
        for offset in dict.fromkeys(offsets):
            state, bookmark = entries.state(offset), entries.bookmark(offset)
            if state == GONE:  # it expired when the one before it left
                continue
            reason = self._refusal_reason(offset, state, client, outcome)
            if reason is not None:
                result.refusals.append((bookmark, reason))
                continue
            result.affected_count += 1
            if outcome is AckOutcome.EXPIRE:
                self._expire(offset)
            elif outcome is AckOutcome.CANCEL:
                cancels, retry_at, is_kept = self._cancel(offset, now, delay)
                if is_kept:
                    cancelled.append((bookmark, cancels, retry_at))
            else:
                self._remove_acknowledged(offset)
                if state != SENT:
                    acknowledged.append(bookmark)
        if acknowledged:
            lifecycle.events.append(Acked(now, acknowledged))
        if cancelled:
            lifecycle.counters.cancelled += len(cancelled)
            bookmarks, counts, retry_times = (
                list(column) for column in zip(*cancelled, strict=True)
            )
            lifecycle.events.append(Cancelled(now, bookmarks, counts, retry_times))

    def _refusal_reason(
        self, offset: int, state: int, client: Hashable, outcome: AckOutcome
    ) -> str | None:
        """Return why an acknowledgement has no effect on a message; None if it has one."""
        if state == BARRIER:
            return IS_BARRIER
        if self._settings.strict and state == LEASED and client is not None:
            lease = self._lifecycle.leases.by_offset[offset]
            if lease.slot.consumer.client != client:
                return LEASED_ELSEWHERE
        if outcome is AckOutcome.CANCEL and state != LEASED:
            return NOT_LEASED
        return None

    def _remove_acknowledged(self, offset: int) -> None:
        """Remove an acknowledged message."""
        self._lifecycle.end_lease(offset)
        self._lifecycle.remove(offset)
        self._lifecycle.counters.acknowledged += 1

    def _expire(self, offset: int) -> None:
        """Expire a message at the request of a client."""
        lease = self._lifecycle.end_lease(offset)
        if lease is not None:
            attempts = self._lifecycle.get_or_create_attempts(offset)
            attempts.deliveries += 1
            attempts.last_consumer = lease.slot.consumer.name
        self._lifecycle.expire(offset, (FORCED_EXPIRE,))

    def _cancel(self, offset: int, now: int, delay: int | None) -> tuple[int, int, bool]:
        """Return a leased message to the queue.

        Returns:
            The number of its cancels, the time from which it may be delivered again, and whether
            it is still in the queue.
        """
        lifecycle = self._lifecycle
        lease = lifecycle.leases.by_offset[offset]
        lifecycle.end_lease(offset)
        cancels = lifecycle.get_or_create_attempts(offset).cancels + 1
        retry_at = now + (self._settings.retry_after(cancels) if delay is None else delay)
        return cancels, retry_at, lifecycle.return_message(offset, lease, now, retry_at)

    def extend_leases(
        self, bookmarks: Iterable[PublisherSequence], until: int, now: int, client: Hashable = None
    ) -> AckResult:
        """Change the end of leases.

        Args:
            bookmarks: bookmarks of leased messages.
            until: the new end, in microseconds since 1970.
            now: the current time.
            client: the requesting client; it can extend only its own leases. None for the server.
        """
        result = AckResult()
        lifecycle = self._lifecycle
        extended: dict[ConsumerSlot, list[int]] = {}
        for bookmark in bookmarks:
            offset = lifecycle.entries.find(bookmark)
            lease = None if offset is None else lifecycle.leases.by_offset.get(offset)
            if offset is None or lease is None or lease.expires_at is None:
                result.refusals.append((bookmark, NOT_LEASED))
            elif client is not None and lease.slot.consumer.client != client:
                result.refusals.append((bookmark, LEASED_ELSEWHERE))
            else:
                extended.setdefault(lease.slot, []).append(offset)
        for slot, offsets in extended.items():
            lifecycle.leases.renew(slot, now, until, offsets)
            result.affected_count += len(offsets)
        return result
