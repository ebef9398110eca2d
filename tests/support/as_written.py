"""Servers that run the message path as it is written, not compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.server import RunningServer, wait_until_started

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENT: Final = {"AMPERAGE_PURE": "1", "PYTHONPATH": str(ROOT)}
"""What makes a process run it so, wherever the process starts."""


def started(
    directory: Path, log: Path, *arguments: str, module: str = "server.cli.amp_server"
) -> subprocess.Popen[bytes]:
    """Start `ampServer` there, or a module that does more."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=directory,
            env=os.environ | ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


@contextmanager
def running_as_written(
    directory: Path, text: str, port: int, module: str = "server.cli.amp_server"
) -> Iterator[RunningServer]:
    """A server that runs a configuration, stopped in the end.

    Args:
        directory: where it runs.
        text: its configuration.
        port: where this has it listen.
        module: starts it.
    """
    (directory / "config.xml").write_text(text)
    log = directory / "stdout.log"
    process = started(directory, log, "config.xml", module=module)
    server = RunningServer(port, process, log)
    try:
        wait_until_started(server)
        yield server
    finally:
        process.kill()
        process.wait()
