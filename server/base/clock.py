"""Time as the core sees it: passed in, so that a test can drive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Tells the time and wakes the core up."""

    def now(self) -> float:
        """The wall-clock time in seconds since the Unix epoch."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once after `delay` seconds.

        Returns:
            A function that cancels the call; harmless once it has been made.
        """
