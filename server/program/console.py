"""What a command prints, when nobody reads it, when the disk is full, and in every encoding."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

_STANDARD_OUTPUT: Final = 1


class OutputError(Exception):
    """Standard output cannot be written. The text is for the person who started the command."""


def occupy_standard_streams() -> None:
    """Open what the process was started without, so that no socket or file takes its number.

    Otherwise a log file might become standard output, and what is printed end up in it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one


def print_to_nowhere() -> None:
    """Keep what is still in a buffer from failing once more at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_OUTPUT)


def put(text: str, encoding: str | None = None) -> None:
    """Write to standard output, or to nowhere once nobody reads on (head, less).

    What the command ends with is then what it would be otherwise.

    Args:
        text: what the command was asked for.
        encoding: the encoding to write it in; that of the terminal if None, where characters that
            the terminal does not have are escaped.

    Raises:
        OutputError: it cannot be written.
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
    """Write all of it without a buffer, which would be flushed, and fail, once more at the exit."""
    while octets:
        octets = octets[os.write(descriptor, octets) :]


def say(line: str) -> None:
    """Write a line to standard error, if there is one: nothing depends on it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr)
