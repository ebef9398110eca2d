"""In which order topics that are made from others work off what happens there.

A change of a topic is told to those that follow it, which tell those that follow them in turn. What
is made from several topics may hear of one change from each of them. So nobody acts upon hearing:
they ask for a turn here, and get it in the order of the configuration, in which everything stands
after what it is made from. Thus each has heard all that it will hear of a change before its turn
comes, and one change of a record makes at most one change of any record that depends on it.

All this is done before whoever made the change goes on. What fails in it is said in the log: it is
not the fault of that client, nor does it keep the other topics from following.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.base.log import Log
    from server.sow.records import Change
    from server.subscriptions.envelope import Envelope
    from server.topics.keeper import Follower


class Cascade:
    """Gives turns to the topics that are made from others.

    Args:
        log: where failures are said.
    """

    __slots__ = ("_enrolled", "_log", "_waiting", "_works")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._enrolled = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._works = False

    def enrol(self) -> int:
        """Give the next topic of the configuration its rank."""
        self._enrolled += 1
        return self._enrolled

    def tell(
        self, followers: Iterable[Follower], change: Change, envelope: Envelope, reason: str
    ) -> None:
        """Tell followers of a change, and see all its consequences through.

        Args:
            followers: who is told.
            change: what happened to a record. See `RecordAudience.announce`.
            envelope: where it comes from.
            reason: why the record is gone, if it is.
        """
        for follower in followers:
            try:
                follower.take(change, envelope, reason)
            except Exception as error:  # whatever it is, whoever made the change must not pay
                self._report(change.topic, error)
        if self._waiting and not self._works:
            self._works = True
            try:
                while self._waiting:
                    self._take_turn(change.topic, heappop(self._waiting)[1])
            finally:
                self._works = False

    def _take_turn(self, origin: str, turn: Callable[[], None]) -> None:
        try:
            turn()
        except Exception as error:  # whatever it is, whoever made the change must not pay
            self._report(origin, error)

    def _report(self, origin: str, error: Exception) -> None:
        text = f"a topic made from others could not follow a change of topic {origin!r}"
        self._log.emit("01-0004", text=text, error=repr(error))

    def ask(self, rank: int, turn: Callable[[], None]) -> None:
        """Ask for a turn.

        Args:
            rank: the rank of the topic, which does not ask again before its turn has come.
            turn: called once it has come.
        """
        heappush(self._waiting, (rank, turn))
