"""The rate of a replay: messages a second, bytes a second, or a multiple of the original speed.

Source: AMPS User Guide, Delivery Rate Control for Bookmark Subscriptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from config_schema.units import UnitError, parse_size
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.storage.journal import JournalEntry

_MULTIPLE: Final = re.compile(r"(\d+\.?\d*|\.\d+)[xX]")
_MESSAGES: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class ReplayRate:
    """A rate as a subscriber requests it.

    Attributes:
        value: units per second; for a multiple, seconds of the original per second.
        unit: the unit that is counted.
        max_gap_s: maximum seconds to wait for a message; None for no limit.
    """

    value: float
    unit: Literal["messages", "bytes", "multiple"]
    max_gap_s: float | None = None


def parse_rate(text: str, max_gap_s: float | None) -> ReplayRate:
    """Parse the option `rate`.

    Raises:
        ValueError: it is no rate; the text describes the expected form.
    """
    if match := _MULTIPLE.fullmatch(text):
        terms = ReplayRate(float(match[1]), "multiple", max_gap_s)
    elif _MESSAGES.fullmatch(text):
        terms = ReplayRate(int(text), "messages", max_gap_s)
    else:
        try:
            terms = ReplayRate(parse_size(text), "bytes", max_gap_s)
        except UnitError:
            raise ValueError(
                f"expected messages a second (1000), bytes a second (500KB), or a multiple of the"
                f" original speed (2X), not {text!r}"
            ) from None
    if terms.value <= 0:
        raise ValueError("a rate of nothing would never deliver anything; option pause does that")
    return terms


class ReplayRateLimiter:
    """Determines for each message of a replay when it may be sent.

    Args:
        rate: the rate.
    """

    def __init__(self, rate: ReplayRate) -> None:
        self._rate = rate
        self._next_due_s: float | None = None  # when the next message may be sent
        self._previous_entry: JournalEntry | None = None  # the message before
        self._previous_recorded_us = 0

    def delay(self, entry: JournalEntry, recorded_us: int, now_s: float) -> float:
        """Return how many seconds a message has to wait; if 0, it counts as sent.

        Args:
            entry: the next message.
            recorded_us: when it was recorded, in microseconds, by a clock that was never set back.
            now_s: the time of the steady clock.
        """
        rate, previous_entry = self._rate, self._previous_entry
        if self._next_due_s is None or previous_entry is None:
            due_s = now_s
        else:
            if rate.unit == "messages":
                gap = 1 / rate.value
            elif rate.unit == "bytes":
                gap = len(previous_entry.body) / rate.value
            else:
                gap_us = recorded_us - self._previous_recorded_us
                gap = gap_us / MICROSECONDS_PER_SECOND / rate.value
            if rate.max_gap_s is not None:
                gap = min(gap, rate.max_gap_s)
            due_s = self._next_due_s + gap
        if due_s > now_s:
            return due_s - now_s
        # After a delay the rate is not exceeded, except to make up for the lateness of a timer.
        self._next_due_s = max(due_s, now_s - _MAX_LATE)
        self._previous_entry, self._previous_recorded_us = entry, recorded_us
        return 0.0


_MAX_LATE: Final = 0.1
