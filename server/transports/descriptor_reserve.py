"""Reserves some of the process's file descriptors for the server itself.

If connections used up all of them, the server could not read journals for replays, nor open
records, logs and certificates. The kernel assigns the lowest free number, so the number of a
connection's descriptor indicates how many are in use.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Final

from server.util.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog

_MAX_RESERVED: Final = 64
_LOG_INTERVAL_S: Final = 10.0


class DescriptorReserve:
    """Decides which connections can be served.

    Args:
        clock: the clock.
        log: gets an entry when there are too many connections, at most once per interval.
    """

    def __init__(self, clock: Clock, log: ServerLog) -> None:
        self._log = RateLimitedLog(log, clock, burst=1, window_s=_LOG_INTERVAL_S, summary=None)

    def has_room(self, descriptor: int) -> bool:
        """Return whether a connection with this descriptor leaves enough others free."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed == resource.RLIM_INFINITY:
            return True
        if descriptor < allowed - min(_MAX_RESERVED, allowed // 4):
            return True
        self._log.emit("11-0020", limit=allowed)
        return False
