"""Starts servers quickly, for tests that start many.

Most of a start is Python reading modules and the schema. A process that has done so stands by, and
every server is a fork of it: a process of its own, which runs the same `main` as the command does
and can be killed like any other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from config_schema import schema
from server import cli
from tests.support.server import (
    CONFIGURATION,
    START_SECONDS,
    RunningServer,
    free_port,
    wait_until_started,
)

schema.elements()  # a configuration is checked at every start; what that needs is made once

Prepare = Callable[[], None]
"""What the process does before it becomes a server; has to be importable by its name."""


class ForkedProcess:
    """A process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid = process.pid or 0

    def poll(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, seconds at most, and give the exit code."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError("the server does not end")
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process is still there."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()


@contextmanager
def quick_server(
    directory: Path, *, elements: str, prepare: Prepare | None = None
) -> Iterator[RunningServer]:
    """A server on a free port, killed in the end. See `running_server`.

    Args:
        directory: where it runs and finds its configuration.
        elements: further elements of the configuration.
        prepare: called in the process first.
    """
    port = free_port()
    configuration = directory / "config.xml"
    configuration.write_text(
        CONFIGURATION.format(port=port, elements=elements, transports="", level="info")
    )
    log_file = directory / "stdout.log"
    log_file.write_bytes(b"")
    process = _context().Process(target=_serve, args=(directory, configuration, log_file, prepare))
    process.start()
    server = RunningServer(port, ForkedProcess(process), log_file)
    try:
        wait_until_started(server)
        yield server
    finally:
        process.kill()
        process.join(START_SECONDS)


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _serve(directory: Path, configuration: Path, log_file: Path, prepare: Prepare | None) -> None:
    os.setsid()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if prepare is not None:
        prepare()
    os.chdir(directory)
    sys.exit(cli.main([str(configuration)]))
