"""Processes that start quickly.

Most of a server's start is Python reading modules and the schema. A process that has done so stands
by, and every server is a fork of it: a process of its own, which runs the same `main` as the
command does and can be killed like any other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from tests.support.processes import STARTED
from tests.support.times import note_server, spending

Prepare = Callable[[], None]
"""What the process does before it becomes a server; has to be importable by its name."""


class ForkedProcess:
    """A process, with the methods of `subprocess.Popen` that tests use.

    Args:
        directory: where it runs.
        configuration: what it is given on its command line.
        log_file: where its standard output and error go.
        prepare: called in the process first, in that directory.
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
        self._process: ForkServerProcess = context().Process(target=_serve, args=arguments)
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
            note_server(self.pid)
            with suppress(ProcessLookupError):  # it has gone since
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the process at once."""
        if self._process.is_alive():
            note_server(self.pid)
        self._process.kill()


def run_forked(
    arguments: Sequence[str], directory: Path | None, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, like `subprocess.run` but quickly.

    Args:
        arguments: its command line.
        directory: where it runs; None for that of the process which stands by.
        environment: its environment.
        seconds: how long it may take.
    """
    with tempfile.TemporaryDirectory() as scratch:
        streams = Path(scratch, "out"), Path(scratch, "err")
        given = (arguments, directory, dict(environment), streams)
        process = context().Process(target=_run, args=given)
        sys.audit(STARTED, "ampServer")
        with spending("waits", "ampServer commands, until they end"):
            process.start()
            process.join(seconds)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"ampServer {' '.join(arguments)} does not end")
        out, err = (stream.read_text() for stream in streams)
    return subprocess.CompletedProcess(["ampServer", *arguments], process.exitcode, out, err)


def context() -> ForkServerContext:
    """Starts processes from the one that stands by.

    A process of tests has only one, whoever starts it: nobody else may, who would not have it read
    what servers need. Each server would read that itself, and have libraries' threads from the
    beginning.
    """
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload([__name__, "tests.support.preloaded"])
    return forkserver


def _serve(
    directory: Path,
    configuration: Path,
    log_file: Path,
    prepare: Prepare | None,
    options: tuple[str, ...],
) -> None:
    from server.cli import amp_server

    os.setsid()
    log = os.open(log_file, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(directory)
    if prepare is not None:
        prepare()
    sys.exit(amp_server.main([*options, str(configuration)]))


def _run(
    arguments: Sequence[str],
    directory: Path | None,
    environment: Mapping[str, str],
    streams: tuple[Path, Path],
) -> None:
    from server.cli import amp_server

    for descriptor, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    if directory is not None:
        os.chdir(directory)
    sys.argv = [amp_server.__file__, *arguments]
    sys.exit(amp_server.main())
