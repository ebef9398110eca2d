"""Levels of log targets that an operator has changed for a time.

A target has one override at most: a later one replaces it. Used on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.log.event_log import EventLog
    from server.log.target_filter import LevelOverride
    from server.log.targets import LogTarget
    from server.util.clock import Timer

CONFIGURED_LEVEL: Final = "configured"
"""The name of the level that a target has by the configuration."""


class LevelOverrides:
    """Overrides levels of the targets of a log.

    Args:
        log: the log.
        timer: ends the overrides.
    """

    def __init__(self, log: EventLog, timer: Timer) -> None:
        self._log = log
        self._timer = timer
        self._cancel_functions: dict[LogTarget, Callable[[], None]] = {}

    @property
    def targets(self) -> dict[str, LogTarget]:
        """The targets, by their numbers in the configuration."""
        return {str(number): one for number, one in enumerate(self._log.targets, 1)}

    def override(self, target: LogTarget, override: LevelOverride, duration_s: float) -> None:
        """Override the level of a target for a time.

        Raises:
            re.error: the override's pattern is not a regular expression.
        """
        self._log.override_level(target, override)
        self._cancel_timer(target)
        self._cancel_functions[target] = self._timer.call_later(
            duration_s, lambda: self.reset(target)
        )
        self._log.emit(
            "2C-0002", target=target.name, level=str(override), seconds=round(duration_s, 3)
        )

    def reset(self, target: LogTarget) -> None:
        """Let a target be as configured again, if it is not."""
        self._cancel_timer(target)
        if target.override is not None:
            self._log.override_level(target, None)
            self._log.emit("2C-0003", target=target.name)

    def _cancel_timer(self, target: LogTarget) -> None:
        cancel = self._cancel_functions.pop(target, None)
        if cancel is not None:
            cancel()
