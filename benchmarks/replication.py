"""What replication costs the instance that sends, and how fast one catches up that has missed much.

All instances are on this machine, so every destination takes processor time from the source; the
CPU time per message tells apart what each of them uses. A message counts as arrived when the
destination says so to its publisher's name.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import Server, amperage, free_port, print_table
from benchmarks.journal_server import (
    cpu_seconds,
    frame_of,
    latencies,
    percentile,
    publishing,
)

SIZES: Final = (256, 1024)
KINDS: Final = (("", 0), ("async", 1), ("async", 2), ("sync", 1), ("sync", 2))
"""How destinations acknowledge, and how many there are."""

ROUNDS: Final = 3
MESSAGES: Final = 60_000
RATE: Final = 500
"""Messages a second whose latency is measured."""

MISSED: Final = 1_000_000
"""Messages that an instance catches up with."""

_LOG: Final = """
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory>
    <JournalSize>64MB</JournalSize>
    <FlushInterval>1ms</FlushInterval>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""
_TAKES: Final = """
    <Transport>
      <Name>replication</Name><Type>amps-replication</Type>
      <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
"""
_DESTINATION: Final = """
    <Destination>
      <Name>{name}</Name><SyncType>{kind}</SyncType>
      <AckConflationInterval>1ms</AckConflationInterval>
      <Topic>
        <Name>orders</Name><MessageType>json</MessageType>
        <ExcludeValidation>replicate</ExcludeValidation>
      </Topic>
      <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
    </Destination>
"""
_LONGEST: Final = 600.0
_IDLE_SECONDS: Final = 0.02  # of processor time, of which nobody takes more in 0.3 s without work
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Fabric:
    """An instance, and those that it replicates to.

    Attributes:
        source: where messages are published.
        destinations: where they get to.
    """

    source: Server
    destinations: Sequence[Server]

    def wait_for(self, publisher: str, number: int) -> None:
        """Wait until a message of a publisher has got everywhere."""
        end = time.monotonic() + _LONGEST
        for destination in self.destinations:
            while last_number(destination, publisher) < number:
                if time.monotonic() > end:
                    raise TimeoutError(f"{destination.name} does not get {publisher}'s messages")
                time.sleep(0.02)


@contextmanager
def destination(directory: Path, name: str, port: int) -> Iterator[Server]:
    """An instance that others replicate to, over a port."""
    place = directory / name
    place.mkdir(exist_ok=True)
    log = _LOG.format(directory=place.absolute())
    with amperage(log, name=name, transports=_TAKES.format(port=port)) as server:
        yield server


@contextmanager
def source(directory: Path, kind: str, ports: Sequence[int]) -> Iterator[Server]:
    """An instance that replicates to those at the ports."""
    place = directory / "source"
    place.mkdir(exist_ok=True)
    elements = _LOG.format(directory=place.absolute())
    if ports:
        given = "".join(
            _DESTINATION.format(name=f"destination-{number}", kind=kind, port=port)
            for number, port in enumerate(ports)
        )
        elements += f"<Replication>{given}</Replication>"
    with amperage(elements, name="source") as server:
        yield server


@contextmanager
def fabric(directory: Path, kind: str, count: int) -> Iterator[Fabric]:
    """A source with so many destinations, connected."""
    directory.mkdir()
    ports = [free_port() for _ in range(count)]
    with ExitStack() as servers:
        destinations = [
            servers.enter_context(destination(directory, f"destination-{number}", port))
            for number, port in enumerate(ports)
        ]
        made = Fabric(servers.enter_context(source(directory, kind, ports)), destinations)
        publishing(made.source, "orders", 256, 1, 10, "first")
        made.wait_for("first-0", 10)
        yield made


def last_number(server: Server, publisher: str) -> int:
    """The highest number of a publisher's messages that an instance has."""
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        logon = {"c": "logon", "cid": "1", "client_name": publisher, "mt": "json"}
        peer.sendall(frame_of(logon | {"a": "processed"}))
        number: int = json.loads(peer.recv(4096)[4:])["s"]
        return number


def report_publishing(directory: Path) -> None:
    """Print what destinations cost whoever publishes."""
    for size in SIZES:
        rows: list[list[object]] = []
        for kind, count in KINDS:
            with fabric(directory / f"{kind}-{count}-{size}", kind, count) as instances:
                measured = [
                    _publish(instances, size, f"round-{number}") for number in range(ROUNDS)
                ]
            medians = [statistics.median(column) for column in zip(*measured, strict=True)]
            rows.append([_named(kind, count), *medians[:2], medians[2] if count else None])
        head = ["", "persisted/s", "source CPU us", "a destination's"]
        print_table(f"Publishing until it is persisted, {size} B (medians)", head, rows)


def _publish(instances: Fabric, size: int, run: str) -> tuple[float, float, float]:
    """Messages a second until all are acknowledged, and CPU of a message until it is everywhere.

    A journal that has been taken into use has the next one filled with zeros, which goes on behind
    the last message, and takes as much of a processor as writing them.
    """
    pids = [server.pid for server in (instances.source, *instances.destinations)]
    before = [cpu_seconds(pid) for pid in pids]
    rate, _ = publishing(instances.source, "orders", size, 1, MESSAGES, run)
    instances.wait_for(f"{run}-0", MESSAGES)
    _wait_until_idle(pids)
    used = [
        (cpu_seconds(pid) - busy) / MESSAGES * 1e6 for pid, busy in zip(pids, before, strict=True)
    ]
    return rate, used[0], statistics.mean(used[1:] or [0.0])


def _wait_until_idle(pids: Sequence[int]) -> None:
    busy = -_IDLE_SECONDS
    while (now := sum(map(cpu_seconds, pids))) - busy > _IDLE_SECONDS:
        busy = now
        time.sleep(0.3)


def report_latencies(directory: Path) -> None:
    """Print how long a publisher waits for an acknowledgement."""
    rows: list[list[object]] = []
    for size in SIZES:
        for kind, count in KINDS:
            with fabric(directory / f"{kind}-{count}-{size}", kind, count) as instances:
                found = latencies(instances.source, size, RATE, 1_500, "latency")
            micros = [percentile(found, part) * 1e6 for part in (50, 99)]
            rows.append([f"{_named(kind, count)}, {size} B", *micros])
    title = f"From a publish to its persisted ack at {RATE} a second, microseconds"
    print_table(title, ["", "p50", "p99"], rows)


def report_catching_up(directory: Path) -> None:
    """Print how fast an empty instance gets what another one has."""
    directory.mkdir()
    with source(directory, "", ()) as server:
        publishing(server, "orders", 256, 1, MISSED, "missed")
    copied = _copy(directory / "source" / "journal", directory / "copy")
    port = free_port()
    with (
        destination(directory, "destination-0", port) as late,
        source(directory, "async", [port]) as server,
    ):
        pids, started = (server.pid, late.pid), time.perf_counter()
        before = [cpu_seconds(pid) for pid in pids]
        Fabric(server, [late]).wait_for("missed-0", MISSED)
        elapsed = time.perf_counter() - started
        used = [
            (cpu_seconds(pid) - busy) / MISSED * 1e6 for pid, busy in zip(pids, before, strict=True)
        ]
    rows = [
        ["catching up", MISSED / elapsed, *used],
        ["copying the journal files", MISSED / copied, None, None],
    ]
    head = ["", "messages/s", "source CPU us", "destination's"]
    print_table(f"{MISSED:,} messages of 256 B, to an instance without any", head, rows)


def _copy(journal: Path, to: Path) -> float:
    """Seconds that it takes to send the files over TCP, and to have them on stable storage."""
    to.mkdir()
    files = [path for path in sorted(journal.glob("*.journal")) if ".next." not in path.name]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taker = threading.Thread(target=_take, args=(listener, to / "copy"))
        taker.start()
        started = time.perf_counter()
        with socket.create_connection(listener.getsockname()) as line:
            for path in files:
                with path.open("rb") as file:
                    line.sendfile(file)
        taker.join()
    elapsed = time.perf_counter() - started
    shutil.rmtree(to)
    return elapsed


def _take(listener: socket.socket, to: Path) -> None:
    line, _ = listener.accept()
    with line, to.open("wb", buffering=0) as file:
        while chunk := line.recv(_CHUNK):
            file.write(chunk)
        os.fsync(file.fileno())


def _named(kind: str, count: int) -> str:
    if not count:
        return "alone"
    return f"{count} {kind} destination{'s' if count > 1 else ''}"


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name).absolute()
        for part in ("publishing", "latencies"):
            (directory / part).mkdir()
        report_publishing(directory / "publishing")
        report_latencies(directory / "latencies")
        report_catching_up(directory / "catching-up")


if __name__ == "__main__":
    main()
