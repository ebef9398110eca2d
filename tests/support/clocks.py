"""Servers whose wall clock is set while they run, by any number of seconds, any number of times."""

from __future__ import annotations

import functools
import mmap
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.server import (
    COMMAND,
    CONFIGURATION,
    RunningServer,
    environment,
    free_port,
    wait_until_started,
)

_SOURCE: Final = Path(__file__).with_name("set_clock.c")
_AHEAD: Final = struct.Struct("<d")


@dataclass(frozen=True)
class WallClock:
    """The wall clock of a server.

    It is the `prepare` of a server in a forked process, or the environment of a program.

    Attributes:
        path: the file that says how far it is ahead.
    """

    path: Path

    def set(self, ahead: float) -> None:
        """Set the clock so many seconds ahead of the true time, or behind it."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(descriptor, _AHEAD.pack(ahead), 0)
        os.close(descriptor)

    def __call__(self) -> None:
        """Let this process go by the clock."""
        with self.path.open("rb") as file:
            place = mmap.mmap(file.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)
        tell, tell_ns = time.time, time.time_ns

        def ahead() -> float:
            seconds: float = _AHEAD.unpack_from(place)[0]
            return seconds

        time.time = lambda: tell() + ahead()
        time.time_ns = lambda: tell_ns() + round(ahead() * 1e9)

    @property
    def environment(self) -> dict[str, str]:
        """What lets a program go by the clock."""
        return {"LD_PRELOAD": str(_library()), "SET_CLOCK": str(self.path)}


@functools.cache
def _library() -> Path:
    """Compile the library that sets the clock of a process."""
    path = Path(tempfile.mkdtemp(prefix="amps-clock-")) / "set_clock.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(path), str(_SOURCE)], check=True)
    return path


@contextmanager
def server_with_clock(
    directory: Path, clock: WallClock, elements: str = ""
) -> Iterator[RunningServer]:
    """A server, a program of its own, that goes by a clock; stopped in the end."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=elements, transports="", level="info")
    configuration = directory / "config.xml"
    configuration.write_text(text)
    log_file = directory / "stdout.log"
    with log_file.open("w") as output:
        process = subprocess.Popen(
            [*COMMAND, str(configuration)],
            cwd=directory,
            env=environment(**clock.environment),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    server = RunningServer(port, process, log_file)
    try:
        wait_until_started(server)
        yield server
    finally:
        process.kill()
        process.wait()
