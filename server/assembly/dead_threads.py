"""What becomes of the server when one of its helper threads fails.

Clients wait for what such a thread does: for the disk, or for other instances. With the thread gone
they would wait for ever, and nobody would know. So the process ends at once, as in a crash, which
loses nothing that was acknowledged: clients connect elsewhere or again, and whoever runs the server
starts it once more. Threads that nobody waits for are missed, which the log says.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from server.events.log import EventLog

EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h: an internal software error."""

_ESSENTIAL: Final = frozenset({"journal-commit", "sow-commit", "replication-send"})
"""The names of threads that clients wait for."""


def watch_threads(log: EventLog) -> Callable[[], None]:
    """Have threads that fail logged, and the process end where the thread was essential.

    Args:
        log: where it is said.

    Returns:
        A function that ends this.
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
