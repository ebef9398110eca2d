"""Functions of tests that run in a process of their own, which can be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import IO

from tests.support.forked import context
from tests.support.processes import STARTED


@contextmanager
def forked_writer(
    function: Callable[..., None], *arguments: object
) -> Iterator[tuple[ForkServerProcess, IO[bytes]]]:
    """Run a function in a fork, which is killed in the end; yield the process and its output.

    Args:
        function: importable by its name; its last argument is the descriptor of its output.
        arguments: all others.
    """
    reading, writing = context().Pipe(duplex=False)
    process = context().Process(target=_write, args=(function, arguments, writing))
    sys.audit(STARTED, "a function")
    process.start()
    writing.close()
    with reading, open(os.dup(reading.fileno()), "rb") as output:
        try:
            yield process, output
        finally:
            process.kill()
            process.join()


def _write(
    function: Callable[..., None], arguments: tuple[object, ...], output: Connection
) -> None:
    function(*arguments, output.fileno())
