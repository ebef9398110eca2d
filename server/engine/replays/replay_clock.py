"""The clock of a replay: the time of its messages, and real time after it has caught up.

Conflation of a replay keeps messages for an interval of the time in which they were published. The
replay of an hour may take a second; still it sends the messages that a subscriber got in that hour.

Source: AMPS User Guide, Conflation and Bookmark Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.util.clock import SteadySeconds, no_timer

if TYPE_CHECKING:
    from server.util.clock import Clock

_Call = tuple[float, Callable[[], None]]

_BATCH_SIZE: Final = 16
"""Callbacks made in a time slice."""


class ReplayClock:
    """A clock for conflation that advances with the replay.

    Args:
        clock: the real time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = 0.0
        self._reached_at = clock.steady()  # when `_now` was reached
        self._calls: list[_Call] = []
        self._cancel_timer: Callable[[], None] = no_timer

    def steady(self) -> SteadySeconds:
        """Return the time of the messages, which does not go back."""
        return SteadySeconds(self._now)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once after `delay` seconds; return a function that cancels it. See `Clock`."""
        call = (self._now + delay, callback)
        self._calls.append(call)

        def cancel() -> None:
            if call in self._calls:
                self._calls.remove(call)

        return cancel

    def advance(self, timestamp_s: float) -> bool:
        """Advance to the timestamp of the next message; make some of the callbacks due by then.

        Returns:
            Whether all of them have been made, so that the timestamp is the current time.
        """
        self._cancel_timer()
        for _ in range(_BATCH_SIZE):
            next_call = min(self._calls, key=_due, default=None)
            if next_call is None or next_call[0] > timestamp_s:
                self._now = max(self._now, timestamp_s)
                self._reached_at = self._clock.steady()
                return True
            self._calls.remove(next_call)
            self._now = max(self._now, next_call[0])
            next_call[1]()
        return False

    def run(self) -> None:
        """Advance with real time, until there is another message."""
        delay = 0.0
        now = self._now + self._clock.steady() - self._reached_at
        if self.advance(max(now, self._clock.now())):
            if not self._calls:
                return
            delay = min(self._calls, key=_due)[0] - self._now
        self._cancel_timer = self._clock.call_later(delay, self.run)

    def stop(self) -> None:
        """Stop advancing with real time."""
        self._cancel_timer()


def _due(call: _Call) -> float:
    return call[0]
