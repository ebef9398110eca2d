"""Asks other instances for what is missing here: one thing at a time, of one after the other.

Who has been asked for something in vain is asked again when it connects anew, for it may have got
that meanwhile. What nobody who is there has is given up for the time being; but not at once, for
links may still be made when it is first found to be missing. What is said may be lost, as when one
of two links with an instance ends: who does not answer is asked again for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.links.surroundings import Neighbours, TransactionLog

MOST_WANTED: Final = 1_000
"""Things that are asked for; others are when these have been dealt with."""

_TICK_SECONDS: Final = 1.0
_PATIENCE: Final = 10.0
"""Seconds to wait for an answer, and for links to be made when something is first missing."""

_AGAIN: Final = 2.0
"""Seconds after which a question is asked again."""

_Thing = TypeVar("_Thing")
_Found = TypeVar("_Found")


@dataclass(slots=True)
class Asked(Generic[_Thing]):
    """What an instance has been asked for.

    Attributes:
        key: the key of the thing.
        thing: the thing.
        peer: the instance.
        since: when it was asked for, or had something to say last, in seconds.
        said: when it was asked last, in seconds.
        is_answered: whether it has said all there is.
    """

    key: int
    thing: _Thing
    peer: str
    since: float
    said: float
    is_answered: bool = False


class Asking(Generic[_Thing]):
    """What is missing, by a key, and who is asked for it.

    Args:
        neighbours: the links.
        clock: the time, and timers.
        ask: asks for a thing; whoever hears the answer calls `wait_on` or `done`.
        ask_again: asks for what has not come of it.
        looked: called about once a second, until everything has been given up.
        comes_by_itself: whether a thing need not be asked for, now.

    Attributes:
        wanted: what is missing.
        asked: what has been asked for, and not been answered.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        clock: Clock,
        ask: Callable[[Asked[_Thing]], None],
        ask_again: Callable[[Asked[_Thing]], None],
        looked: Callable[[], None],
        comes_by_itself: Callable[[_Thing], bool] = lambda _: False,
    ) -> None:
        self.wanted: Final[dict[int, _Thing]] = {}
        self.asked: Asked[_Thing] | None = None
        self._neighbours: Final = neighbours
        self._clock: Final = clock
        self._ask: Final = ask
        self._ask_again: Final = ask_again
        self._comes_by_itself: Final = comes_by_itself
        self._looked: Final = looked
        self._tried: dict[int, set[str]] = {}  # by key, who has been asked in vain
        self._wanted_first: float | None = None
        self._cancel: Callable[[], None] | None = None

    def close(self) -> None:
        """Want nothing more."""
        self.wanted.clear()
        self.asked = None
        if self._cancel is not None:
            self._cancel()

    def want(self, key: int, thing: _Thing) -> None:
        """Something is missing; it is asked for after the next `go_on`."""
        if len(self.wanted) < MOST_WANTED:
            self.wanted.setdefault(key, thing)
            if self._wanted_first is None:
                self._wanted_first = self._clock.steady()

    def forget(self, key: int) -> None:
        """Something is not missing any more, or cannot be had."""
        self.wanted.pop(key, None)
        self._tried.pop(key, None)

    def is_given_up(self, key: int) -> bool:
        """Whether nobody who is there has something that is wanted."""
        if self.asked is not None and self.asked.key == key:
            return False
        is_early = self._clock.steady() - (self._wanted_first or 0.0) < _PATIENCE
        return not is_early and self._tried.get(key, set()).issuperset(self._neighbours.peers)

    def links_changed(self) -> None:
        """A link has come to be, or is over."""
        peers = self._neighbours.peers
        for tried in self._tried.values():
            tried.intersection_update(peers)  # who comes back may have it
        if self.asked is not None and self.asked.peer not in peers:
            self.asked = None
        self.go_on()

    def go_on(self) -> None:
        """Ask for the next thing, if nothing is being asked for, and there is somebody to ask."""
        if self.asked is not None or not self.wanted:
            return
        self._tick_later()
        peers = list(self._neighbours.peers)
        for key, thing in self.wanted.items():
            if self._comes_by_itself(thing):
                continue
            tried = self._tried.setdefault(key, set())
            for peer in peers:
                if peer not in tried:
                    tried.add(peer)
                    now = self._clock.steady()
                    self.asked = Asked(key, thing, peer, now, now)
                    self._ask(self.asked)
                    return

    def wait_on(self) -> None:
        """Whoever has been asked has more to say."""
        if self.asked is not None:
            self.asked.since = self.asked.said = self._clock.steady()

    def done(self) -> None:
        """Whoever has been asked has nothing more to say."""
        self.asked = None
        self.go_on()

    def _tick_later(self) -> None:
        if self._cancel is None:
            self._cancel = self._clock.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """See that nobody is waited for in vain."""
        self._cancel = None
        asked, now = self.asked, self._clock.steady()
        if asked is not None and now - asked.since > _PATIENCE:
            self.done()
        elif asked is not None and not asked.is_answered and now - asked.said > _AGAIN:
            asked.said = now
            self._ask_again(asked)
        self._looked()
        if not all(map(self.is_given_up, self.wanted)):
            self._tick_later()


class Answers:
    """Answers what other instances ask, one question of each at a time; others are lost.

    Args:
        log: the log, of which the helper reads what they want to know.
        neighbours: the links.
        subject: what the words are about.
    """

    def __init__(self, log: TransactionLog, neighbours: Neighbours, subject: str) -> None:
        self._log: Final = log
        self._neighbours: Final = neighbours
        self._subject: Final = subject
        self._answering: set[str] = set()

    def give(
        self, peer: str, find: Callable[[], _Found], answer: Callable[[_Found], bytes]
    ) -> None:
        """Send an answer, made of the results of the helper.

        Args:
            peer: the instance that asks.
            find: called beside the engine's thread.
            answer: makes the answer, on the engine's thread, without what the peer may not have.
        """
        if peer in self._answering:
            return
        self._answering.add(peer)

        def say(found: _Found) -> None:
            self._answering.discard(peer)
            self._neighbours.say(peer, self._subject, answer(found))

        self._log.do_aside(find, say)
