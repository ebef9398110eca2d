"""Running in the background, without leaving whoever started it in the dark.

The starting process waits until the instance says that it runs, or why it does not, so that the
exit code of `ampServer --daemon` tells the truth. From then on nothing leads from the instance to
where it was started: whoever reads the output of the command to its end does not wait for the
instance's end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from server.program.console import OutputError, put, say

_READY: Final = "ready "


def detach() -> Callable[[str | None], None]:
    """Go on in a process of its own, without terminal; the calling process does not return.

    Returns:
        A function that tells the starting process how the start went: None for success, else what
        went wrong. Call it once.
    """
    reader, writer = os.pipe()
    if os.fork() > 0:
        os.close(writer)
        _exit_as_told(reader)
    os.setsid()
    if os.fork() > 0:
        os._exit(0)  # so that the daemon leads no session and can never get a terminal
    os.close(reader)
    return lambda failure: _report(writer, failure)


def _exit_as_told(reader: int) -> None:
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode(errors="replace")
    ready, _, process = told.partition(_READY)
    is_ready = process != "" and not ready
    if is_ready:
        with contextlib.suppress(OutputError):  # nobody has to read it
            put(f"running in the background as process {process}\n")
    else:
        say(told or "the server ended while starting")
    os._exit(0 if is_ready else 1)


def _report(writer: int, failure: str | None) -> None:
    if failure is None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
    told = f"{_READY}{os.getpid()}" if failure is None else failure
    with contextlib.suppress(BrokenPipeError):  # whoever started it has gone
        os.write(writer, told.encode(errors="backslashreplace"))
    os.close(writer)
