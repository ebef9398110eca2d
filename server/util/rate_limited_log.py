"""A rate limit for log entries that any peer can cause: so many per peer and minute.

A peer that connects again and again and is refused would otherwise fill the log, and hide the
entries about others. So entries are counted by their cause. Suppressed entries are counted, and
their number is logged when the minute is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.util.log_protocol import ServerLog

MAX_ENTRIES_PER_MINUTE: Final = 10
"""Entries of one kind that one host or user may cause in a minute."""
MINUTE: Final = 60.0
_MAX_KNOWN: Final = 1_000
"""Counts kept per minute; hosts and users beyond them share one count per kind of entry."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Count:
    written: int = 0
    suppressed: int = 0


class RateLimitedLog:
    """Writes rate-limited log entries.

    Args:
        log: the log that they are written to.
        call_later: calls a function once, after some seconds.
    """

    def __init__(
        self, log: ServerLog, call_later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._log = log
        self._call_later = call_later
        self._counts: dict[tuple[str, str], _Count] = {}

    def emit(self, message_id: str, cause: str, /, **fields: object) -> bool:
        """Write an entry, unless there have been too many of its kind.

        Args:
            message_id: its id in the catalogue.
            cause: its cause: a host, a user.
            fields: its fields.

        Returns:
            Whether it has been written.
        """
        key = (message_id, cause)
        if key not in self._counts and len(self._counts) >= _MAX_KNOWN:
            key = (message_id, _OTHERS)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count()
            self._call_later(MINUTE, lambda: self._end_minute(key))
        if count.written >= MAX_ENTRIES_PER_MINUTE:
            count.suppressed += 1
            return False
        count.written += 1
        self._log.emit(message_id, **fields)
        return True

    def _end_minute(self, key: tuple[str, str]) -> None:
        suppressed = self._counts.pop(key).suppressed
        if suppressed:
            message_id, cause = key
            self._log.emit("01-0012", count=suppressed, message=message_id, who=cause)


def on_running_loop(seconds: float, call: Callable[[], None]) -> object:
    """Call a function after some seconds, for `RateLimitedLog` that are used on one event loop."""
    return asyncio.get_running_loop().call_later(seconds, call)


def host_of(address: str) -> str:
    """Return the host of an address with a port."""
    host, colon, _ = address.rpartition(":")
    return host if colon else address
