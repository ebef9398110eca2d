"""Sharing of one queue between instances: requests for messages, and their transfer.

Theory of operation. Messages are delivered where they are owned (ownership.py), and that costs
nothing. An instance whose consumers have room, and that owns no messages for them, requests
messages that match from the owners. It requests only messages that it has had for longer than the
owners have lately needed to end one, so it requests nothing while they keep up. An owner transfers
messages that it could deliver but has no consumer for, and records that. It responds in any case;
an instance that gets no response retries, at a limited rate.

An owner that cannot be reached transfers nothing, until an administrator declares that another
instance may act for it (`is_proxy`). The proxy takes messages for its own consumers, or transfers
them to instances that request them. If the owner is up nevertheless, a message may be delivered
twice.

Integration
-----------

`initial_owner` is the value of `MessageDetails.owners` for arriving messages. Pass the events that
another instance has recorded to `Queue.apply_remote_event`, and its peer messages
(`TransferRequest`, `TransferResponse`) to `handle_peer_message`. Once `Queue.assign_messages` has
nothing left to do, and at `next_deadline`, call `process_transfers`. It may cause events to be
recorded; assign messages again after that. It returns peer messages, which may be sent once these
events are on stable storage, and no sooner. Every peer message may get lost.

Source: AMPS User Guide, Replicated Queues; Disaster Recovery and Queue Message Ownership.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from server.queues.core.events import PublisherSequence
from server.queues.core.order import LAST, OFFSET, START
from server.queues.core.ownership import OwnershipClaim
from server.queues.core.peer_messages import (
    MAX_REQUESTED_MESSAGES,
    QueuePeerMessage,
    TransferRequest,
    TransferResponse,
)
from server.queues.core.queue import Queue
from server.queues.core.sources import FilterMatcher, UnmatchedError
from server.queues.core.states import AVAILABLE, BEHIND, FOREIGN, GONE, SENT

TRANSFER_TIMEOUT_US: Final = 1_000_000
"""Microseconds after which a request without a response is retried."""

_MIN_DELAY_US: Final = 10_000
_MAX_DELAY_US: Final = 1_000_000
_NEXT_BATCH_DELAY_US: Final = 20_000
_LOOKUP_BATCH_SIZE: Final = 512
_MATCH_BATCH_SIZE: Final = 64
_EXTRA_MESSAGES: Final = 64
"""Messages named beyond the number requested: the first ones may be leased to consumers."""
_MAX_RECEIVED_REQUESTS: Final = 1024
_MAX_RETRY_TIMES: Final = 16_384

IsReachable = Callable[[str], bool | None]
"""Returns whether an instance can be reached; None if unknown, while it is being determined."""


class OutboundPeerMessage(NamedTuple):
    """A message for another instance.

    Attributes:
        recipient: the name of the instance.
        message: the request or response.
    """

    recipient: str
    message: QueuePeerMessage


@dataclass(slots=True)
class _PendingTransfer:
    """A pending request.

    Attributes:
        deadline: when it times out.
        content_filter: the filter of the consumers that the messages are for.
        owner: the instance that it was sent to.
        requested_count: how many messages were requested.
        expected_count: how many messages may still arrive.
        offsets: the messages named in the request; empty once the response has arrived.
    """

    deadline: int
    content_filter: Hashable | None
    owner: str
    requested_count: int
    expected_count: int
    offsets: list[int]


class OwnershipTransfers:
    """Requests and transfers messages of one shared queue on behalf of this instance.

    Args:
        queue: the queue.
        is_reachable: returns whether another instance can be reached.
        initial_owner: the instance that owns all messages on arrival; None for the instance where
            each was published.

    Attributes:
        is_proxy: whether this instance acts for owners that cannot be reached.
        next_deadline: when to call `process_transfers` although nothing has happened; None for
            never.
    """

    def __init__(
        self, queue: Queue, is_reachable: IsReachable, initial_owner: str | None = None
    ) -> None:
        self.is_proxy = False
        self.next_deadline: int | None = None
        self._queue: Final = queue
        self._is_reachable: Final = is_reachable
        self._initial_owner: Final = initial_owner
        self._received_requests: deque[tuple[str, TransferRequest]] = deque(
            maxlen=_MAX_RECEIVED_REQUESTS
        )
        self._numbers = count(1)
        self._sent_requests: dict[int, _PendingTransfer] = {}
        self._seen_transferred_in = 0
        self._retry_times: dict[int, int] = {}  # offset -> when it may be requested again
        self._position = START
        self._interval = _MIN_DELAY_US
        self._seen_counters: object = None  # the counters after the last complete pass
        self._matcher: FilterMatcher | None = None
        self._filters: set[Hashable] = set()

    def initial_owner(self, publisher: str) -> str:
        """Return the owner of a message on arrival, empty for this instance.

        Args:
            publisher: the instance where it was published.
        """
        owner = publisher if self._initial_owner is None else self._initial_owner
        return "" if owner == self._queue.owner else owner

    # messages of other instances

    def handle_peer_message(self, message: QueuePeerMessage, sender: str, now: int) -> None:
        """Handle a message to this instance, or to an owner that this one may have to act for."""
        if isinstance(message, TransferRequest):
            self._received_requests.append((sender, message))
            return
        pending = self._sent_requests.get(message.number)
        is_short = False
        if pending is not None:
            pending.expected_count = min(message.granted_count, pending.expected_count)
            pending.offsets = []
            is_short = message.granted_count < pending.requested_count
        entries = self._queue.lifecycle.entries
        claims = []
        for bookmark, transfer_count, owner in zip(
            message.bookmarks, message.transfer_counts, message.owners, strict=True
        ):
            claims.append((bookmark, OwnershipClaim(transfer_count, owner)))
            offset = entries.find(bookmark)
            if offset is None or pending is None:
                continue
            if is_short and owner == pending.owner:
                self._retry_times[offset] = now + self._request_delay_us
            else:
                self._retry_times.pop(offset, None)
        self._queue.apply_claims(claims, now)
        self.next_deadline = now

    # responses

    def process_transfers(self, now: int) -> list[OutboundPeerMessage]:
        """Answer requests, and return responses and new requests to be sent.

        Call it when the queue has delivered all that it can.
        """
        if self._queue.is_behind or self._queue.is_unreadable:
            return []
        messages = list(self._answer_requests(now))
        if self._queue.lifecycle.entries.state_counts[FOREIGN]:
            messages += self._request_messages(now)
        else:
            self.next_deadline = None
        return messages

    def _answer_requests(self, now: int) -> Iterator[OutboundPeerMessage]:
        lifecycle = self._queue.lifecycle
        while self._received_requests:
            requester, request = self._received_requests.popleft()
            granted: list[PublisherSequence] = []
            others: list[tuple[PublisherSequence, int, str]] = []
            for bookmark in request.bookmarks:
                offset = lifecycle.entries.find(bookmark)
                if offset is None or lifecycle.entries.state(offset) in (GONE, SENT):
                    continue
                if len(granted) < request.max_transferred and self._may_transfer(offset, requester):
                    granted.append(bookmark)
                else:
                    others.append((bookmark, *lifecycle.ownership_claim(offset)))
            self._queue.transfer(granted, requester, now)
            columns = [list(column) for column in zip(*others, strict=True)]
            yield OutboundPeerMessage(
                requester, TransferResponse(request.number, len(granted), *columns)
            )

    def _may_transfer(self, offset: int, requester: str) -> bool:
        lifecycle = self._queue.lifecycle
        state, owner = lifecycle.entries.state(offset), lifecycle.entries.owner(offset)
        if not owner:
            return state in (AVAILABLE, BEHIND)
        return owner != requester and state in (FOREIGN, BEHIND) and self._is_proxy_for(owner)

    def _is_proxy_for(self, owner: str) -> bool:
        return self.is_proxy and self._is_reachable(owner) is False

    # requests

    @property
    def _request_delay_us(self) -> int:
        return min(max(self._queue.remote_events.peer_latency_us, _MIN_DELAY_US), _MAX_DELAY_US)

    def _request_messages(self, now: int) -> list[OutboundPeerMessage]:
        self._drop_finished_requests(now)
        demand = self._demand_by_filter()
        if not demand:
            # Consumers with room again trigger a delivery; otherwise, wait for a request timeout.
            self.next_deadline = min(
                (request.deadline for request in self._sent_requests.values()), default=None
            )
            return []
        if self.next_deadline is not None and now < self.next_deadline:
            if self._activity_counters() != self._seen_counters:
                self.next_deadline = min(self.next_deadline, now + self._request_delay_us)
            return []
        messages: list[OutboundPeerMessage] = []
        selected = self._select_messages(demand, now)
        for (owner, content_filter), offsets in selected.items():
            bookmarks = self._queue.lifecycle.entries.bookmarks(offsets)
            needed_count = min(demand[content_filter], len(bookmarks))
            if self._is_proxy_for(owner):
                self._queue.transfer(bookmarks[:needed_count], self._queue.owner, now)
                continue
            number = next(self._numbers)
            self._sent_requests[number] = _PendingTransfer(
                now + TRANSFER_TIMEOUT_US,
                content_filter,
                owner,
                needed_count,
                needed_count,
                offsets,
            )
            self._retry_times.update(dict.fromkeys(offsets, now + TRANSFER_TIMEOUT_US))
            messages.append(
                OutboundPeerMessage(owner, TransferRequest(number, bookmarks, needed_count))
            )
        return messages

    def _drop_finished_requests(self, now: int) -> None:
        """Drop requests that are fulfilled or have timed out."""
        arrived_count = self._queue.counters.transferred_in - self._seen_transferred_in
        self._seen_transferred_in += arrived_count
        for pending in self._sent_requests.values():
            taken = min(arrived_count, pending.expected_count)
            pending.expected_count -= taken
            arrived_count -= taken
        finished = [
            number
            for number, pending in self._sent_requests.items()
            if pending.deadline <= now or not pending.expected_count
        ]
        for number in finished:
            pending = self._sent_requests.pop(number)
            if not pending.expected_count:
                # The messages arrived before the response: the owner may have the rest for us, too.
                for offset in pending.offsets:
                    self._retry_times.pop(offset, None)
        if len(self._retry_times) > _MAX_RETRY_TIMES:
            self._retry_times = {
                offset: retry_at for offset, retry_at in self._retry_times.items() if retry_at > now
            }

    def _demand_by_filter(self) -> dict[Hashable | None, int]:
        """Return the number of messages to request by filter, beyond those already requested."""
        demand = self._queue.dispatch.free_backlog_by_filter()
        for pending in self._sent_requests.values():
            if pending.content_filter in demand:
                demand[pending.content_filter] -= pending.expected_count
        capacity = self._queue.capacity
        return {
            content_filter: min(needed_count, capacity)
            for content_filter, needed_count in demand.items()
            if needed_count > 0 and capacity > 0
        }

    def _select_messages(
        self, demand: dict[Hashable | None, int], now: int
    ) -> dict[tuple[str, Hashable | None], list[int]]:
        """Choose messages to request, by owner and filter, and schedule the next pass."""
        remaining_demand = {
            demanded_filter: min(needed_count + _EXTRA_MESSAGES, MAX_REQUESTED_MESSAGES)
            for demanded_filter, needed_count in demand.items()
        }
        selected: dict[tuple[str, Hashable | None], list[int]] = {}
        entries = self._queue.lifecycle.entries
        last = (
            LAST if self._queue.settings.prioritized else self._queue.dispatch.last_deliverable_rank
        )
        lookup_limit = _LOOKUP_BATCH_SIZE
        while remaining_demand and lookup_limit > 0:
            ranks, reached = self._queue.lifecycle.foreign_order.next_ranks(
                self._position, _MATCH_BATCH_SIZE, last
            )
            lookup_limit -= _MATCH_BATCH_SIZE
            offsets = [rank & OFFSET for rank in ranks]
            ready = [offset for offset in offsets if self._is_ready(offset, now)]
            try:
                matches = self._match(ready, remaining_demand)
            except UnmatchedError:
                self.next_deadline = now + TRANSFER_TIMEOUT_US
                return selected
            for offset, content_filter in matches:
                remaining = remaining_demand.get(content_filter, 0)
                if remaining:
                    selected.setdefault((entries.owner(offset), content_filter), []).append(offset)
                    remaining_demand[content_filter] = remaining - 1
            self._position = reached
            if reached >= last:
                break
        else:
            self.next_deadline = now + (
                _NEXT_BATCH_DELAY_US if remaining_demand else self._request_delay_us
            )
            if not remaining_demand:
                self._position = START
            return selected
        self._position = START
        self._schedule_next_pass(now, has_selected=bool(selected))
        return selected

    def _is_ready(self, offset: int, now: int) -> bool:
        """Return whether a message may be requested now."""
        retry_at = self._retry_times.get(offset)
        if retry_at is not None and retry_at > now:
            return False
        entries = self._queue.lifecycle.entries
        if now - entries.recorded_at(offset) < self._request_delay_us:
            return False
        return self.is_proxy or self._is_reachable(entries.owner(offset)) is not False

    def _schedule_next_pass(self, now: int, *, has_selected: bool) -> None:
        """Schedule the next pass after a complete one; back off while nothing happens."""
        counters_seen = self._activity_counters()
        if has_selected or counters_seen != self._seen_counters:
            self._interval = self._request_delay_us
        else:
            self._interval = min(2 * self._interval, _MAX_DELAY_US)
        self._seen_counters = counters_seen
        self.next_deadline = now + self._interval

    def _activity_counters(self) -> object:
        """Return counters that change when there may be other messages to request."""
        counters = self._queue.counters
        return counters.enqueued, counters.transferred_in, counters.transferred_out

    def _match(
        self, offsets: list[int], remaining_demand: dict[Hashable | None, int]
    ) -> list[tuple[int, Hashable | None]]:
        """Return a matching filter for each message, without messages that match none.

        Raises:
            UnmatchedError: messages cannot be matched now.
        """
        if not offsets:
            return []
        if remaining_demand.get(None):
            return [(offset, None) for offset in offsets]
        filters = {
            content_filter for content_filter in remaining_demand if content_filter is not None
        }
        if self._matcher is None:
            self._matcher = self._queue.dispatch.new_matcher()
        for content_filter in self._filters - filters:
            self._matcher.discard(content_filter)
        for content_filter in filters - self._filters:
            self._matcher.add(content_filter)
        self._filters = filters
        txids = self._queue.lifecycle.entries.txids(offsets)
        matches = self._matcher.match(txids)
        return [
            (offset, next(iter(matched_filters)))
            for offset, matched_filters in zip(offsets, matches, strict=True)
            if matched_filters
        ]
