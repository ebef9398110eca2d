"""How commands end when nobody reads on, when a disk is full, and when somebody has had enough.

What a command reads is its own business. What it prints to is not: a pipe whose reader has gone
(head, less) is a good end, anything else that keeps it from printing is one line of complaint.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Final, Protocol, TextIO

from server.program.console import occupy_standard_streams, print_to_nowhere, say

INTERRUPTED: Final = 130


class Main(Protocol):
    """What a command starts with."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Obey the words after the command's name, those of the process if None."""
        ...


def command(name: str, *, failed: int = 1) -> Callable[[Main], Main]:
    """Make the main function of a command end well.

    Args:
        name: of the command.
        failed: its exit status when it cannot print.
    """

    def decorate(main: Main) -> Main:
        @wraps(main)
        def run(arguments: Sequence[str] | None = None) -> int:
            _open_missing_streams()
            try:
                try:
                    status = main(arguments)
                finally:  # also of help and version, which end it
                    sys.stdout.flush()
            except BrokenPipeError:
                print_to_nowhere()
                return 0
            except OSError as error:
                say(f"{name}: {_what(error)}: {error.strerror or error}")
                print_to_nowhere()
                return failed
            except KeyboardInterrupt:
                print_to_nowhere()
                return INTERRUPTED
            return status

        return run

    return decorate


def _what(error: OSError) -> str:
    return "standard output" if error.filename is None else str(error.filename)


def _open_missing_streams() -> None:
    """Let a command that was started without output or errors print them to nowhere."""
    occupy_standard_streams()
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w")
