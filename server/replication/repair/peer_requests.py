"""Requests missing data from other instances: one item at a time, from one peer after the other.

A peer that could not supply an item is asked again when it reconnects, for it may have received the
item meanwhile. An item that no connected peer has is given up for the time being; but not at once,
because links may still be made when the item is first found to be missing. Messages may be lost, as
when one of two links with an instance ends: a peer that does not answer is asked again for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from server.replication.links.context import PeerLinks
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock

MAX_PENDING_REQUESTS: Final = 1_000
"""Items that are requested at once; others follow when these are done."""

_TICK_SECONDS: Final = 1.0
_PATIENCE: Final = 10.0
"""Seconds to wait for an answer, and for links to be made after an item is first missing."""

_AGAIN: Final = 2.0
"""Seconds after which a request is repeated."""

_Thing = TypeVar("_Thing")
_Found = TypeVar("_Found")


@dataclass(slots=True)
class PeerRequest(Generic[_Thing]):
    """A request to an instance.

    Attributes:
        key: the key of the item.
        thing: the item.
        peer: the instance.
        since: time of the request, or of its latest partial answer, in seconds.
        said: time when the request was sent last, in seconds.
        is_answered: whether the answer is complete.
    """

    key: int
    thing: _Thing
    peer: str
    since: float
    said: float
    is_answered: bool = False


class PeerRequester(Generic[_Thing]):
    """Missing items, by key, and the request for one of them.

    Args:
        neighbours: the links.
        clock: the time, and timers.
        ask: sends a request; the receiver of the answer calls `wait_on` or `done`.
        ask_again: requests the part of the item that has not arrived.
        looked: called about once a second, until all items have been given up.
        comes_by_itself: tells whether an item need not be requested now.

    Attributes:
        wanted: the missing items.
        asked: the request that has not been answered; None if there is none.
    """

    def __init__(
        self,
        neighbours: PeerLinks,
        clock: Clock,
        ask: Callable[[PeerRequest[_Thing]], None],
        ask_again: Callable[[PeerRequest[_Thing]], None],
        looked: Callable[[], None],
        comes_by_itself: Callable[[_Thing], bool] = lambda _: False,
    ) -> None:
        self.wanted: Final[dict[int, _Thing]] = {}
        self.asked: PeerRequest[_Thing] | None = None
        self._neighbours: Final = neighbours
        self._clock: Final = clock
        self._ask: Final = ask
        self._ask_again: Final = ask_again
        self._comes_by_itself: Final = comes_by_itself
        self._looked: Final = looked
        self._tried: dict[int, set[str]] = {}  # by key, the peers that have been asked in vain
        self._wanted_first: float | None = None
        self._cancel: Callable[[], None] | None = None

    def close(self) -> None:
        """Drop all items, and stop the timer."""
        self.wanted.clear()
        self.asked = None
        if self._cancel is not None:
            self._cancel()

    def want(self, key: int, thing: _Thing) -> None:
        """Add a missing item; it is requested after the next `go_on`."""
        if len(self.wanted) < MAX_PENDING_REQUESTS:
            self.wanted.setdefault(key, thing)
            if self._wanted_first is None:
                self._wanted_first = self._clock.steady()

    def forget(self, key: int) -> None:
        """Remove an item that is no longer missing, or cannot be had."""
        self.wanted.pop(key, None)
        self._tried.pop(key, None)

    def is_given_up(self, key: int) -> bool:
        """Return whether no connected peer has a wanted item."""
        if self.asked is not None and self.asked.key == key:
            return False
        is_early = self._clock.steady() - (self._wanted_first or 0.0) < _PATIENCE
        return not is_early and self._tried.get(key, set()).issuperset(self._neighbours.peers)

    def links_changed(self) -> None:
        """Note that a link has been opened or closed."""
        peers = self._neighbours.peers
        for tried in self._tried.values():
            tried.intersection_update(peers)  # a peer that reconnects may have it
        if self.asked is not None and self.asked.peer not in peers:
            self.asked = None
        self.go_on()

    def go_on(self) -> None:
        """Request the next item, if no request is pending and there is a peer to ask."""
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
                    self.asked = PeerRequest(key, thing, peer, now, now)
                    self._ask(self.asked)
                    return

    def wait_on(self) -> None:
        """Note a partial answer: the peer has more to send."""
        if self.asked is not None:
            self.asked.since = self.asked.said = self._clock.steady()

    def done(self) -> None:
        """End the request: the peer has nothing more to send."""
        self.asked = None
        self.go_on()

    def _tick_later(self) -> None:
        if self._cancel is None:
            self._cancel = self._clock.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """End or repeat a request that has timed out."""
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


class PeerResponder:
    """Answers requests of other instances, one of each at a time; others are dropped.

    Args:
        log: the log, which the helper thread reads for the answers.
        neighbours: the links.
        subject: the subject of the messages.
    """

    def __init__(self, log: TransactionLog, neighbours: PeerLinks, subject: str) -> None:
        self._log: Final = log
        self._neighbours: Final = neighbours
        self._subject: Final = subject
        self._answering: set[str] = set()

    def give(
        self, peer: str, find: Callable[[], _Found], answer: Callable[[_Found], bytes]
    ) -> None:
        """Send an answer, made of the results of the helper thread.

        Args:
            peer: the instance that asks.
            find: called on the helper thread.
            answer: makes the answer, on the engine's thread, without data that the peer is not
                entitled to.
        """
        if peer in self._answering:
            return
        self._answering.add(peer)

        def say(found: _Found) -> None:
            self._answering.discard(peer)
            self._neighbours.say(peer, self._subject, answer(found))

        self._log.do_aside(find, say)
