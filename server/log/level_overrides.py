"""Levels of log targets that an operator has changed for a time.

A target has one override at most: a later one replaces it. Used on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.log.event_log import EventLog
    from server.log.target_filter import LevelOverride
    from server.util.clock import Timer

CONFIGURED_LEVEL: Final = "configured"
"""The name of the level that a target has by the configuration."""


class LevelOverrides:
    """Overrides levels of the targets of a log.

    Args:
        log: the log.
        timer: ends the overrides.

    Attributes:
        targets: the targets, by their numbers in the configuration.
    """

    def __init__(self, log: EventLog, timer: Timer) -> None:
        self.targets: Final = {str(number): one for number, one in enumerate(log.targets, 1)}
        self._log = log
        self._timer = timer
        self._cancel_functions: dict[str, Callable[[], None]] = {}

    def override(self, number: str, override: LevelOverride, duration_s: float) -> None:
        """Override the level of a target for a time.

        Raises:
            re.error: the override's pattern is not a regular expression.
        """
        target = self.targets[number]
        self._log.override_level(target, override)
        self._cancel_timer(number)
        self._cancel_functions[number] = self._timer.call_later(
            duration_s, lambda: self.reset(number)
        )
        self._log.emit(
            "2C-0002", target=target.name, level=str(override), seconds=round(duration_s, 3)
        )

    def reset(self, number: str) -> None:
        """Let a target be as configured again, if it is not."""
        target = self.targets[number]
        self._cancel_timer(number)
        if target.override is not None:
            self._log.override_level(target, None)
            self._log.emit("2C-0003", target=target.name)

    def _cancel_timer(self, number: str) -> None:
        cancel = self._cancel_functions.pop(number, None)
        if cancel is not None:
            cancel()
