"""Output of commands, also to closed pipes, to full disks, and in every encoding."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

_STANDARD_OUTPUT: Final = 1


class OutputError(Exception):
    """Standard output cannot be written. The text is for the user of the command."""


def open_standard_streams() -> None:
    """Open missing standard descriptors on /dev/null, so that no socket or file gets their numbers.

    Otherwise a log file might become standard output, and get everything that is printed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def mute_standard_output() -> None:
    """Redirect standard output to /dev/null, so that the flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_OUTPUT)


def put(text: str, encoding: str | None = None) -> None:
    """Write to standard output; drop the text once the reader (head, less) has closed the pipe.

    The exit code of the command is the same in both cases.

    Args:
        text: the output of the command.
        encoding: the encoding to write it in; that of the terminal if None. Characters that it
            lacks are escaped.

    Raises:
        OutputError: standard output cannot be written.
    """
    stream = sys.stdout
    if stream is None:
        raise OutputError("standard output is closed")
    octets = text.encode(encoding or stream.encoding, errors="backslashreplace")
    try:
        stream.flush()
        _write(stream.fileno(), octets)
    except BrokenPipeError:
        return
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from None


def _write(descriptor: int, octets: bytes) -> None:
    """Write all octets unbuffered: a buffer would be flushed, and fail, once more at exit."""
    while octets:
        octets = octets[os.write(descriptor, octets) :]


def say(line: str) -> None:
    """Write a line to standard error, if there is one; ignore errors."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr)
