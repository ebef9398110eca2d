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
"""How long a test waits between two looks."""


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether something is true, now or soon."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
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
