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
another instance has recorded to `Queue.hear`, and its words (`TransferRequest`, `TransferResponse`)
to `hear`. Once `Queue.deliver` has nothing left to do, and at `next_moment`, call `step`. It may
cause events to be recorded; deliver again after that. It returns words, which may be sent once
these events are on stable storage, and no sooner. Every word may get lost.

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
        to: the name of the instance.
        word: the request or answer.
    """

    to: str
    word: QueuePeerMessage


@dataclass(slots=True)
class _PendingTransfer:
    """A pending request.

    Attributes:
        until: its timeout.
        content_filter: the filter that the messages are wanted for.
        owner: the instance asked.
        asked: how many messages were wanted.
        expected: how many messages may still arrive.
        places: the messages named in the request; empty once the answer has arrived.
    """

    until: int
    content_filter: Hashable | None
    owner: str
    asked: int
    expected: int
    places: list[int]


class OwnershipTransfers:
    """Requests and transfers messages of one shared queue on behalf of this instance.

    Args:
        queue: the queue.
        reach: tells whether another instance can be reached.
        initial_owner: the instance that owns all messages on arrival; None for the instance where
            each was published.

    Attributes:
        proxied: whether this instance acts for owners that cannot be reached.
        next_moment: when to call `step` although nothing has happened; None for never.
    """

    def __init__(self, queue: Queue, reach: IsReachable, initial_owner: str | None = None) -> None:
        self.proxied = False
        self.next_moment: int | None = None
        self._queue: Final = queue
        self._reach: Final = reach
        self._initial_owner: Final = initial_owner
        self._questions: deque[tuple[str, TransferRequest]] = deque(maxlen=_MAX_QUESTIONS)
        self._numbers = count(1)
        self._waiting: dict[int, _PendingTransfer] = {}
        self._transferred_in = 0
        self._later: dict[int, int] = {}  # place -> when it may be requested again
        self._position = START
        self._interval = _MIN_PACE
        self._seen: object = None  # the counters after the last complete pass
        self._matching: FilterMatcher | None = None
        self._filters: set[Hashable] = set()

    def initial_owner(self, publisher: str) -> str:
        """Return the owner of a message on arrival, empty for this instance.

        Args:
            publisher: the instance where it was published.
        """
        owner = publisher if self._initial_owner is None else self._initial_owner
        return "" if owner == self._queue.owner else owner

    # Words of other instances.

    def hear(self, word: QueuePeerMessage, sender: str, now: int) -> None:
        """Handle a word to this instance, or to an owner that this one may have to act for."""
        if isinstance(word, TransferRequest):
            self._questions.append((sender, word))
            return
        waiting = self._waiting.get(word.number)
        is_short = False
        if waiting is not None:
            waiting.expected = min(word.granted, waiting.expected)
            waiting.places = []
            is_short = word.granted < waiting.asked
        entries = self._queue.lifecycle.entries
        claims = []
        for mark, turn, owner in zip(word.marks, word.turns, word.owners, strict=True):
            claims.append((mark, OwnershipClaim(turn, owner)))
            place = entries.find(mark)
            if place is None or waiting is None:
                continue
            if is_short and owner == waiting.owner:
                self._later[place] = now + self._pace
            else:
                self._later.pop(place, None)
        self._queue.correct(claims, now)
        self.next_moment = now

    # Answers.

    def step(self, now: int) -> list[OutboundPeerMessage]:
        """Answer and send requests; call it when the queue has delivered all that it can."""
        if self._queue.is_behind or self._queue.is_stalled:
            return []
        said = list(self._answers(now))
        if self._queue.lifecycle.entries.counts[FOREIGN]:
            said += self._ask(now)
        else:
            self.next_moment = None
        return said

    def _answers(self, now: int) -> Iterator[OutboundPeerMessage]:
        lifecycle = self._queue.lifecycle
        while self._questions:
            asker, ask = self._questions.popleft()
            granted: list[PublisherSequence] = []
            others: list[tuple[PublisherSequence, int, str]] = []
            for mark in ask.marks:
                place = lifecycle.entries.find(mark)
                if place is None or lifecycle.entries.state(place) in (GONE, SENT):
                    continue
                if len(granted) < ask.most and self._may_hand_on(place, asker):
                    granted.append(mark)
                else:
                    others.append((mark, *lifecycle.title(place)))
            self._queue.transfer(granted, asker, now)
            columns = [list(column) for column in zip(*others, strict=True)]
            yield OutboundPeerMessage(asker, TransferResponse(ask.number, len(granted), *columns))

    def _may_hand_on(self, place: int, asker: str) -> bool:
        lifecycle = self._queue.lifecycle
        state, owner = lifecycle.entries.state(place), lifecycle.entries.owner(place)
        if not owner:
            return state in (AVAILABLE, BEHIND)
        return owner != asker and state in (FOREIGN, BEHIND) and self._acts_for(owner)

    def _acts_for(self, owner: str) -> bool:
        return self.proxied and self._reach(owner) is False

    # Requests.

    @property
    def _pace(self) -> int:
        return min(max(self._queue.elsewhere.pace, _MIN_PACE), _MAX_PACE)

    def _ask(self, now: int) -> list[OutboundPeerMessage]:
        self._forget(now)
        needs = self._needs()
        if not needs:
            # Consumers with room again trigger a delivery; otherwise, wait for a request timeout.
            self.next_moment = min((one.until for one in self._waiting.values()), default=None)
            return []
        if self.next_moment is not None and now < self.next_moment:
            if self._counted() != self._seen:
                self.next_moment = min(self.next_moment, now + self._pace)
            return []
        said: list[OutboundPeerMessage] = []
        chosen = self._choose(needs, now)
        for (owner, content_filter), places in chosen.items():
            marks = self._queue.lifecycle.entries.marks(places)
            need = min(needs[content_filter], len(marks))
            if self._acts_for(owner):
                self._queue.transfer(marks[:need], self._queue.owner, now)
                continue
            number = next(self._numbers)
            self._waiting[number] = _PendingTransfer(
                now + TRANSFER_TIMEOUT_US, content_filter, owner, need, need, places
            )
            self._later.update(dict.fromkeys(places, now + TRANSFER_TIMEOUT_US))
            said.append(OutboundPeerMessage(owner, TransferRequest(number, marks, need)))
        return said

    def _forget(self, now: int) -> None:
        """Forget requests that are fulfilled or have timed out."""
        came = self._queue.counters.transferred_in - self._transferred_in
        self._transferred_in += came
        for waiting in self._waiting.values():
            taken = min(came, waiting.expected)
            waiting.expected -= taken
            came -= taken
        over = [
            number
            for number, waiting in self._waiting.items()
            if waiting.until <= now or not waiting.expected
        ]
        for number in over:
            waiting = self._waiting.pop(number)
            if not waiting.expected:
                # The messages arrived before the answer: the owner may have the rest for us, too.
                for place in waiting.places:
                    self._later.pop(place, None)
        if len(self._later) > _MAX_REMEMBERED:
            self._later = {place: moment for place, moment in self._later.items() if moment > now}

    def _needs(self) -> dict[Hashable | None, int]:
        """Return the number of messages wanted by filter, beyond those already requested."""
        needs = self._queue.dispatch.rooms()
        for waiting in self._waiting.values():
            if waiting.content_filter in needs:
                needs[waiting.content_filter] -= waiting.expected
        room = self._queue.capacity
        return {one: min(need, room) for one, need in needs.items() if need > 0 and room > 0}

    def _choose(
        self, needs: dict[Hashable | None, int], now: int
    ) -> dict[tuple[str, Hashable | None], list[int]]:
        """Choose messages to request, by owner and filter, and schedule the next pass."""
        wanted = {one: min(need + _SPARE, MAX_REQUESTED_MESSAGES) for one, need in needs.items()}
        chosen: dict[tuple[str, Hashable | None], list[int]] = {}
        entries = self._queue.lifecycle.entries
        last = LAST if self._queue.settings.prioritized else self._queue.dispatch.last
        effort = _LOOKUP_BATCH_SIZE
        while wanted and effort > 0:
            ranks, reached = self._queue.lifecycle.foreign.following(self._position, _CHUNK, last)
            effort -= _CHUNK
            places = [rank & PLACE for rank in ranks]
            ready = [place for place in places if self._is_ready(place, now)]
            try:
                matches = self._match(ready, wanted)
            except UnmatchedError:
                self.next_moment = now + TRANSFER_TIMEOUT_US
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
            self.next_moment = now + (_NEXT_LOOK if wanted else self._pace)
            if not wanted:
                self._position = START
            return chosen
        self._position = START
        self._rest(now, found=bool(chosen))
        return chosen

    def _is_ready(self, place: int, now: int) -> bool:
        """Return whether a message may be requested now."""
        later = self._later.get(place)
        if later is not None and later > now:
            return False
        entries = self._queue.lifecycle.entries
        if now - entries.time(place) < self._pace:
            return False
        return self.proxied or self._reach(entries.owner(place)) is not False

    def _rest(self, now: int, *, found: bool) -> None:
        """Schedule the next pass after a complete one; back off while nothing happens."""
        seen = self._counted()
        if found or seen != self._seen:
            self._interval = self._pace
        else:
            self._interval = min(2 * self._interval, _MAX_PACE)
        self._seen = seen
        self.next_moment = now + self._interval

    def _counted(self) -> object:
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
        if self._matching is None:
            self._matching = self._queue.dispatch.new_matching()
        for one in self._filters - filters:
            self._matching.discard(one)
        for one in filters - self._filters:
            self._matching.add(one)
        self._filters = filters
        txids = self._queue.lifecycle.entries.txids(places)
        matches = self._matching.match(txids)
        return [
            (place, next(iter(found)))
            for place, found in zip(places, matches, strict=True)
            if found
        ]
