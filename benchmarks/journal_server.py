"""What the transaction log costs a whole server: publishers and subscribers on sockets.

Everything that is sent is made before the clock starts, so that one core is enough for it.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.harness import Server, amperage
from benchmarks.tables import print_table

ELEMENTS: Final = """
  <SOW>
    <Topic>
      <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>{directory}/records.sow</FileName>
    </Topic>
  </SOW>
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory>
    <JournalSize>256MB</JournalSize>
    <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""
KEYS: Final = 10_000
ROUNDS: Final = 3
REPLAYED: Final = 100_000
WORKS: Final = (
    ("orders", 256, 1, 60_000),
    ("orders", 256, 8, 60_000),
    ("orders", 1024, 1, 60_000),
    ("orders", 1024, 8, 60_000),
    ("records", 256, 1, 10_000),
)
"""Topic (`records` is in the SOW as well), bytes, publishers, messages."""

_CHUNK: Final = 1 << 18
_TAIL: Final = 400  # bytes; the longest ack


@contextmanager
def journaling(directory: Path) -> Iterator[Server]:
    """A server whose journal is in a directory."""
    directory.mkdir(exist_ok=True)
    with amperage(ELEMENTS.format(directory=directory.absolute())) as server:
        while len(list(directory.glob("journal/*.journal"))) < 2:  # made ready in the background
            time.sleep(0.05)
        yield server


def publishing(
    server: Server, topic: str, size: int, publishers: int, count: int, run: str
) -> tuple[float, float]:
    """Messages a second until all are acknowledged as persisted, and CPU microseconds of each."""
    share = count // publishers
    frames = [_frames(topic, size, share, number) for number in range(publishers)]
    with ExitStack() as connections:
        peers = [
            connections.enter_context(connect(server, f"{run}-{number}"))
            for number in range(publishers)
        ]
        busy, started = cpu_seconds(server.pid), time.perf_counter()
        send_all(peers, frames, share)
        elapsed = time.perf_counter() - started
        busy = cpu_seconds(server.pid) - busy
    return share * publishers / elapsed, busy / (share * publishers) * 1e6


def latencies(server: Server, size: int, rate: int, count: int, run: str) -> list[float]:
    """Seconds from a publish to its persisted ack, at a rate that nobody has to wait for."""
    found: list[float] = []
    with connect(server, run, "ack_conflation=1ms") as peer:
        peer.settimeout(5)
        for number, frame in enumerate(_messages("orders", size, count, 0), 1):
            started = time.perf_counter()
            peer.sendall(frame)
            while b'"s":%d,' % number not in peer.recv(4096):
                pass
            found.append(time.perf_counter() - started)
            time.sleep(max(0.0, 1 / rate - found[-1]))
    return found


def replaying(server: Server, subscribers: int, count: int) -> float:
    """Messages a second, of all subscribers together, that read the whole log."""
    with ExitStack() as connections:
        peers = [
            connections.enter_context(connect(server, f"reader-{number}"))
            for number in range(subscribers)
        ]
        command = {"c": "subscribe", "cid": "r", "sub_id": "r", "t": "orders", "bm": "0"}
        started = time.perf_counter()
        for peer in peers:
            peer.sendall(frame_of(command | {"a": "completed"}))
        with selectors.DefaultSelector() as ready:
            for peer in peers:
                ready.register(peer, selectors.EVENT_READ, bytearray())
            while ready.get_map():
                for key, _ in ready.select():
                    reader, tail = key.fileobj, key.data
                    assert isinstance(reader, socket.socket)
                    tail += reader.recv(_CHUNK)
                    if b'"a":"completed"' in tail[-_TAIL:]:
                        ready.unregister(reader)
                    del tail[:-_TAIL]
        return count * subscribers / (time.perf_counter() - started)


def recovering(directory: Path, count: int) -> float:
    """Entries a second that a start makes records of, when the file of the records is missing."""
    seconds: list[float] = []
    for place in (directory / "empty", directory):
        (place / "records.sow").unlink(missing_ok=True)
        elements = ELEMENTS.format(directory=place.absolute())
        with amperage(elements):
            pass  # the first start of two: makes what is made once
        (place / "records.sow").unlink()
        started = time.perf_counter()
        with amperage(elements):
            seconds.append(time.perf_counter() - started)
    return count / (seconds[1] - seconds[0])


def report(ceiling: Callable[[Path, int], float]) -> None:
    """Print all figures.

    Args:
        ceiling: messages a second of a size that a bare loop writes and syncs in a directory.
    """
    with tempfile.TemporaryDirectory(dir=".") as name:
        directory = Path(name)
        with journaling(directory) as server:
            _report_publishing(server, directory, ceiling)
            _report_latencies(server)
        replays = directory / "replays"
        with journaling(replays) as server:
            publishing(server, "orders", 256, 1, REPLAYED, "replay")
            rows = [
                [f"{readers} subscriber(s)", replaying(server, readers, REPLAYED)]
                for readers in (1, 5)
            ]
        records = directory / "recovery"
        with journaling(records) as server:
            publishing(server, "records", 256, 1, REPLAYED, "recover")
        rows.append(["recovery of records", recovering(records, REPLAYED)])
    print_table("Messages a second out of the log, 256 B", ["", "messages/s"], rows)


def _report_publishing(
    server: Server, directory: Path, ceiling: Callable[[Path, int], float]
) -> None:
    rows: list[list[object]] = []
    for topic, size, publishers, count in WORKS:
        rates, costs, ceilings = [], [], []
        for number in range(ROUNDS):
            ceilings.append(ceiling(directory, size))
            run = f"{topic}-{size}-{publishers}-{number}"
            rate, cost = publishing(server, topic, size, publishers, count, run)
            rates.append(rate)
            costs.append(cost)
        rate, most = statistics.median(rates), statistics.median(ceilings)
        name = f"{topic}, {size} B, {publishers} publisher(s)"
        rows.append([name, rate, most, f"{rate / most:.0%}", statistics.median(costs)])
    head = ["", "persisted/s", "raw ceiling/s", "of it", "server CPU us/message"]
    print_table(f"Publishing until it is persisted (medians of {ROUNDS} rounds)", head, rows)


def _report_latencies(server: Server) -> None:
    rows: list[list[object]] = []
    for size in (256, 1024):
        found = latencies(server, size, 500, 1_500, f"latency-{size}")
        micros = [percentile(found, part) * 1e6 for part in (50, 99)]
        rows.append([f"{size} B, 500 a second", *micros])
    print_table("From a publish to its persisted ack, microseconds", ["", "p50", "p99"], rows)


@contextmanager
def connect(
    server: Server, name: str, options: str = "ack_conflation=10ms"
) -> Iterator[socket.socket]:
    """A connection, logged on."""
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        logon = {"c": "logon", "cid": "1", "client_name": name, "mt": "json", "a": "processed"}
        peer.sendall(frame_of(logon | {"o": options}))
        if b'"success"' not in peer.recv(4096):
            raise RuntimeError("the logon is refused")
        yield peer


def frame_of(header: Mapping[str, str | int], body: bytes = b"") -> bytes:
    """One frame."""
    content = json.dumps(header, separators=(",", ":")).encode() + body
    return struct.pack(">I", len(content)) + content


def cpu_seconds(pid: int) -> float:
    """What a process has used of all processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], part: int) -> float:
    """In the unit of the values."""
    return statistics.quantiles(values, n=100)[part - 1]


def _messages(topic: str, size: int, count: int, publisher: int) -> Iterator[bytes]:
    for number in range(1, count + 1):
        header = b'{"c":"publish","t":"%s","s":%d,"a":"persisted"}' % (topic.encode(), number)
        body = b'{"id":%d,"pad":"' % ((number * 7919 + publisher) % KEYS)
        body = body.ljust(size - 2, b"x") + b'"}'
        yield struct.pack(">I", len(header) + len(body)) + header + body


def _frames(topic: str, size: int, count: int, publisher: int) -> bytes:
    return b"".join(_messages(topic, size, count, publisher))


def send_all(peers: Sequence[socket.socket], frames: Sequence[bytes], last: int) -> None:
    """Send everything, and wait for the last persisted ack of every peer."""
    done = b'"s":%d,' % last
    unsent = {peer: memoryview(content) for peer, content in zip(peers, frames, strict=True)}
    both = selectors.EVENT_READ | selectors.EVENT_WRITE
    with selectors.DefaultSelector() as ready:
        for peer in peers:
            peer.setblocking(False)
            ready.register(peer, both)
        while ready.get_map():
            for key, events in ready.select(10):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if events & selectors.EVENT_READ:
                    answer = one.recv(_CHUNK)
                    if not answer or b'"failure"' in answer:
                        sys.exit(f"publishing failed: {answer.decode(errors='replace')}")
                    if done in answer:
                        ready.unregister(one)
                        continue
                if events & selectors.EVENT_WRITE:
                    unsent[one] = unsent[one][one.send(unsent[one][:_CHUNK]) :]
                    if not unsent[one]:
                        ready.modify(one, selectors.EVENT_READ)
