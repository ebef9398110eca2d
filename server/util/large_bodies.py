"""Frees large bodies in a thread of their own.

With the last reference to an object its pages return to the system, which takes 8 ms for 190 MB, or
35 ms on a slow machine, and Python holds its lock meanwhile. So the thread keeps a reference to
each large body, and frees it without the lock when all others are gone.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from server.util.daemon_threads import DaemonThreadPool
from server.util.unlocked_free import free_unshared

MIN_LARGE_BYTES: Final = 16 << 20
"""The size from which on a body is freed by the thread; smaller ones are freed within 1 ms."""

_CHECK_INTERVAL_S: Final = 0.01
_MAX_CHECK_INTERVAL_S: Final = 0.25
"""Interval of the checks for bodies to free; it grows while there are none."""

_POOL: Final = DaemonThreadPool(1, "large-bodies")
_lock: Final = threading.Lock()
_waiting: Final[dict[int, bytes]] = {}


def free_when_unused(data: bytes) -> None:
    """Let the thread free a large body after the last other reference to it is gone.

    Args:
        data: the body, or a larger text that contains it, of at least `MIN_LARGE_BYTES`.
    """
    with _lock:
        is_running = bool(_waiting)
        _waiting[id(data)] = data
    if not is_running:
        _POOL.submit(_run)


def _run() -> None:
    pause = _CHECK_INTERVAL_S
    while True:
        time.sleep(pause)
        count = len(_waiting)
        free_unshared(_waiting)
        with _lock:
            if not _waiting:
                return
        pause = (
            _CHECK_INTERVAL_S if len(_waiting) < count else min(2 * pause, _MAX_CHECK_INTERVAL_S)
        )
