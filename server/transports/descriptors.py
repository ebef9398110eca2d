"""Connections leave some of the process's file descriptors to what the server needs for itself.

Were they to use up all of them, journals could not be read for replays, nor records, logs and
certificates be opened. The system gives the lowest number that is free, so the number of a
connection's descriptor tells how many are in use.
"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log

_MOST_RESERVED: Final = 64
_SAY_AGAIN_SECONDS: Final = 10.0


class DescriptorReserve:
    """Says which connections can be served.

    Args:
        clock: tells the time.
        log: told when there are too many, now and then.
    """

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._said = 0.0

    def has_room(self, descriptor: int) -> bool:
        """Whether the connection with a descriptor leaves enough others."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed == resource.RLIM_INFINITY:
            return True
        if descriptor < allowed - min(_MOST_RESERVED, allowed // 4):
            return True
        now = self._clock.steady()
        if now - self._said >= _SAY_AGAIN_SECONDS:
            self._said = now
            self._log.emit("11-0020", limit=allowed)
        return False
