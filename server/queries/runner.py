"""Runs queries a slice at a time, so that a large one holds nobody up.

Each turn gives every query at most one slice, and ends when it has taken long enough; before the
next turn the event loop serves all connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.clock import Clock

_TURN_SECONDS: Final = 0.005
_SLICES_AT_ONCE: Final = 4


class Sliced(Protocol):
    """Work that is done in slices."""

    def step(self) -> bool:
        """Do a slice; whether there is more to do."""


class SliceRunner:
    """Shares the engine's time among work that is done in slices.

    Args:
        clock: tells how long a turn has taken, and when the next one is.
        flush: called after a turn.
    """

    def __init__(self, clock: Clock, flush: Callable[[], None]) -> None:
        self._clock = clock
        self._flush = flush
        self._waiting: deque[Sliced] = deque()

    def start(self, work: Sliced) -> None:
        """Do the first few slices now, which is all of a small query, the others in later turns."""
        end = self._clock.now() + _TURN_SECONDS
        for _ in range(_SLICES_AT_ONCE):
            if not work.step():
                return
            if self._clock.now() >= end:
                break
        if not self._waiting:
            self._clock.call_later(0, self._turn)
        self._waiting.append(work)

    def _turn(self) -> None:
        end = self._clock.now() + _TURN_SECONDS
        for _ in range(len(self._waiting)):
            work = self._waiting.popleft()
            if work.step():
                self._waiting.append(work)
            if self._clock.now() >= end:
                break
        self._flush()
        if self._waiting:
            self._clock.call_later(0, self._turn)
