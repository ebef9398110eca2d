"""The clocks of the engine's thread, and the event loop's timers.

The wall clock is compared with the monotonic one whenever it is read out of step with the reading
before, and a few times a second. A difference that has changed means that it was set, which is told
at once, before anything uses the new time.

A process that was paused, or whose loop was blocked, finds its timers overdue and unread data in
its sockets. The event loop would serve the timers first. So an overdue timer lets the sockets be
read before it, and the pause does not count as silence of a peer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.base.clock import MIN_STEP_S, SteadySeconds, WallSeconds

if TYPE_CHECKING:
    from server.core.turns import Turns

_TICK_S: Final = 0.25
_PAUSE_S: Final = 0.5
"""A timer that is later than this has found the process paused, or its loop blocked."""

_READ_ROUND_S: Final = 0.02
"""How long an overdue timer waits for the sockets to be read, each time."""

_READ_ROUNDS: Final = 50
"""After so many rounds it does not wait for the commands that have been read any more."""

_LONGEST_GAP_S: Final = 0.25
"""Readings of the wall clock that are farther apart are compared with the monotonic clock."""


class LoopClock:
    """The clocks and timers of the running event loop.

    Attributes:
        ahead: see `Clock`.
    """

    def __init__(self) -> None:
        self._last = time.time()
        self._origin = self._last - time.monotonic()
        self.ahead = 0.0
        self._listeners: list[Callable[[float], None]] = []
        self._paused = 0.0
        self._ticked = 0.0
        self._turns: Turns | None = None
        self._cancel_tick: Callable[[], None] = _nothing

    def watch(self, turns: Turns) -> None:
        """Look for steps and pauses from now on.

        Args:
            turns: tells whether commands that have been read are still waiting.
        """
        self._turns = turns
        self._ticked = time.monotonic()
        self._tick()

    def stop(self) -> None:
        """Look for steps and pauses no more."""
        self._cancel_tick()

    def now(self) -> WallSeconds:
        """Return the wall-clock time. See `Clock.now`."""
        now = time.time()
        if not 0.0 <= now - self._last <= _LONGEST_GAP_S:
            self._compare(now)
        self._last = now
        return WallSeconds(now)

    def steady(self) -> SteadySeconds:
        """Return the time of the steady clock. See `Clock.steady`."""
        return SteadySeconds(self._origin + time.monotonic())

    def attentive(self) -> SteadySeconds:
        """Return the time of the steady clock without pauses. See `Clock.attentive`."""
        return SteadySeconds(self._origin + time.monotonic() - self._paused)

    def on_step(self, notify: Callable[[float], None]) -> Callable[[], None]:
        """Have a function called when the wall clock has been set. See `Clock.on_step`."""
        self._listeners.append(notify)
        return lambda: self._listeners.remove(notify)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once after `delay` seconds, unless the function returned is called before."""
        loop = asyncio.get_running_loop()
        if delay <= 0:
            return loop.call_later(0, callback).cancel
        return _Timer(self, delay, callback).cancel

    @property
    def is_reading(self) -> bool:
        """Whether commands that have been read wait for their turn."""
        return self._turns is not None and self._turns.waiting > 0

    def _compare(self, now: float) -> None:
        """Tell of a wall clock that has been set."""
        step = now - time.monotonic() - self._origin - self.ahead
        if abs(step) >= MIN_STEP_S:
            self.ahead += step
            self._last = now
            for notify in tuple(self._listeners):
                notify(step)

    def _tick(self) -> None:
        gap = time.monotonic() - self._ticked
        self._ticked += gap
        if gap > _PAUSE_S:
            self._paused += gap
        self._compare(time.time())
        self._cancel_tick = asyncio.get_running_loop().call_later(_TICK_S, self._tick).cancel


class _Timer:
    """A timer that lets sockets be read first when it is overdue."""

    __slots__ = ("_callback", "_clock", "_due", "_handle", "_rounds")

    def __init__(self, clock: LoopClock, delay: float, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._due = time.monotonic() + delay
        self._rounds = 0
        self._handle = asyncio.get_running_loop().call_later(delay, self._fire)

    def cancel(self) -> None:
        """Cancel the call."""
        self._handle.cancel()

    def _fire(self) -> None:
        if self._rounds == 0:
            if time.monotonic() - self._due <= _PAUSE_S:
                self._callback()
                return
        elif not self._clock.is_reading or self._rounds >= _READ_ROUNDS:
            self._callback()
            return
        self._rounds += 1
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(_READ_ROUND_S, self._fire)


def _nothing() -> None:
    """Cancel no tick."""
