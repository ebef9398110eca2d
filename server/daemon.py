"""Running in the background, without leaving whoever started it in the dark.

The starting process waits until the instance says that it runs, or why it does not, so that the
exit code of `ampServer --daemon` tells the truth.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from server.console import say

_READY: Final = b"ready"


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
        told = pipe.read()
    if told != _READY:
        say(told.decode(errors="replace") or "the server ended while starting")
    os._exit(0 if told == _READY else 1)


def _report(writer: int, failure: str | None) -> None:
    told = _READY if failure is None else failure.encode(errors="backslashreplace")
    with contextlib.suppress(BrokenPipeError):  # whoever started it has gone
        os.write(writer, told)
    os.close(writer)
    if failure is None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.close(nowhere)
