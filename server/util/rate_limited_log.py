"""A rate limit for log entries that may occur at any rate: so many per cause and window of time.

A peer that connects again and again and is refused would otherwise fill the log, and hide the
entries about others. So entries are counted by their cause. Suppressed entries are counted, and
summed up in one entry when the window is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from server.util.clock import SteadySeconds

if TYPE_CHECKING:
    from server.util.clock import Timer
    from server.util.log_protocol import ServerLog

MAX_ENTRIES_PER_MINUTE: Final = 10
"""Entries of one kind that one host or user may cause in a minute."""
MINUTE_S: Final = 60.0
MAX_CAUSES: Final = 1_000
"""Causes counted separately in a window; those beyond them share one count per kind of entry."""


@dataclass(slots=True)
class LogWindow:
    """The entries of one cause since the first of them.

    Attributes:
        cause: their cause.
        since_s: the time of the first.
        burst: the number of entries to write.
        message_id: the id of the last entry, written or suppressed.
        fields: the fields of the last suppressed entry.
        age: the duration of the window; set at its end.
        entry_count: number of entries, including those that were suppressed.
        event_count: number of events that all entries are about.
        suppressed_count: number of events that the suppressed entries are about.
    """

    cause: Hashable
    since_s: SteadySeconds
    burst: int
    message_id: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    age: timedelta = timedelta()
    entry_count: int = 0
    event_count: int = 0
    suppressed_count: int = 0


Summary = Callable[["ServerLog", LogWindow], None]
"""Writes the entry that sums up a window with suppressed entries."""


def log_suppressed_count(log: ServerLog, window: LogWindow) -> None:
    """Log the number of suppressed entries."""
    log.emit(
        "01-0012", count=window.suppressed_count, message=window.message_id, source=window.cause
    )


class RateLimitedLog:
    """Writes rate-limited log entries.

    Args:
        log: the log that they are written to.
        clock: the time, and timers.
        burst: entries written per cause and window.
        window_s: the length of a window, which begins with an entry.
        summary: sums up a window that has suppressed entries; None to omit that.
        is_joint: whether entries of one cause share a window, rather than those with one id.
        is_continued: whether a window with suppressed entries is followed by one in which all
            entries are suppressed, so that a cause that goes on is only summed up.
    """

    def __init__(
        self,
        log: ServerLog,
        clock: Timer,
        *,
        burst: int = MAX_ENTRIES_PER_MINUTE,
        window_s: float = MINUTE_S,
        summary: Summary | None = log_suppressed_count,
        is_joint: bool = False,
        is_continued: bool = False,
    ) -> None:
        self._log: Final = log
        self._clock: Final = clock
        self._burst: Final = burst
        self._window_s: Final = window_s
        self._summary: Final = summary
        self._is_joint: Final = is_joint
        self._is_continued: Final = is_continued
        self._windows: dict[tuple[str, Hashable], LogWindow] = {}

    def emit(self, message_id: str, cause: Hashable = "", /, **fields: object) -> bool:
        """Write an entry, unless there have been too many of its kind.

        Args:
            message_id: its id in the catalogue.
            cause: its cause: a host, a user.
            fields: its fields.

        Returns:
            Whether it has been written.
        """
        return self.emit_events(message_id, cause, fields)

    def emit_events(
        self,
        message_id: str,
        cause: Hashable,
        fields: dict[str, object],
        *,
        group: Hashable = "others",
        events: int = 1,
    ) -> bool:
        """Write an entry about several events, unless there have been too many of its kind.

        Args:
            message_id: its id in the catalogue.
            cause: its cause.
            fields: its fields.
            group: the cause to count it for when there are too many causes.
            events: the number of events that it is about.

        Returns:
            Whether it has been written.
        """
        key = self._key(message_id, cause)
        if key not in self._windows and len(self._windows) >= MAX_CAUSES:
            key = self._key(message_id, group)
        window = self._windows.get(key) or self._open_window(key, self._burst)
        window.message_id = message_id
        window.entry_count += 1
        window.event_count += events
        if window.entry_count > window.burst:
            window.fields = fields
            window.suppressed_count += events
            return False
        self._log.emit(message_id, **fields)
        return True

    def is_suppressed(self, message_id: str) -> bool:
        """Return whether an entry would not be written; saves the computation of its fields."""
        window = self._windows.get(self._key(message_id, ""))
        return window is not None and window.entry_count >= window.burst

    def _key(self, message_id: str, cause: Hashable) -> tuple[str, Hashable]:
        return "" if self._is_joint else message_id, cause

    def _open_window(self, key: tuple[str, Hashable], burst: int) -> LogWindow:
        window = self._windows[key] = LogWindow(key[1], self._clock.steady(), burst)
        self._clock.call_later(self._window_s, lambda: self._end_window(key))
        return window

    def _end_window(self, key: tuple[str, Hashable]) -> None:
        window = self._windows.pop(key)
        if window.entry_count <= window.burst:
            return
        if self._summary is not None:
            window.age = timedelta(seconds=max(int(self._clock.steady() - window.since_s), 0))
            self._summary(self._log, window)
        if self._is_continued:
            self._open_window(key, 0)


class RunningLoopTimer:
    """The `Timer` of the running event loop, for `RateLimitedLog` that are used on one loop."""

    def steady(self) -> SteadySeconds:
        """See `Timer`."""
        return SteadySeconds(asyncio.get_running_loop().time())

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Timer`."""
        return asyncio.get_running_loop().call_later(delay, callback).cancel


def host_of(address: str) -> str:
    """Return the host of an address with a port."""
    host, colon, _ = address.rpartition(":")
    return host if colon else address
