"""How tests wait for what another thread, or another process, does a little later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

WAIT_SECONDS: Final = 60.0
"""How long a test waits for something that must come.

Nothing is slow because this is long: whoever waits goes on when it has come. It is what a machine
that is busy with other things as well may take.
"""

LOOK_SECONDS: Final = 0.01
MAX_LOOK_SECONDS: Final = 0.1
"""How long a test waits between two looks: a tenth of the time that it has waited, within these,
or twice as long as a look takes if that is longer.

A test that reads a whole log to see whether all of it is there keeps the processor from the
threads that bring it there; one that asks a server keeps it from that server.
"""


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether something is true, now or soon."""
    first = begun = time.monotonic()
    while not condition():
        ended = time.monotonic()
        waited = ended - first
        if waited > WAIT_SECONDS:
            return False
        pause = min(max(LOOK_SECONDS, waited / 10), MAX_LOOK_SECONDS)
        time.sleep(max(pause, 2 * (ended - begun)))
        begun = time.monotonic()
    return True


def wait_until(condition: Callable[[], bool], complaint: Callable[[], object] | str = "") -> None:
    """Wait for something that must become true.

    Args:
        condition: tells whether it is.
        complaint: what to say if it never is, or what to call for it.

    Raises:
        AssertionError: it did not become true.
    """
    if not comes_true(condition):
        said = complaint() if callable(complaint) else complaint
        raise AssertionError(said or "it did not come true")
