"""What benchmarks share: the compiled load generator, and servers to measure."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "benchmarks"
SOURCES = Path(__file__).parent / "load"

_CONFIGURATION = """<AMPSConfig>
  <Name>{name}</Name>
  <Transports>
    <Transport>
      <Name>any-tcp</Name><Type>tcp</Type><Protocol>amps</Protocol>
      <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
    {transports}
  </Transports>
  {elements}
</AMPSConfig>
"""

RELAY_SECONDS = 600

Measurement = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs.

    Attributes:
        name: what tables call it.
        protocol: the load generator's name of the protocol that it speaks.
        port: where it listens.
        pid: its process.
    """

    name: str
    protocol: str
    port: int
    pid: int

    def load(self, *arguments: str, generator: str = "ampsload") -> Measurement:
        """One run of a load generator.

        Raises:
            RuntimeError: messages were lost, or the run failed.
        """
        command = [str(tool(generator)), "-proto", self.protocol, "-port", str(self.port)]
        command += ["-pid", str(self.pid), *arguments]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {run.stdout}{run.stderr}")
        numbers: Measurement = json.loads(run.stdout)
        return numbers

    @property
    def resident_bytes(self) -> int:
        """The memory that it uses."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def tool(name: str) -> Path:
    """The compiled program of a C source in benchmarks/load, built when it is out of date."""
    source, program = SOURCES / f"{name}.c", BUILD / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CC", "cc")
        command = [compiler, "-O2", "-pthread", "-o", str(program), str(source), "-lm"]
        subprocess.run(command, check=True)
    return program


def free_port(also_next: bool = False) -> int:
    """A port that nobody listens on, with a free neighbour if need be."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                if also_next:
                    second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@contextmanager
def amperage(
    elements: str = "", *, name: str = "benchmark", transports: str = ""
) -> Iterator[Server]:
    """Our server, without any log.

    Args:
        elements: what its configuration has beside a transport.
        name: the Name of the instance.
        transports: further transports.
    """
    port = free_port()
    text = _CONFIGURATION.format(name=name, port=port, transports=transports, elements=elements)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "config.xml")
        path.write_text(text)
        command = [sys.executable, "-m", "server.cli.amp_server", str(path)]
        with running(command, port) as pid:
            yield Server("Amperage", "amps", port, pid)


@contextmanager
def relay(*, write_each: bool = False) -> Iterator[Server]:
    """The floor: a C program that copies bytes from publishers to subscribers.

    Publishers use its port, subscribers the next one.

    Args:
        write_each: whether each message is written by itself.
    """
    port = free_port(also_next=True)
    mode, name = ("msg", "a write each") if write_each else ("chunk", "only copies")
    command = [str(tool("relay")), str(port), mode, str(RELAY_SECONDS)]
    with running(command, port + 1) as pid:
        yield Server(f"relay, {name}", "raw", port, pid)


@contextmanager
def nats() -> Iterator[Server | None]:
    """nats-server; None if it is not installed."""
    port = free_port()
    with _installed("nats-server", ["-a", "127.0.0.1", "-p", str(port)], port) as pid:
        yield None if pid is None else Server("nats-server", "nats", port, pid)


@contextmanager
def redis() -> Iterator[Server | None]:
    """redis-server, which keeps nothing; None if it is not installed."""
    port = free_port()
    quiet = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", str(port)]
    with _installed("redis-server", quiet, port) as pid:
        yield None if pid is None else Server("Redis", "redis", port, pid)


@contextmanager
def mosquitto() -> Iterator[Server | None]:
    """mosquitto, to be used with QoS 0; None if it is not installed."""
    port = free_port()
    with _installed("mosquitto", ["-p", str(port)], port) as pid:
        yield None if pid is None else Server("mosquitto, QoS 0", "mqtt", port, pid)


@contextmanager
def _installed(program: str, arguments: Sequence[str], port: int) -> Iterator[int | None]:
    path = shutil.which(program)
    if path is None:
        print(f"{program} is not on PATH: measured without it")
        yield None
        return
    with running([path, *arguments], port) as pid:
        yield pid


@contextmanager
def running(
    command: Sequence[str], port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A program that runs, and listens on a port; gives its process.

    Args:
        command: the program with its arguments.
        port: see above.
        environment: its environment variables; None for those of this process.
    """
    silent = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=silent, stdout=silent, stderr=silent
    )
    try:
        _wait_for_port(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with code {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")
