"""One queue between several instances: who asks whom for messages, and who hands them on.

Theory of operation. Messages are delivered where they are owned (ownership.py), and that costs
nothing. An instance whose consumers have room, and that has nothing of its own for them, asks the
owners for messages that these consumers want and that have been here for longer than it has taken
the owners lately to have done with one: so it does not ask while they keep up. An owner hands on
what it could deliver and has nobody for, and says so in its record. It answers in any case; who
gets no answer asks again, and not more often than now and then.

Of an owner that cannot be reached nothing comes, until an administrator says that another instance
may act for it (`proxied`). That one takes what its own consumers want, or hands it on to whoever
asks. If the owner is up all the same, a message may be delivered twice.

For whoever integrates it
-------------------------

`initial_owner` is what `Details.owners` wants of messages that come. What another instance has
recorded goes to `Queue.hear`. Words go to `hear`. Once `Queue.deliver` has nothing left to do, and
at `next_moment`, call `step`: it may have something to be recorded, after which deliver again, and
it returns words, which may be sent when that is on stable storage, and no sooner. All of them may
get lost.

Source: AMPS User Guide, Replicated Queues; Disaster Recovery and Queue Message Ownership.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from server.queues.events import Mark
from server.queues.order import LAST, PLACE, START
from server.queues.ownership import Title
from server.queues.queue import Queue
from server.queues.sources import Matching, UnmatchedError
from server.queues.states import AVAILABLE, BEHIND, FOREIGN, GONE, SENT
from server.queues.words import MOST_ASKED, Answer, Ask, Word

PATIENCE: Final = 1_000_000
"""Microseconds after which a question without an answer is asked again."""

_LEAST_PACE: Final = 10_000
_MOST_PACE: Final = 1_000_000
_NEXT_LOOK: Final = 20_000
_LOOKED_AT_ONCE: Final = 512
_CHUNK: Final = 64
_SPARE: Final = 64
"""Messages that are named beyond those that are wanted: the first ones may be with consumers."""
_MOST_QUESTIONS: Final = 1024
_MOST_REMEMBERED: Final = 16_384

Reach = Callable[[str], bool | None]
"""Whether an instance can be reached; None if that is not known, and being found out."""


class Said(NamedTuple):
    """A word for another instance.

    Attributes:
        to: the name of the instance.
        word: what to say.
    """

    to: str
    word: Word


@dataclass(slots=True)
class _Waiting:
    """A question that has not come to its end.

    Attributes:
        until: when to wait no longer.
        content_filter: what the messages are wanted for.
        owner: who was asked.
        expected: how many messages may come.
    """

    until: int
    content_filter: Hashable | None
    owner: str
    expected: int


class Sharing:
    """What one instance does about a queue that it shares.

    Args:
        queue: the queue.
        reach: tells whether another instance can be reached.
        initial_owner: the instance that owns all messages when they come; None for the one where
            they were published.

    Attributes:
        proxied: whether this instance acts for owners that cannot be reached.
        next_moment: when `step` is to be called though nothing has happened; None for never.
    """

    def __init__(self, queue: Queue, reach: Reach, initial_owner: str | None = None) -> None:
        self.proxied = False
        self.next_moment: int | None = None
        self._queue: Final = queue
        self._reach: Final = reach
        self._initial_owner: Final = initial_owner
        self._questions: deque[tuple[str, Ask]] = deque(maxlen=_MOST_QUESTIONS)
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._transferred_in = 0
        self._later: dict[int, int] = {}  # place -> when it may be asked for again
        self._position = START
        self._interval = _LEAST_PACE
        self._seen: object = None  # what there was when all had been looked at
        self._matching: Matching | None = None
        self._filters: set[Hashable] = set()

    def initial_owner(self, publisher: str) -> str:
        """Who owns a message when it comes, empty for this instance.

        Args:
            publisher: the instance where it was published.
        """
        owner = publisher if self._initial_owner is None else self._initial_owner
        return "" if owner == self._queue.owner else owner

    # What others say.

    def hear(self, word: Word, sender: str, now: int) -> None:
        """Another instance says something: to this one, or to one that this one is to act for."""
        if isinstance(word, Ask):
            self._questions.append((sender, word))
            return
        waiting = self._waiting.get(word.number)
        if waiting is not None:
            waiting.expected = min(word.granted, waiting.expected)
        entries = self._queue.ledger.entries
        claims = []
        for mark, turn, owner in zip(word.marks, word.turns, word.owners, strict=True):
            claims.append((mark, Title(turn, owner)))
            place = entries.find(mark)
            if place is None or waiting is None:
                continue
            if owner == waiting.owner:
                self._later[place] = now + self._pace
            else:
                self._later.pop(place, None)
        self._queue.correct(claims, now)
        self.next_moment = now

    # What it does.

    def step(self, now: int) -> list[Said]:
        """Answer, and ask; to be called when the queue has delivered what it can."""
        if self._queue.is_behind or self._queue.is_stalled:
            return []
        said = list(self._answers(now))
        if self._queue.ledger.entries.counts[FOREIGN]:
            said += self._ask(now)
        else:
            self.next_moment = None
        return said

    def _answers(self, now: int) -> Iterator[Said]:
        ledger = self._queue.ledger
        while self._questions:
            asker, ask = self._questions.popleft()
            granted: list[Mark] = []
            others: list[tuple[Mark, int, str]] = []
            for mark in ask.marks:
                place = ledger.entries.find(mark)
                if place is None or ledger.entries.state(place) in (GONE, SENT):
                    continue
                if len(granted) < ask.most and self._may_hand_on(place, asker):
                    granted.append(mark)
                else:
                    others.append((mark, *ledger.title(place)))
            self._queue.transfer(granted, asker, now)
            columns = [list(column) for column in zip(*others, strict=True)]
            yield Said(asker, Answer(ask.number, len(granted), *columns))

    def _may_hand_on(self, place: int, asker: str) -> bool:
        ledger = self._queue.ledger
        state, owner = ledger.entries.state(place), ledger.entries.owner(place)
        if not owner:
            return state in (AVAILABLE, BEHIND)
        return owner != asker and state in (FOREIGN, BEHIND) and self._acts_for(owner)

    def _acts_for(self, owner: str) -> bool:
        return self.proxied and self._reach(owner) is False

    # Asking.

    @property
    def _pace(self) -> int:
        return min(max(self._queue.elsewhere.pace, _LEAST_PACE), _MOST_PACE)

    def _ask(self, now: int) -> list[Said]:
        self._forget(now)
        needs = self._needs()
        if not needs:
            # Whoever has room again has the queue deliver, which may be because nothing comes.
            self.next_moment = min((one.until for one in self._waiting.values()), default=None)
            return []
        if self.next_moment is not None and now < self.next_moment:
            if self._counted() != self._seen:
                self.next_moment = min(self.next_moment, now + self._pace)
            return []
        said: list[Said] = []
        chosen = self._choose(needs, now)
        for (owner, content_filter), places in chosen.items():
            marks = self._queue.ledger.entries.marks(places)
            need = min(needs[content_filter], len(marks))
            if self._acts_for(owner):
                self._queue.transfer(marks[:need], self._queue.owner, now)
                continue
            number = next(self._numbers)
            self._waiting[number] = _Waiting(now + PATIENCE, content_filter, owner, need)
            self._later.update(dict.fromkeys(places, now + PATIENCE))
            said.append(Said(owner, Ask(number, marks, need)))
        return said

    def _forget(self, now: int) -> None:
        """Forget questions that have been dealt with, or nobody has answered."""
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
            del self._waiting[number]
        if len(self._later) > _MOST_REMEMBERED:
            self._later = {place: moment for place, moment in self._later.items() if moment > now}

    def _needs(self) -> dict[Hashable | None, int]:
        """How many messages are wanted, by filter, beyond those that have been asked for."""
        needs = self._queue.dispatch.rooms()
        for waiting in self._waiting.values():
            if waiting.content_filter in needs:
                needs[waiting.content_filter] -= waiting.expected
        room = self._queue.capacity
        return {one: min(need, room) for one, need in needs.items() if need > 0 and room > 0}

    def _choose(
        self, needs: dict[Hashable | None, int], now: int
    ) -> dict[tuple[str, Hashable | None], list[int]]:
        """The places of messages to ask for, by owner and filter, and when to look again."""
        wanted = {one: min(need + _SPARE, MOST_ASKED) for one, need in needs.items()}
        chosen: dict[tuple[str, Hashable | None], list[int]] = {}
        entries = self._queue.ledger.entries
        last = LAST if self._queue.settings.prioritized else self._queue.dispatch.last
        effort = _LOOKED_AT_ONCE
        while wanted and effort > 0:
            ranks, reached = self._queue.ledger.foreign.following(self._position, _CHUNK, last)
            effort -= _CHUNK
            places = [rank & PLACE for rank in ranks]
            ready = [place for place in places if self._is_ready(place, now)]
            try:
                matches = self._match(ready, wanted)
            except UnmatchedError:
                self.next_moment = now + PATIENCE
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
        """Whether it is time to ask for a message."""
        later = self._later.get(place)
        if later is not None and later > now:
            return False
        entries = self._queue.ledger.entries
        if now - entries.time(place) < self._pace:
            return False
        return self.proxied or self._reach(entries.owner(place)) is not False

    def _rest(self, now: int, *, found: bool) -> None:
        """All has been looked at: look again, the later the longer nothing happens."""
        seen = self._counted()
        if found or seen != self._seen:
            self._interval = self._pace
        else:
            self._interval = min(2 * self._interval, _MOST_PACE)
        self._seen = seen
        self.next_moment = now + self._interval

    def _counted(self) -> object:
        """What changes when there may be other messages to ask for."""
        counters = self._queue.counters
        return counters.enqueued, counters.transferred_in, counters.transferred_out

    def _match(
        self, places: list[int], wanted: dict[Hashable | None, int]
    ) -> list[tuple[int, Hashable | None]]:
        """For each message a filter that wants it; without those that none wants.

        Raises:
            UnmatchedError: it cannot be told now.
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
        txids = self._queue.ledger.entries.txids(places)
        matches = self._matching.match(txids)
        return [
            (place, next(iter(found)))
            for place, found in zip(places, matches, strict=True)
            if found
        ]
