"""Starts the real server, as a user would, and stops it again."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.forked import ForkedProcess, Prepare, run_forked
from tests.support.raw import RawPeer
from tests.support.times import spending
from tests.support.waiting import WAIT_SECONDS, comes_true, wait_until

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "server.cli.amp_server")

CONFIGURATION = """
<AMPSConfig>
  <Name>test-instance</Name>
  <Transports>
    <Transport>
      <Name>any-tcp</Name>
      <Type>tcp</Type>
      <InetAddr>127.0.0.1:{port}</InetAddr>
      <ReuseAddr>true</ReuseAddr>
      <Protocol>amps</Protocol>
    </Transport>
    {transports}
  </Transports>
  <Logging>
    <Target>
      <Protocol>stdout</Protocol>
      <Level>{level}</Level>
    </Target>
  </Logging>
  {elements}
</AMPSConfig>
"""


_PORTS = range(15_000, 32_000)
"""Below those that the system gives to connections, one of which could take a server's port."""


def environment(**variables: str) -> dict[str, str]:
    """The environment of a program that is to find our packages wherever it runs."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | variables


def amp_server(
    *arguments: str | Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end.

    Args:
        arguments: its command line.
        cwd: where.
        variables: of its environment.
    """
    words = [str(argument) for argument in arguments]
    return run_forked(words, cwd, environment(**variables), WAIT_SECONDS)


class Ports:
    """Ports for servers: none is given twice, to whatever process of tests.

    A server binds its port seconds after the port was chosen, and other processes choose
    meanwhile. So a process locks the byte of a common file whose offset is the port, which lasts
    until the process has ended, however it ends.
    """

    def __init__(self) -> None:
        self._given: set[int] = set()
        path = Path(tempfile.gettempdir()) / f"amperage-ports-{os.getuid()}"
        self._locks = open(path, "ab")  # noqa: SIM115 - as long as the process

    def give(self) -> int:
        """A port that nobody listens on, and that nobody else is given."""
        while True:
            port = secrets.choice(_PORTS)
            if port not in self._given and self._lock(port) and self._is_free(port):
                self._given.add(port)
                return port

    def _lock(self, port: int) -> bool:
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def _is_free(port: int) -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True


free_port = Ports().give


class ServerEnded(AssertionError):
    """A server ended while it was to start.

    Attributes:
        code: its exit code.
    """

    def __init__(self, code: int, log: str) -> None:
        super().__init__(f"the server ended while starting:\n{log}")
        self.code = code


class Process(Protocol):
    """A process, as far as tests handle it."""

    pid: int

    def poll(self) -> int | None:
        """The exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, seconds at most, and give the exit code."""

    def send_signal(self, number: signal.Signals, /) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """End it at once."""


@dataclass(frozen=True)
class RunningServer:
    """A server process.

    Attributes:
        port: where its first transport listens.
        process: the process.
        log_file: what it writes to standard output.
    """

    port: int
    process: Process
    log_file: Path

    def connect(self) -> RawPeer:
        """A new connection, not logged on."""
        return RawPeer(self.port)

    def log_on(self, name: str = "tester", message_type: str = "json", **keys: Any) -> RawPeer:
        """A new connection, logged on."""
        peer = self.connect()
        assert peer.log_on(name, message_type, **keys)["status"] == "success"
        return peer

    def log(self) -> str:
        """What has been logged so far."""
        return self.log_file.read_text()

    def logs(self, text: str, times: int | None = None) -> bool:
        """Whether the log says something, now or soon; so many times, if that is given.

        Lines are written by a thread of the server's, which may come after what they tell of.
        """
        if times is None:
            return self.waits_for(lambda log: text in log)
        return self.waits_for(lambda log: log.count(text) == times)

    def waits_for(self, condition: Callable[[str], bool]) -> bool:
        """Whether something is true of the log, now or soon."""
        return comes_true(lambda: condition(self.log()))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the server, and give its exit code."""
        self.process.send_signal(how)
        return self.process.wait(WAIT_SECONDS)


@contextmanager
def running_server(
    directory: Path,
    *,
    elements: str = "",
    transports: str = "",
    level: str = "info",
    prepare: Prepare | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[RunningServer]:
    """A server on a free port, stopped in the end.

    Args:
        directory: where it runs and finds its configuration.
        elements: further elements of the configuration.
        transports: further transports.
        level: the lowest level that it logs.
        prepare: called in its process first.
        options: of its command line.
    """
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=elements, transports=transports, level=level)
    with running_configuration(directory, text, port, prepare, options) as server:
        yield server


def module_server(elements: str = "") -> Callable[..., Iterator[RunningServer]]:
    """A fixture `server`: one for all tests of a module, each with topics or records of its own.

    Args:
        elements: further elements of the configuration.
    """

    @pytest.fixture(scope="module")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
        with running_server(tmp_path_factory.mktemp("server"), elements=elements) as running:
            yield running

    return server


@contextmanager
def running_configuration(
    directory: Path,
    text: str,
    port: int,
    prepare: Prepare | None = None,
    options: tuple[str, ...] = (),
) -> Iterator[RunningServer]:
    """A server that runs a configuration, stopped in the end."""
    if "<TransactionLog>" in text and "JournalSize>" not in text:
        raise ValueError("give the log a JournalSize: journals of the usual size take 2 GB of disk")
    configuration = directory / "config.xml"
    configuration.write_text(text)
    log_file = directory / "stdout.log"
    process = ForkedProcess(directory, configuration, log_file, prepare, options)
    server = RunningServer(port, process, log_file)
    try:
        wait_until_started(server)
        yield server
    finally:
        process.kill()
        process.wait()


def wait_until_started(server: RunningServer) -> None:
    """Wait until a server serves; fails with its log if it does not."""

    def has_started() -> bool:
        if "initialization completed" in server.log():
            return True
        if (code := server.process.poll()) is not None:
            raise ServerEnded(code, server.log())
        return False

    with spending("waits", "servers, until they serve"):
        wait_until(has_started, lambda: f"the server did not start:\n{server.log()}")


def why_no_start(
    directory: Path,
    elements: str,
    prepare: Prepare | None = None,
    options: tuple[str, ...] = (),
) -> str:
    """What a server says that cannot start."""
    with (
        pytest.raises(ServerEnded) as ended,
        running_server(directory, elements=elements, prepare=prepare, options=options),
    ):
        pass
    assert ended.value.code == 1
    assert "Traceback" not in str(ended.value)
    return str(ended.value)
