"""What other instances have recorded of a queue that they share with this one.

Their events have moments of another clock, so what counts is when they came. They come in the order
in which they happened where they come from, but not that of what happens here: messages may be
leased here that were acknowledged there, or may not have come at all. Of those it is remembered
until they come. What has left the queue there leaves it here.

Source: AMPS User Guide, Replicated Queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from server.queues.events import Cancelled, Event, Leased, Mark, Released, Transferred
from server.queues.ledger import Ledger
from server.queues.ownership import Title
from server.queues.states import FOREIGN, GONE, SENT

FIRST_PACE: Final = 50_000
"""What is taken for the pace of other instances, in microseconds, before they have shown it."""

_LATEST: Final = 16
"""How many times as much an average's past weighs as the latest value."""

_LONG_AGO: Final = 0
"""The moment of a replay: nothing expires by it, because expirations are events by themselves."""


class Elsewhere:
    """Lets happen here what has happened to messages elsewhere.

    Args:
        ledger: the messages.
        is_to_come: whether a message that is not here may come yet.

    Attributes:
        pace: how long it takes other instances from a message's coming here to its end, in
            microseconds; an average that follows the latest ones.
    """

    def __init__(self, ledger: Ledger, is_to_come: Callable[[Mark], bool]) -> None:
        self.pace = FIRST_PACE
        self._ledger: Final = ledger
        self._is_to_come: Final = is_to_come
        self._unsure: list[Mark] = []

    def hear(self, event: Event, now: int, *, is_over: bool = False) -> None:
        """Let an event of another instance's record happen here; nothing is recorded.

        Args:
            event: what that instance has recorded.
            now: when it came.
            is_over: it came in an earlier run of this instance, and is read from the log.
        """
        ledger = self._ledger
        match event:
            case Released():
                ledger.passed.update(place for _, place in ledger.known(event.marks))
            case Cancelled():
                for index, place in ledger.known(event.marks):
                    attempts = ledger.attempt(place)
                    attempts.cancels = max(attempts.cancels, event.counts[index])
                    delay = event.retry_at[index] - event.at
                    if delay > 0 and ledger.entries.state(place) == FOREIGN:
                        ledger.delay(place, now + delay)
            case Leased():
                for _, place in ledger.known(event.marks):
                    attempts = ledger.attempt(place)
                    attempts.deliveries += 1
                    attempts.last_consumer = event.consumer
                    attempts.last_leased = now
            case Transferred():
                for mark, turn in zip(event.marks, event.turns, strict=False):
                    self._claim(mark, Title(turn, event.owner), now, is_over=is_over)
            case _:  # Acked, Deferred, Expired, Sent
                self._end(event.marks, now, is_over=is_over)

    def finish_recovery(self) -> None:
        """The record has been replayed: what has come by now, nobody waits for."""
        ledger = self._ledger
        unsure, self._unsure = self._unsure, []
        over = [mark for mark in (*unsure, *ledger.titles.early) if not self._is_to_come(mark)]
        ledger.deferred.drop(over)
        ledger.titles.drop(over)

    def _claim(self, mark: Mark, title: Title, now: int, *, is_over: bool) -> None:
        may_come = is_over or self._is_to_come(mark)
        self._ledger.claim(mark, title, _LONG_AGO if is_over else now, may_come=may_come)

    def _end(self, marks: Iterable[Mark], now: int, *, is_over: bool) -> None:
        """Messages have left the queue."""
        ledger, entries = self._ledger, self._ledger.entries
        for mark in marks:
            ledger.taken.pop(mark, None)
            place = entries.find(mark)
            state = GONE if place is None else entries.state(place)
            if place is not None and state != GONE:
                if state == SENT:
                    continue
                if state == FOREIGN:
                    self.pace += (now - entries.time(place) - self.pace) // _LATEST
                if ledger.end_lease(place) is not None:
                    ledger.counters.ended_elsewhere += 1
                ledger.remove(place)
                ledger.counters.acknowledged += 1
            elif is_over or self._is_to_come(mark):
                ledger.deferred.add((mark,), now)
                if is_over:
                    self._unsure.append(mark)
