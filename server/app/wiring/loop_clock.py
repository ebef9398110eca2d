"""The clocks of the engine's thread, and the event loop's timers.

The wall clock is compared with the monotonic one whenever a reading is out of step with the one
before, and a few times a second. A changed difference means that the clock was set; listeners are
notified at once, before any code uses the new time.

A process that was paused, or whose loop was blocked, finds its timers overdue and unread data in
its sockets. The event loop would serve the timers first, and work under way would find its leases
expired. So the steady clock stops, and overdue timers wait, until the sockets have been read; and
the pause does not count as silence of a peer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.util.clock import MIN_STEP_S, SteadySeconds, WallSeconds

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler

_TICK_S: Final = 0.25
_PAUSE_S: Final = 0.75
"""A tick later than this means that the process was paused, or its loop blocked."""

_READ_ROUND_S: Final = 0.02
"""How long timers wait for the sockets to be read, each time."""

MAX_READ_ROUNDS: Final = 50
"""After so many rounds timers no longer wait for the commands that have been read."""

_MAX_GAP_S: Final = 0.25
"""Readings of the wall clock farther apart than this are compared with the monotonic clock."""


class LoopClock:
    """The clocks and timers of the running event loop.

    Attributes:
        wall_offset_s: see `Clock`.
    """

    def __init__(self) -> None:
        self._last_wall = time.time()
        self._origin = self._last_wall - time.monotonic()
        self.wall_offset_s = 0.0
        self._listeners: list[Callable[[float], None]] = []
        self._latest_steady = time.monotonic()  # the last reading of the steady clock
        self._held_at: float | None = None  # its reading while it is stopped
        self._paused_s = 0.0
        self._last_tick = 0.0  # 0 before `start`
        self._scheduler: Scheduler | None = None
        self._cancel_tick: Callable[[], None] = _do_nothing

    def start(self, scheduler: Scheduler) -> None:
        """Start to detect steps and pauses.

        Args:
            scheduler: the scheduler, which has the commands that have been read and wait.
        """
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._last_tick = time.monotonic()
        self._tick()

    def stop(self) -> None:
        """Stop detecting steps and pauses."""
        self._cancel_tick()

    def now(self) -> WallSeconds:
        """Return the wall-clock time. See `Clock.now`."""
        now = time.time()
        if not 0.0 <= now - self._last_wall <= _MAX_GAP_S:
            self._detect_step(now)
        self._last_wall = now
        return WallSeconds(now)

    def steady(self) -> SteadySeconds:
        """Return the time of the steady clock. See `Clock.steady`."""
        now = time.monotonic()
        if self._last_tick and now - self._last_tick > _PAUSE_S:
            self._pause(now)
        if self._held_at is not None:
            now = self._held_at
        self._latest_steady = now
        return SteadySeconds(self._origin + now)

    def steady_unpaused(self) -> SteadySeconds:
        """Return the time of the steady clock without pauses. See `Clock.steady_unpaused`."""
        return SteadySeconds(self.steady() - self._paused_s)

    def on_wall_clock_step(self, notify: Callable[[float], None]) -> Callable[[], None]:
        """Call a function when the wall clock has been set. See `Clock.on_wall_clock_step`."""
        self._listeners.append(notify)
        return lambda: self._listeners.remove(notify)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once after `delay` seconds, unless the function returned is called before."""
        loop = asyncio.get_running_loop()
        if delay <= 0:
            return loop.call_later(0, callback).cancel
        return _Timer(self, delay, callback).cancel

    def _detect_step(self, now: float) -> None:
        """Notify the listeners if the wall clock has been set."""
        step = now - time.monotonic() - self._origin - self.wall_offset_s
        if abs(step) >= MIN_STEP_S:
            self.wall_offset_s += step
            self._last_wall = now
            for notify in tuple(self._listeners):
                notify(step)

    @property
    def is_paused(self) -> bool:
        """True while the steady clock is stopped until sockets have been read."""
        self.steady()
        return self._held_at is not None

    def _tick(self) -> None:
        self.steady()
        self._last_tick = time.monotonic()
        self._detect_step(time.time())
        self._cancel_tick = self._loop.call_later(_TICK_S, self._tick).cancel

    def _pause(self, now: float) -> None:
        """Stop the steady clock until the sockets have been read."""
        self._last_tick = now
        if self._held_at is None:
            self._held_at = self._latest_steady
            self._loop.call_soon_threadsafe(self._loop.call_later, _READ_ROUND_S, self._resume, 1)

    def _resume(self, rounds: int) -> None:
        """Restart the steady clock, unless commands that have been read await execution."""
        is_reading = self._scheduler is not None and self._scheduler.queue_length > 0
        if is_reading and rounds < MAX_READ_ROUNDS:
            self._loop.call_later(_READ_ROUND_S, self._resume, rounds + 1)
        elif self._held_at is not None:
            self._paused_s += time.monotonic() - self._held_at
            self._held_at = None


class _Timer:
    """A timer that, after a pause, fires only once the sockets have been read."""

    __slots__ = ("_callback", "_clock", "_handle")

    def __init__(self, clock: LoopClock, delay: float, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._handle = asyncio.get_running_loop().call_later(delay, self._fire)

    def cancel(self) -> None:
        """Cancel the call."""
        self._handle.cancel()

    def _fire(self) -> None:
        if self._clock.is_paused:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(_READ_ROUND_S, self._fire)
        else:
            self._callback()


def _do_nothing() -> None:
    """Do nothing: stands for the cancellation of the tick before `watch`."""
