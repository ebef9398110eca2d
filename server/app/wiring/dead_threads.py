"""Handles the failure of a helper thread: an essential one ends the process, others are logged.

Clients wait for the work of essential threads: for the disk, or for other instances. Without the
thread they would wait without end, unnoticed. So the process exits at once, as in a crash, which
loses nothing that was acknowledged: clients connect elsewhere or reconnect, and the operator
restarts the server. The loss of a thread that no client waits for is only logged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.log.event_log import EventLog

EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h: an internal software error."""

_ESSENTIAL: Final = frozenset({"journal-commit", "sow-commit", "replication-send"})
"""The names of threads that clients wait for."""


def watch_threads(log: EventLog) -> Callable[[], None]:
    """Log threads that fail, and end the process if the thread was essential.

    Args:
        log: the log.

    Returns:
        A function that ends the watch.
    """
    before = threading.excepthook

    def note(failed: threading.ExceptHookArgs) -> None:
        name = "" if failed.thread is None else failed.thread.name
        error = repr(failed.exc_value)
        if name in _ESSENTIAL:
            log.emit("01-0005", thread=name, error=error)
            log.flush()
            os._exit(EXIT_CODE)
        log.emit("01-0004", text=f"the thread {name} has ended", error=error)

    def forget() -> None:
        threading.excepthook = before

    threading.excepthook = note
    return forget
