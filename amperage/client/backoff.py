"""How long to wait before the next attempt: exponential back-off with jitter and limits.

Nothing here sleeps or looks at a clock, so that an hour of failures can be tested in a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LARGEST_EXPONENT: Final = 64
"""Beyond it every delay has long reached its limit, and powers would overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delays between rounds of attempts, and when to stop trying.

    Attributes:
        first: seconds before the second round.
        factor: by how much each delay is longer than the one before it.
        longest: seconds that no delay exceeds.
        jitter: the share of a delay that is left to chance, 0 to 1, so that the clients of a server
            that went down do not all come back in the same moment.
        attempts: how many attempts may fail in a row; None for any number.
        seconds: how long attempts may go on without success; None for ever.

    Raises:
        ValueError: the numbers make no sense together.
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
        """The delay after some rounds in which every server was tried once.

        Args:
            rounds: how many rounds have failed in a row. Before the first there is no delay.
            chance: a number from 0 to 1, such as `random.random()` gives.

        Returns:
            Seconds.
        """
        if rounds <= 0:
            return 0.0
        exponent = min(rounds - 1, _LARGEST_EXPONENT)
        whole = min(self.longest, self.first * self.factor**exponent)
        return whole * (1 - self.jitter * chance)

    def is_over(self, failures: int, seconds: float) -> bool:
        """Whether to stop trying.

        Args:
            failures: how many attempts have failed in a row.
            seconds: how long ago the first of them began.
        """
        return (self.attempts is not None and failures >= self.attempts) or (
            self.seconds is not None and seconds >= self.seconds
        )
