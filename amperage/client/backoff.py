"""The delay before the next attempt: exponential back-off with jitter and limits.

This module neither sleeps nor reads a clock, so that tests of an hour of failures are fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_EXPONENT: Final = 64
"""Larger exponents could overflow; the delay has reached its limit long before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delays between rounds of attempts, and the limits of attempts.

    Attributes:
        first: the delay before the second round, in seconds.
        factor: the factor by which each delay is longer than the one before it.
        longest: the maximum delay, in seconds.
        jitter: the random share of a delay, 0 to 1, so that the clients of a failed server do not
            all reconnect at the same time.
        attempts: the maximum number of consecutive failures; None for no limit.
        seconds: the maximum duration of attempts without success, in seconds; None for no limit.

    Raises:
        ValueError: a number is out of range.
    """

    first: float = 0.2
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5
    attempts: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.longest:
            raise ValueError(f"first is {self.first:g}, expected 0 to longest ({self.longest:g})")
        if self.factor < 1:
            raise ValueError(f"factor is {self.factor:g}, expected at least 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is {self.jitter:g}, expected 0 to 1")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}, expected at least 1")

    def delay(self, rounds: int, chance: float) -> float:
        """Return the delay after some rounds, in each of which every server was tried once.

        Args:
            rounds: the number of consecutive failed rounds. Before the first there is no delay.
            chance: a random number from 0 to 1, such as from `random.random()`.

        Returns:
            The delay in seconds.
        """
        if rounds <= 0:
            return 0.0
        exponent = min(rounds - 1, _MAX_EXPONENT)
        whole = min(self.longest, self.first * self.factor**exponent)
        return whole * (1 - self.jitter * chance)

    def is_over(self, failures: int, seconds: float) -> bool:
        """Return whether a limit is reached.

        Args:
            failures: the number of consecutive failed attempts.
            seconds: the seconds since the first of them began.
        """
        return (self.attempts is not None and failures >= self.attempts) or (
            self.seconds is not None and seconds >= self.seconds
        )
