"""Processes that start quickly.

Most of a server's start is Python reading modules and the schema. A process that has done so stands
by, and every server is a fork of it: a process of its own, which runs the same `main` as the
command does and can be killed like any other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

from config_schema import schema
from server import cli
from server.program import launch
from tests.support.processes import STARTED

STANDS_BY: Final = (launch, schema.elements())
"""What takes long and is the same for all: the modules of a server, and the schema."""

Prepare = Callable[[], None]
"""What the process does before it becomes a server; has to be importable by its name."""


class ForkedProcess:
    """A process, with the methods of `subprocess.Popen` that tests use.

    Args:
        directory: where it runs.
        configuration: what it is given on its command line.
        log_file: where its standard output and error go.
        prepare: called in the process first.
        options: of the command, before the configuration.
    """

    def __init__(
        self,
        directory: Path,
        configuration: Path,
        log_file: Path,
        prepare: Prepare | None,
        options: tuple[str, ...] = (),
    ) -> None:
        log_file.write_bytes(b"")
        arguments = (directory, configuration, log_file, prepare, options)
        self._process: ForkServerProcess = _context().Process(target=_serve, args=arguments)
        sys.audit(STARTED, "a server")
        self._process.start()
        self.pid = self._process.pid or 0

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


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _serve(
    directory: Path,
    configuration: Path,
    log_file: Path,
    prepare: Prepare | None,
    options: tuple[str, ...],
) -> None:
    os.setsid()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if prepare is not None:
        prepare()
    os.chdir(directory)
    sys.exit(cli.main([*options, str(configuration)]))
