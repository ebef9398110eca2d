"""Processes that steps start are not left behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from contextlib import suppress

import pytest

from actions.child_process import Process, start_process
from actions.services import ActionThreads
from tests.support.waiting import WAIT_SECONDS, wait_until


@pytest.mark.process
def test_a_process_is_killed_that_is_started_too_late() -> None:
    """Nobody waits for it any more, and the event loop is gone."""
    is_starting, may_start = threading.Event(), threading.Event()
    processes: list[Process] = []

    def start() -> Process:
        is_starting.set()
        may_start.wait(WAIT_SECONDS)
        processes.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
        return processes[0]

    async def give_up() -> None:
        task = asyncio.create_task(start_process(helpers, start))
        await asyncio.to_thread(is_starting.wait, WAIT_SECONDS)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    helpers = ActionThreads()
    asyncio.run(give_up())
    may_start.set()
    wait_until(lambda: bool(processes))
    assert processes[0].wait(WAIT_SECONDS) == -signal.SIGKILL
    helpers.close()
