"""Processes that a step starts, waits for, and may have to kill with all that they started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.services import ActionThreads

Process = subprocess.Popen[bytes]


async def start_process(helpers: ActionThreads, start: Callable[[], Process]) -> Process:
    """Start a process on a helper thread.

    Args:
        helpers: the threads.
        start: starts it, as the leader of a session of its own.

    Raises:
        asyncio.CancelledError: there is no time left; a process that is being started is killed.
    """
    process_start = _ProcessStart(start)
    try:
        return await helpers.call(process_start.run)
    except asyncio.CancelledError:
        process_start.abort()
        raise


class _ProcessStart:
    """A process that is being started, and may be given up meanwhile.

    Args:
        start: starts it.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._is_aborted = False

    def run(self) -> Process:
        """Start it; the event loop may be gone by then, so it is killed here if need be."""
        process = self._start()
        with self._lock:
            self._process = process
            if self._is_aborted:
                kill(process)
        return process

    def abort(self) -> None:
        """Kill it, now or as soon as it has been started."""
        with self._lock:
            self._is_aborted = True
            if self._process is not None:
                kill(self._process)


def kill(process: Process) -> None:
    """Kill a process, if it runs, with everything in its session."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
