"""Time as a replay sees it: that of the messages, and the real one when it has caught up.

Conflation of a replay keeps messages for an interval of the time in which they were published. The
replay of an hour may take a second; still it gives what a subscriber would have got in that hour.

Source: AMPS User Guide, Conflation and Bookmark Subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.base.clock import SteadySeconds

if TYPE_CHECKING:
    from server.base.clock import Clock

_Call = tuple[float, Callable[[], None]]

_AT_ONCE: Final = 16
"""Calls that are made in a slice."""


class Timeline:
    """A `Timer` that goes as the replay goes.

    Args:
        clock: the real time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = 0.0
        self._reached_at = clock.steady()  # when that was so
        self._calls: list[_Call] = []
        self._cancel_timer: Callable[[], None] = _nothing

    def steady(self) -> SteadySeconds:
        """Return the time of the messages, which does not go back."""
        return SteadySeconds(self._now)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once after `delay` seconds. See `Timer.call_later`."""
        call = (self._now + delay, callback)
        self._calls.append(call)

        def cancel() -> None:
            if call in self._calls:
                self._calls.remove(call)

        return cancel

    def advance(self, moment: float) -> bool:
        """Go on to the moment of the next message; some of what is due by then is done.

        Returns:
            Whether all of that has been done, so that it is that moment now.
        """
        self._cancel_timer()
        for _ in range(_AT_ONCE):
            first = min(self._calls, key=_due, default=None)
            if first is None or first[0] > moment:
                self._now = max(self._now, moment)
                self._reached_at = self._clock.steady()
                return True
            self._calls.remove(first)
            self._now = max(self._now, first[0])
            first[1]()
        return False

    def run(self) -> None:
        """Go on by itself, with the real time, until there is another message."""
        delay = 0.0
        now = self._now + self._clock.steady() - self._reached_at
        if self.advance(max(now, self._clock.now())):
            if not self._calls:
                return
            delay = min(self._calls, key=_due)[0] - self._now
        self._cancel_timer = self._clock.call_later(delay, self.run)

    def stop(self) -> None:
        """Stand still."""
        self._cancel_timer()


def _due(call: _Call) -> float:
    return call[0]


def _nothing() -> None:
    """Cancel no timer."""
