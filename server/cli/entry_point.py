"""The exit of commands: closed pipes, full disks and interrupts.

Commands handle errors of their input themselves; this module handles those of output. A pipe whose
reader has exited (head, less) is a success; any other error of output is reported in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TextIO

from server.app.stdio import mute_standard_output, open_standard_streams, say

INTERRUPTED: Final = 130


_P = ParamSpec("_P")


def command(name: str, *, failed: int = 1) -> Callable[[Callable[_P, int]], Callable[_P, int]]:
    """Return a decorator for main functions that handles errors of output and interrupts.

    Main functions take the command line without the program's name; that of the process if None.

    Args:
        name: name of the command.
        failed: its exit status when it cannot print.
    """

    def decorate(main: Callable[_P, int]) -> Callable[_P, int]:
        @wraps(main)
        def run(*arguments: _P.args, **options: _P.kwargs) -> int:
            _open_missing_streams()
            try:
                try:
                    status = main(*arguments, **options)
                finally:  # help and version, too, end in an exception
                    sys.stdout.flush()
            except BrokenPipeError:
                mute_standard_output()
                return 0
            except OSError as error:
                say(f"{name}: {_failed_output(error)}: {error.strerror or error}")
                mute_standard_output()
                return failed
            except KeyboardInterrupt:
                mute_standard_output()
                return INTERRUPTED
            return status

        return run

    return decorate


def _failed_output(error: OSError) -> str:
    return "standard output" if error.filename is None else str(error.filename)


def _open_missing_streams() -> None:
    """Redirect standard output and error to /dev/null if the process was started without them."""
    open_standard_streams()
    sys.stdout = sys.stdout or _open_null()
    sys.stderr = sys.stderr or _open_null()


def _open_null() -> TextIO:
    return open(os.devnull, "w")
