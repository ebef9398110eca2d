"""What replication costs the instance that sends, and how fast one catches up that has missed much.

All instances are on this machine, so every destination takes processor time from the source; the
CPU time per message tells apart what each of them uses, and at the source what its threads use: the
engine's is the one that publishers wait for. A destination "elsewhere" is a program that only says
that it has everything (`replication_sink`): what is left is what a destination costs the source. A
message counts as arrived when the destination says so to its publisher's name.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness import Server, amperage, free_port, running
from benchmarks.journal_server import (
    connect,
    cpu_seconds,
    frame_of,
    latencies,
    percentile,
    publishing,
    send_all,
)
from benchmarks.tables import print_table

SIZES: Final = (256, 1024)
ELSEWHERE: Final = "async, elsewhere"
KINDS: Final = (("", 0), (ELSEWHERE, 1), ("async", 1), ("async", 2), ("sync", 1), ("sync", 2))
"""How destinations acknowledge, and how many there are."""

ROUNDS: Final = 3
MESSAGES: Final = 60_000
RATE: Final = 500
"""Messages a second whose latency is measured."""

MISSED: Final = 1_000_000
"""Messages that an instance catches up with."""

IN_TURNS: Final = (1, 2, 10, 100)
"""How many topics take turns, one message each."""

TURNS: Final = 200_000
"""Messages that an instance catches up with whose topics take turns."""

_TURN_SIZE: Final = 25

_LOG: Final = """
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory>
    <JournalSize>64MB</JournalSize>
    <FlushInterval>1ms</FlushInterval>
    <Topic><Name>orders.*</Name><MessageType>json</MessageType></Topic>
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
        <Name>orders.*</Name><MessageType>json</MessageType>
        <ExcludeValidation>replicate</ExcludeValidation>
      </Topic>
      <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
    </Destination>
"""
_RECORDS: Final = """
  <Topic>
    <Name>{}</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
"""
_KEYS: Final = 1_000
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
def destination(directory: Path, name: str, port: int, more: str = "") -> Iterator[Server]:
    """An instance that others replicate to, over a port, with more elements."""
    place = directory / name
    place.mkdir(exist_ok=True)
    log = _LOG.format(directory=place.absolute()) + more
    with amperage(log, name=name, transports=_TAKES.format(port=port)) as server:
        yield server


@contextmanager
def source(directory: Path, kind: str, ports: Sequence[int], more: str = "") -> Iterator[Server]:
    """An instance that replicates to those at the ports, with more elements."""
    place = directory / "source"
    place.mkdir(exist_ok=True)
    elements = _LOG.format(directory=place.absolute()) + more
    if ports:
        given = "".join(
            _DESTINATION.format(name=f"destination-{number}", kind=kind, port=port)
            for number, port in enumerate(ports)
        )
        elements += f"<Replication>{given}</Replication>"
    with amperage(elements, name="source") as server:
        yield server


@contextmanager
def queue_peers(directory: Path, kind: str, count: int) -> Iterator[Fabric]:
    """A source with so many destinations, connected."""
    directory.mkdir()
    ports = [free_port() for _ in range(count)]
    with ExitStack() as servers:
        if kind == ELSEWHERE:
            for number, port in enumerate(ports):
                command = [sys.executable, "-m", "benchmarks.replication_sink", str(port)]
                servers.enter_context(running([*command, f"destination-{number}"], port))
            yield Fabric(servers.enter_context(source(directory, "async", ports)), ())
            return
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
            with queue_peers(directory / f"{kind}-{count}-{size}", kind, count) as instances:
                measured = [
                    _publish(instances, size, f"round-{number}") for number in range(ROUNDS)
                ]
            medians = [statistics.median(column) for column in zip(*measured, strict=True)]
            rows.append([_named(kind, count), *medians])
            if not instances.destinations:
                rows[-1][-1] = None
        head = ["", "persisted/s", "engine's thread", "other threads", "a destination"]
        title = f"Publishing until it is persisted, {size} B; CPU in us a message (medians)"
        print_table(title, head, rows)


class Costs(NamedTuple):
    """What publishing has cost.

    Attributes:
        rate: messages a second until all are acknowledged.
        engine: microseconds that the source's engine has used for a message.
        others: what its other threads have.
        destination: what a destination has.
    """

    rate: float
    engine: float
    others: float
    destination: float


def _publish(instances: Fabric, size: int, run: str) -> Costs:
    """Publish some messages, and wait until they are everywhere.

    A journal that has been taken into use has the next one filled with zeros, which goes on behind
    the last message, and takes as much of a processor as writing them.
    """
    pids = [server.pid for server in (instances.source, *instances.destinations)]
    before, engine = [cpu_seconds(pid) for pid in pids], _engine_seconds(pids[0])
    rate, _ = publishing(instances.source, "orders", size, 1, MESSAGES, run)
    instances.wait_for(f"{run}-0", MESSAGES)
    _wait_until_idle(pids)
    source, *others = [
        (cpu_seconds(pid) - busy) / MESSAGES * 1e6 for pid, busy in zip(pids, before, strict=True)
    ]
    engine = (_engine_seconds(pids[0]) - engine) / MESSAGES * 1e6
    return Costs(rate, engine, source - engine, statistics.mean(others or [0.0]))


def _engine_seconds(pid: int) -> float:
    """What the engine's thread of a server has used of a processor: it is the first one."""
    nanoseconds = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])
    return nanoseconds / 1e9


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
            if kind == ELSEWHERE:
                continue
            with queue_peers(directory / f"{kind}-{count}-{size}", kind, count) as instances:
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


def report_turns(directory: Path) -> None:
    """Print what a destination needs for messages whose topics take turns."""
    rows: list[list[object]] = []
    for has_records in (False, True):
        for topics in IN_TURNS:
            place = directory / f"{topics}-{has_records}"
            place.mkdir(parents=True)
            kind = "with records" if has_records else "without records"
            named = f"{topics} topics that take turns" if topics > 1 else "1 topic"
            rows.append([f"{named}, {kind}", *_in_turns(place, topics, has_records=has_records)])
    head = ["", "source CPU us", "destination's"]
    print_table(f"{TURNS:,} messages of {_TURN_SIZE} B, to an instance without any", head, rows)


def _in_turns(directory: Path, topics: int, *, has_records: bool) -> tuple[float, ...]:
    """CPU of a message at the source and at the destination, in microseconds."""
    names = [f"orders-{number}" for number in range(topics)]
    more = f"<SOW>{''.join(map(_RECORDS.format, names))}</SOW>" if has_records else ""
    with source(directory, "", (), more) as server:
        _publish_in_turns(server, names)
    port = free_port()
    with (
        destination(directory, "destination-0", port, more) as late,
        source(directory, "async", [port], more) as server,
    ):
        pids = server.pid, late.pid
        before = [cpu_seconds(pid) for pid in pids]
        Fabric(server, [late]).wait_for("turns", TURNS)
        _wait_until_idle(pids)
        after = [cpu_seconds(pid) for pid in pids]
    return tuple((end - start) / TURNS * 1e6 for start, end in zip(before, after, strict=True))


def _publish_in_turns(server: Server, names: Sequence[str]) -> None:
    """Publish to one topic after the other, until all is acknowledged."""
    messages = []
    for number in range(1, TURNS + 1):
        topic = names[number % len(names)]
        header: dict[str, str | int] = {"c": "publish", "t": topic, "s": number, "a": "persisted"}
        body = b'{"id":%d,"pad":"' % (number // len(names) % (_KEYS // len(names)))
        messages.append(frame_of(header, body.ljust(_TURN_SIZE - 2, b"x") + b'"}'))
    with connect(server, "turns") as peer:
        send_all([peer], [b"".join(messages)], TURNS)


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
    if kind == ELSEWHERE:
        return f"{count} async destination elsewhere"
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
        report_turns(directory / "turns")


if __name__ == "__main__":
    main()
