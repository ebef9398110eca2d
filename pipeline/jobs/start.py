"""Starts the Spark session of a job without Java's log output; reports a failure in one line."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Timer, current_thread, main_thread
from typing import IO, TYPE_CHECKING, Final

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHATTER: Final = re.compile(r"WARN|Using Spark's|Setting default|To adjust logging|NOTE: ")
_EXCEPTION: Final = re.compile(r"(?:\w+\.)+\w+(?:Exception|Error): ")
_ERRORS: Final = 2
"""The descriptor of standard error, which Java inherits."""

_NOTICE_DELAY_S: Final = 1.0
"""Seconds of waiting before the notice is shown."""


def started(name: str, master: str, conf: Mapping[str, str], *, shows: bool) -> SparkSession:
    """Start Spark (see `pipeline.session`) and restore the handler of interrupts.

    Args:
        name: the application's name.
        master: the Spark master.
        conf: Spark settings.
        shows: whether to show on a terminal that a slow start is in progress.

    Raises:
        PipelineError: Java could not start it.
    """
    from pyspark.errors import PySparkRuntimeError

    from pipeline import session

    interrupted = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as errors:
        try:
            with _redirected(errors) as terminal, _start_notice(terminal, shows=shows):
                return session(name, master=master, conf=conf)
        except PySparkRuntimeError as problem:
            raise PipelineError(f"Spark cannot start: {_reason(errors, problem)}") from None
        finally:
            if current_thread() is main_thread():
                # Spark's handler calls Java from within a call of Java, which fails.
                signal.signal(signal.SIGINT, interrupted)


@contextmanager
def _redirected(errors: IO[bytes]) -> Iterator[int]:
    """Redirect the standard error of Java to a file; yields a descriptor of the original one."""
    sys.stderr.flush()
    before = os.dup(_ERRORS)
    os.dup2(errors.fileno(), _ERRORS)
    try:
        yield before
    finally:
        os.dup2(before, _ERRORS)
        os.close(before)


@contextmanager
def _start_notice(terminal: int, *, shows: bool) -> Iterator[None]:
    """Show a notice on a terminal if the start is slow, and erase it at the end."""
    notice_shown = Event()

    def show() -> None:
        notice_shown.set()
        os.write(terminal, b"Starting Spark ...")

    timer = Timer(_NOTICE_DELAY_S, show)
    if shows:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if shows:
            timer.join()
        if notice_shown.is_set():
            os.write(terminal, b"\r\x1b[K")


def _reason(errors: IO[bytes], problem: Exception) -> str:
    """Return the error that Java printed before it ended."""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").splitlines()
    messages = [line for line in lines if line.strip() and not _CHATTER.search(line)]
    for line in messages:
        match = _EXCEPTION.search(line)
        if match:
            return line[match.end() :]
    return messages[0] if messages else str(problem)
