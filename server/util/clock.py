"""The interface of clocks: a clock is passed in, so that a test can drive it.

Two kinds of time have different types. The wall clock is for people and files; it may be set at any
moment, forward or back. Every duration, deadline and timeout is measured by the
steady clock, which is never set. Take a difference of two moments of one kind only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NewType, Protocol

WallSeconds = NewType("WallSeconds", float)
"""A moment of the wall clock: seconds since the Unix epoch."""

SteadySeconds = NewType("SteadySeconds", float)
"""A moment of the steady clock: the wall clock at the start, and the seconds since then."""

WallMicroseconds = NewType("WallMicroseconds", int)
"""A moment of the wall clock: microseconds since the Unix epoch."""

ElapsedMicroseconds = NewType("ElapsedMicroseconds", int)
"""Microseconds since some moment, measured by a clock that is never set."""

MICROSECONDS_PER_SECOND: Final = 1_000_000

MIN_STEP_S: Final = 0.5
"""A difference of the wall clock below this, in seconds, does not count as a step."""


class Timer(Protocol):
    """Measures intervals and schedules callbacks."""

    def steady(self) -> SteadySeconds:
        """Return the time of the steady clock, which goes on while the process is paused."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function once after `delay` seconds.

        Returns:
            A function that cancels the call; harmless once it has been made.
        """


class Clock(Timer, Protocol):
    """Measures intervals, schedules callbacks, and has the time of the wall clock."""

    def now(self) -> WallSeconds:
        """Return the wall-clock time."""

    def steady_unpaused(self) -> SteadySeconds:
        """Return the time of the steady clock without the pauses of this process.

        The silence of a peer is measured by it: data that came in a pause have not been read yet.
        """

    @property
    def wall_offset_s(self) -> float:
        """Seconds that the wall clock has been set ahead since the start; negative: set back.

        A moment of the wall clock as it is set now, less this, is one of the steady clock.
        """

    def on_wall_clock_step(self, notify: Callable[[float], None]) -> Callable[[], None]:
        """Call a function, with the seconds, whenever the wall clock has been set.

        It is called before `now` returns a time of the clock that has been set.

        Returns:
            A function after which it is not called any more.
        """


def no_timer() -> None:
    """Cancel nothing: takes the place of a function that cancels a timer while none is set."""
