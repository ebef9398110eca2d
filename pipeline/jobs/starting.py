"""Starts the Spark of a job without Java's chatter; what fails is told in a line."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import IO, TYPE_CHECKING, Final

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHATTER: Final = re.compile(r"WARN|Using Spark's|Setting default|To adjust logging|NOTE: ")
_EXCEPTION: Final = re.compile(r"(?:\w+\.)+\w+(?:Exception|Error): ")
_ERRORS: Final = 2
"""The descriptor of standard error, which Java inherits."""


def started(name: str, master: str, conf: Mapping[str, str]) -> SparkSession:
    """Start Spark, see `pipeline.session`; interrupts remain what they were.

    Raises:
        PipelineError: Java could not start it.
    """
    from pyspark.errors import PySparkRuntimeError

    from pipeline import session

    interrupted = signal.getsignal(signal.SIGINT)
    with tempfile.TemporaryFile() as errors:
        try:
            with _redirected(errors):
                return session(name, master=master, conf=conf)
        except PySparkRuntimeError as problem:
            raise PipelineError(f"Spark cannot start: {_reason(errors, problem)}") from None
        finally:
            if current_thread() is main_thread():
                # Spark's own way is to call Java from within a call of Java, which fails.
                signal.signal(signal.SIGINT, interrupted)


@contextmanager
def _redirected(errors: IO[bytes]) -> Iterator[None]:
    sys.stderr.flush()
    before = os.dup(_ERRORS)
    os.dup2(errors.fileno(), _ERRORS)
    try:
        yield
    finally:
        os.dup2(before, _ERRORS)
        os.close(before)


def _reason(errors: IO[bytes], problem: Exception) -> str:
    """What Java has said before it ended."""
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").splitlines()
    said = [line for line in lines if line.strip() and not _CHATTER.search(line)]
    for line in said:
        found = _EXCEPTION.search(line)
        if found:
            return line[found.end() :]
    return said[0] if said else str(problem)
