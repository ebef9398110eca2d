"""Runs the instance in the background, and reports the outcome of the start to its caller.

The starting process waits until the instance reports that it runs, or why it does not, so that the
exit code of `ampServer --daemon` is correct. From then on the instance has no descriptor of its
caller: a process that reads the output of the command to its end does not wait for the end of the
instance.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from server.app.stdio import OutputError, put, say

_READY: Final = "ready "


def detach() -> Callable[[str | None], None]:
    """Continue in a process of its own, without terminal; the calling process does not return.

    Returns:
        A function that reports the outcome to the starting process: None for success, else the
        error. Call it once.
    """
    reader, writer = os.pipe()
    if os.fork() > 0:
        os.close(writer)
        _exit_as_told(reader)
    os.setsid()
    if os.fork() > 0:
        os._exit(0)  # the daemon is no session leader, so it can never get a terminal
    os.close(reader)
    return lambda failure: _report(writer, failure)


def _exit_as_told(reader: int) -> None:
    with os.fdopen(reader, "rb") as pipe:
        report = pipe.read().decode(errors="replace")
    ready, _, process = report.partition(_READY)
    is_ready = process != "" and not ready
    if is_ready:
        with contextlib.suppress(OutputError):  # the message is optional
            put(f"running in the background as process {process}\n")
    else:
        say(report or "the server ended while starting")
    os._exit(0 if is_ready else 1)


def _report(writer: int, failure: str | None) -> None:
    if failure is None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
    report = f"{_READY}{os.getpid()}" if failure is None else failure
    with contextlib.suppress(BrokenPipeError):  # the starting process has exited
        os.write(writer, report.encode(errors="backslashreplace"))
    os.close(writer)
