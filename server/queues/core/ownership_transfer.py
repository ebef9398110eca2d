"""Sharing of one queue between instances: requests for messages, and their transfer.

Theory of operation. Messages are delivered where they are owned (ownership.py), and that costs
nothing. An instance whose consumers have room, and that owns no messages for them, asks the owners
for messages that match. It asks only for messages that have been here for longer than the owners
have lately needed to end one, so it does not ask while they keep up. An owner transfers messages
that it could deliver but has no consumer for, and records that. It answers in any case; an instance
that gets no answer retries, at a limited rate.

An owner that cannot be reached transfers nothing, until an administrator declares that another
instance may act for it (`proxied`). The proxy takes messages that its own consumers want, or
transfers them to instances that ask. If the owner is up nevertheless, a message may be delivered
twice.

Integration
-----------

`initial_owner` is the value of `MessageDetails.owners` for arriving messages. Pass the events that
another instance has recorded to `Queue.apply_remote_event`, and its words (`TransferRequest`,
`TransferResponse`) to `hear`. Once `Queue.deliver` has nothing left to do, and at `next_moment`,
call `step`. It may cause events to be recorded; deliver again after that. It returns words, which
may be sent once these events are on stable storage, and no sooner. Every word may get lost.

Source: AMPS User Guide, Replicated Queues; Disaster Recovery and Queue Message Ownership.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from server.queues.core.events import PublisherSequence
from server.queues.core.order import LAST, PLACE, START
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
"""Microseconds after which a request without an answer is retried."""

_MIN_PACE: Final = 10_000
_MAX_PACE: Final = 1_000_000
_NEXT_LOOK: Final = 20_000
_LOOKUP_BATCH_SIZE: Final = 512
_CHUNK: Final = 64
_SPARE: Final = 64
"""Messages named beyond the number wanted: the first ones may be leased to consumers."""
_MAX_QUESTIONS: Final = 1024
_MAX_REMEMBERED: Final = 16_384

IsReachable = Callable[[str], bool | None]
"""Tells whether an instance can be reached; None if unknown, while it is being determined."""


class OutboundPeerMessage(NamedTuple):
    """A word for another instance.

    Attributes:
        recipient: the name of the instance.
        message: the request or answer.
    """

    recipient: str
    message: QueuePeerMessage


@dataclass(slots=True)
class _PendingTransfer:
    """A pending request.

    Attributes:
        deadline: its timeout.
        content_filter: the filter that the messages are wanted for.
        owner: the instance asked.
        requested_count: how many messages were wanted.
        expected_count: how many messages may still arrive.
        places: the messages named in the request; empty once the answer has arrived.
    """

    deadline: int
    content_filter: Hashable | None
    owner: str
    requested_count: int
    expected_count: int
    places: list[int]


class OwnershipTransfers:
    """Requests and transfers messages of one shared queue on behalf of this instance.

    Args:
        queue: the queue.
        is_reachable: tells whether another instance can be reached.
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
        self._received_requests: deque[tuple[str, TransferRequest]] = deque(maxlen=_MAX_QUESTIONS)
        self._numbers = count(1)
        self._sent_requests: dict[int, _PendingTransfer] = {}
        self._seen_transferred_in = 0
        self._retry_times: dict[int, int] = {}  # place -> when it may be requested again
        self._position = START
        self._interval = _MIN_PACE
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

    # Words of other instances.

    def handle_peer_message(self, word: QueuePeerMessage, sender: str, now: int) -> None:
        """Handle a word to this instance, or to an owner that this one may have to act for."""
        if isinstance(word, TransferRequest):
            self._received_requests.append((sender, word))
            return
        waiting = self._sent_requests.get(word.number)
        is_short = False
        if waiting is not None:
            waiting.expected_count = min(word.granted_count, waiting.expected_count)
            waiting.places = []
            is_short = word.granted_count < waiting.requested_count
        entries = self._queue.lifecycle.entries
        claims = []
        for mark, turn, owner in zip(
            word.bookmarks, word.transfer_counts, word.owners, strict=True
        ):
            claims.append((mark, OwnershipClaim(turn, owner)))
            place = entries.find(mark)
            if place is None or waiting is None:
                continue
            if is_short and owner == waiting.owner:
                self._retry_times[place] = now + self._request_delay_us
            else:
                self._retry_times.pop(place, None)
        self._queue.apply_claims(claims, now)
        self.next_deadline = now

    # Answers.

    def process_transfers(self, now: int) -> list[OutboundPeerMessage]:
        """Answer and send requests; call it when the queue has delivered all that it can."""
        if self._queue.is_behind or self._queue.is_stalled:
            return []
        said = list(self._answer_requests(now))
        if self._queue.lifecycle.entries.state_counts[FOREIGN]:
            said += self._request_messages(now)
        else:
            self.next_deadline = None
        return said

    def _answer_requests(self, now: int) -> Iterator[OutboundPeerMessage]:
        lifecycle = self._queue.lifecycle
        while self._received_requests:
            asker, ask = self._received_requests.popleft()
            granted: list[PublisherSequence] = []
            others: list[tuple[PublisherSequence, int, str]] = []
            for mark in ask.bookmarks:
                place = lifecycle.entries.find(mark)
                if place is None or lifecycle.entries.state(place) in (GONE, SENT):
                    continue
                if len(granted) < ask.max_transferred and self._may_transfer(place, asker):
                    granted.append(mark)
                else:
                    others.append((mark, *lifecycle.ownership_claim(place)))
            self._queue.transfer(granted, asker, now)
            columns = [list(column) for column in zip(*others, strict=True)]
            yield OutboundPeerMessage(asker, TransferResponse(ask.number, len(granted), *columns))

    def _may_transfer(self, place: int, asker: str) -> bool:
        lifecycle = self._queue.lifecycle
        state, owner = lifecycle.entries.state(place), lifecycle.entries.owner(place)
        if not owner:
            return state in (AVAILABLE, BEHIND)
        return owner != asker and state in (FOREIGN, BEHIND) and self._is_proxy_for(owner)

    def _is_proxy_for(self, owner: str) -> bool:
        return self.is_proxy and self._is_reachable(owner) is False

    # Requests.

    @property
    def _request_delay_us(self) -> int:
        return min(max(self._queue.remote_events.peer_latency_us, _MIN_PACE), _MAX_PACE)

    def _request_messages(self, now: int) -> list[OutboundPeerMessage]:
        self._drop_finished_requests(now)
        needs = self._demand_by_filter()
        if not needs:
            # Consumers with room again trigger a delivery; otherwise, wait for a request timeout.
            self.next_deadline = min(
                (one.deadline for one in self._sent_requests.values()), default=None
            )
            return []
        if self.next_deadline is not None and now < self.next_deadline:
            if self._activity_counters() != self._seen_counters:
                self.next_deadline = min(self.next_deadline, now + self._request_delay_us)
            return []
        said: list[OutboundPeerMessage] = []
        chosen = self._select_messages(needs, now)
        for (owner, content_filter), places in chosen.items():
            marks = self._queue.lifecycle.entries.bookmarks(places)
            need = min(needs[content_filter], len(marks))
            if self._is_proxy_for(owner):
                self._queue.transfer(marks[:need], self._queue.owner, now)
                continue
            number = next(self._numbers)
            self._sent_requests[number] = _PendingTransfer(
                now + TRANSFER_TIMEOUT_US, content_filter, owner, need, need, places
            )
            self._retry_times.update(dict.fromkeys(places, now + TRANSFER_TIMEOUT_US))
            said.append(OutboundPeerMessage(owner, TransferRequest(number, marks, need)))
        return said

    def _drop_finished_requests(self, now: int) -> None:
        """Forget requests that are fulfilled or have timed out."""
        came = self._queue.counters.transferred_in - self._seen_transferred_in
        self._seen_transferred_in += came
        for waiting in self._sent_requests.values():
            taken = min(came, waiting.expected_count)
            waiting.expected_count -= taken
            came -= taken
        over = [
            number
            for number, waiting in self._sent_requests.items()
            if waiting.deadline <= now or not waiting.expected_count
        ]
        for number in over:
            waiting = self._sent_requests.pop(number)
            if not waiting.expected_count:
                # The messages arrived before the answer: the owner may have the rest for us, too.
                for place in waiting.places:
                    self._retry_times.pop(place, None)
        if len(self._retry_times) > _MAX_REMEMBERED:
            self._retry_times = {
                place: moment for place, moment in self._retry_times.items() if moment > now
            }

    def _demand_by_filter(self) -> dict[Hashable | None, int]:
        """Return the number of messages wanted by filter, beyond those already requested."""
        needs = self._queue.dispatch.free_backlog_by_filter()
        for waiting in self._sent_requests.values():
            if waiting.content_filter in needs:
                needs[waiting.content_filter] -= waiting.expected_count
        room = self._queue.capacity
        return {one: min(need, room) for one, need in needs.items() if need > 0 and room > 0}

    def _select_messages(
        self, needs: dict[Hashable | None, int], now: int
    ) -> dict[tuple[str, Hashable | None], list[int]]:
        """Choose messages to request, by owner and filter, and schedule the next pass."""
        wanted = {one: min(need + _SPARE, MAX_REQUESTED_MESSAGES) for one, need in needs.items()}
        chosen: dict[tuple[str, Hashable | None], list[int]] = {}
        entries = self._queue.lifecycle.entries
        last = (
            LAST if self._queue.settings.prioritized else self._queue.dispatch.last_deliverable_rank
        )
        effort = _LOOKUP_BATCH_SIZE
        while wanted and effort > 0:
            ranks, reached = self._queue.lifecycle.foreign_order.next_ranks(
                self._position, _CHUNK, last
            )
            effort -= _CHUNK
            places = [rank & PLACE for rank in ranks]
            ready = [place for place in places if self._is_ready(place, now)]
            try:
                matches = self._match(ready, wanted)
            except UnmatchedError:
                self.next_deadline = now + TRANSFER_TIMEOUT_US
                return chosen
            for place, content_filter in matches:
                left = wanted.get(content_filter, 0)
                if left:
                    chosen.setdefault((entries.owner(place), content_filter), []).append(place)
                    wanted[content_filter] = left - 1
            self._position = reached
            if reached >= last:
                break
        else:
            self.next_deadline = now + (_NEXT_LOOK if wanted else self._request_delay_us)
            if not wanted:
                self._position = START
            return chosen
        self._position = START
        self._schedule_next_pass(now, found=bool(chosen))
        return chosen

    def _is_ready(self, place: int, now: int) -> bool:
        """Return whether a message may be requested now."""
        later = self._retry_times.get(place)
        if later is not None and later > now:
            return False
        entries = self._queue.lifecycle.entries
        if now - entries.recorded_at(place) < self._request_delay_us:
            return False
        return self.is_proxy or self._is_reachable(entries.owner(place)) is not False

    def _schedule_next_pass(self, now: int, *, found: bool) -> None:
        """Schedule the next pass after a complete one; back off while nothing happens."""
        seen = self._activity_counters()
        if found or seen != self._seen_counters:
            self._interval = self._request_delay_us
        else:
            self._interval = min(2 * self._interval, _MAX_PACE)
        self._seen_counters = seen
        self.next_deadline = now + self._interval

    def _activity_counters(self) -> object:
        """Return counters that change when there may be other messages to request."""
        counters = self._queue.counters
        return counters.enqueued, counters.transferred_in, counters.transferred_out

    def _match(
        self, places: list[int], wanted: dict[Hashable | None, int]
    ) -> list[tuple[int, Hashable | None]]:
        """Return a matching filter for each message, without messages that match none.

        Raises:
            UnmatchedError: messages cannot be matched now.
        """
        if not places:
            return []
        if wanted.get(None):
            return [(place, None) for place in places]
        filters = {one for one in wanted if one is not None}
        if self._matcher is None:
            self._matcher = self._queue.dispatch.new_matcher()
        for one in self._filters - filters:
            self._matcher.discard(one)
        for one in filters - self._filters:
            self._matcher.add(one)
        self._filters = filters
        txids = self._queue.lifecycle.entries.txids(places)
        matches = self._matcher.match(txids)
        return [
            (place, next(iter(found)))
            for place, found in zip(places, matches, strict=True)
            if found
        ]
