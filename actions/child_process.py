"""Processes that a step starts, waits for, and may have to kill with all that they started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.services import Helpers

Process = subprocess.Popen[bytes]


async def started(helpers: Helpers, start: Callable[[], Process]) -> Process:
    """Start a process on a helper thread.

    Args:
        helpers: the threads.
        start: starts it, as the leader of a session of its own.

    Raises:
        asyncio.CancelledError: there is no time left; what is just being started is killed.
    """
    starting = asyncio.ensure_future(helpers.call(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(lambda done: kill(done.result()))
        raise


def kill(process: Process) -> None:
    """Kill a process, if it runs, with everything in its session."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
