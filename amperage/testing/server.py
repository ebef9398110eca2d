"""A server process with free ports and a directory of its own, for the tests of an application."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from amperage.client import HAClient, connect
from amperage.testing.configuration import prepared

START_TIMEOUT_S: Final = 60.0
"""Default timeout of the start of a server, in seconds."""

_STOP_TIMEOUT_S: Final = 30.0
_CHECK_INTERVAL_S: Final = 0.02
_START: Final = "import sys; from amperage.scripts import amp_server; sys.exit(amp_server())"
_PACKAGES: Final = Path(__file__).resolve().parents[2]

DEFAULT_CONFIGURATION: Final = """
<AMPSConfig>
  <Name>test</Name>
  <Transports>
    <Transport>
      <Name>any-tcp</Name>
      <Type>tcp</Type>
      <InetAddr>localhost:9007</InetAddr>
      <Protocol>amps</Protocol>
    </Transport>
  </Transports>
</AMPSConfig>
"""
"""A configuration with one transport for all message types, without SOW topics or a log."""


class ServerStartError(RuntimeError):
    """The server did not start; the text has its log."""


class TemporaryServer:
    """A server process for tests.

    The addresses in the configuration are replaced by free ports of 127.0.0.1; relative paths in it
    are relative to the directory. A context manager starts the server and stops it.

    Args:
        configuration: the text of a configuration, or the path of a file.
        directory: the working directory of the server, with its files; it must exist.
        start_timeout: seconds to wait for a start.

    Attributes:
        directory: the working directory.
        ports: the ports of the transports, by their names.
        urls: the URIs of the transports for clients, by their names.
        admin_url: the URL of the admin interface; None if the configuration has none.
        log_file: the file with the server's log.

    Raises:
        ValueError: the configuration is invalid, or has no transport for clients.
        ServerStartError: the included files of the configuration cannot be read.
    """

    def __init__(
        self,
        configuration: str | Path = DEFAULT_CONFIGURATION,
        *,
        directory: str | Path,
        start_timeout: float = START_TIMEOUT_S,
    ) -> None:
        self.directory = Path(directory).resolve()
        changed = prepared(_text_of(configuration))
        self.ports = changed.ports
        self.urls = changed.urls
        self.admin_url = changed.admin_url
        self.log_file = self.directory / "server.log"
        self._configuration = self.directory / "server.xml"
        self._configuration.write_text(changed.text, "utf-8")
        self._start_timeout_s = start_timeout
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URI of the first transport for clients."""
        return next(iter(self.urls.values()))

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def __repr__(self) -> str:
        state = "running" if self.is_running else "stopped"
        return f"<{type(self).__name__} {self.url}: {state}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server, on the same ports and files each time, and wait until it serves.

        Raises:
            ServerStartError: it ended, or did not serve in time.
        """
        if self.is_running:
            return
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the server itself
                [sys.executable, "-c", _START, str(self._configuration)],
                cwd=self.directory,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt of the tests does not stop it first
            )
        try:
            self._wait_until_serving(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop the server as a service manager does, and kill it if it does not end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server, as a crash of its process."""
        self._end(signal.SIGKILL)

    def connect(self, url: str | None = None, **options: Any) -> HAClient:
        """Connect a client; see `amperage.connect`.

        Args:
            url: the URI; None for the first transport.
            options: the other arguments of `amperage.connect`.
        """
        return connect(self.url if url is None else url, **options)

    def log(self) -> str:
        """Return the server's log."""
        return self.log_file.read_text("utf-8", "replace") if self.log_file.exists() else ""

    def _wait_until_serving(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        port = self.ports[next(iter(self.urls))]
        while not _is_listening(port):
            if process.poll() is not None:
                raise ServerStartError(f"the server ended while starting:\n{self.log()}")
            if time.monotonic() >= deadline:
                raise ServerStartError(
                    f"the server did not start within {self._start_timeout_s:g} seconds:"
                    f"\n{self.log()}"
                )
            time.sleep(_CHECK_INTERVAL_S)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def run_server(
    configuration: str | Path = DEFAULT_CONFIGURATION,
    *,
    directory: str | Path | None = None,
    start_timeout: float = START_TIMEOUT_S,
) -> Iterator[TemporaryServer]:
    """Run a server for the duration of a `with` block.

    Args:
        configuration: the text of a configuration, or the path of a file.
        directory: the working directory of the server; None for a temporary one, which is removed
            at the end.
        start_timeout: seconds to wait for the start.

    Raises:
        ValueError: the configuration is invalid, or has no transport for clients.
        ServerStartError: the server did not start.
    """
    with ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="amperage-"))
        server = TemporaryServer(configuration, directory=directory, start_timeout=start_timeout)
        yield stack.enter_context(server)


def _text_of(configuration: str | Path) -> str:
    """Return the text of a configuration, with the files that it includes."""
    if isinstance(configuration, str) and configuration.lstrip().startswith("<"):
        return configuration
    path = Path(configuration)
    text = path.read_text("utf-8")
    if "<Include>" not in text:
        return text
    done = subprocess.run(  # noqa: S603 - the server itself
        [sys.executable, "-c", _START, "--dump-config", str(path.resolve())],
        cwd=path.resolve().parent,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ServerStartError(f"{path} cannot be read: {done.stderr or done.stdout}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Return the environment of a process that finds this very Amperage."""
    path = os.pathsep.join(filter(None, (str(_PACKAGES), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path}


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
