"""What others wait for while one client is busy: latencies beside each kind of load.

    python -m benchmarks.fairness [--only TEXT]

The quiet pair, a publisher and a subscriber, passes 1,000 messages a second. Beside it, through the
same server, one client after the other does as much as it can: publishes, queries, replays,
subscribes, scans by SQL. nats-server is measured beside what it has, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import psycopg

from benchmarks.harness import Server, amperage, free_port, nats, tool
from benchmarks.tables import print_table

SECONDS = 3
RECORDS = 20_000
SCANNED_RECORDS = 1_000_000
SQL_WARM_UP_S = 10
"""The time until the first scan has made memo indexes, of which 3 us per record are the cost."""
SQL_TRANSPORT = """
    <Transport>
      <Name>sql</Name><Type>tcp</Type><Protocol>postgresql</Protocol>
      <InetAddr>127.0.0.1:{port}</InetAddr>
    </Transport>
"""
ELEMENTS = """
  <SOW>
    <Topic>
      <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>{directory}/records.sow</FileName>
    </Topic>
    <Topic>
      <Name>queried</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>scanned</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
  </SOW>
  <TransactionLog>
    <JournalDirectory>{directory}/journals</JournalDirectory><JournalSize>256MB</JournalSize>
    <Topic><Name>^(logged|records)</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""

Busy = Callable[[int, "multiprocessing.synchronize.Event"], None]
"""Keeps a server busy through its port, until told to stop."""


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load.

    Attributes:
        name: what the table calls it.
        arguments: those of the load generator, if it makes the load.
        busy: makes it otherwise.
        everywhere: whether other servers have the same thing.
        is_sql: whether it is made through the transport for SQL.
    """

    name: str
    arguments: Sequence[str] = ()
    busy: Busy | None = None
    everywhere: bool = False
    is_sql: bool = False


class Peer:
    """A client that speaks in bytes, reads what it must, and looks at nothing."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._received = b""
        self.send({"c": "logon", "cid": "logon", "client_name": "busy", "mt": "json"})

    def send(self, *headers: Mapping[str, object]) -> None:
        """Send commands without a body."""
        contents = [json.dumps(header).encode() for header in headers]
        self._socket.sendall(b"".join(struct.pack(">I", len(one)) + one for one in contents))

    def read_until(self, mark: bytes) -> None:
        """Read and drop what comes, up to where something stands in it."""
        while mark not in self._received:
            self._received = self._received[-len(mark) :] + self._socket.recv(1 << 20)
        self._received = self._received.split(mark, 1)[1]


def query(port: int, stop: multiprocessing.synchronize.Event) -> None:
    """Read all records of a topic, again and again, ten queries at a time."""
    peer = Peer(port)
    ask = {"c": "sow", "t": "queried", "a": "completed", "f": "/qty > 0", "bs": 100}
    while not stop.is_set():
        peer.send(*[{**ask, "cid": f"q{number}"} for number in range(10)])
        for number in range(10):
            peer.read_until(b'"cid":"q%d"' % number)


def replay(port: int, stop: multiprocessing.synchronize.Event) -> None:
    """Read all that has been logged, again and again."""
    peer = Peer(port)
    ask = {"c": "subscribe", "t": "logged", "bm": "0", "a": "completed", "sub_id": "r"}
    while not stop.is_set():
        peer.send({**ask, "cid": "again"})
        peer.read_until(b'"cid":"again"')
        peer.send({"c": "unsubscribe", "sub_id": "r"})


def subscribe(port: int, stop: multiprocessing.synchronize.Event) -> None:
    """Subscribe a thousand times and unsubscribe, again and again."""
    peer = Peer(port)
    ask = {"c": "subscribe", "t": "many"}
    numbers = range(1000)
    while not stop.is_set():
        peer.send(*[{**ask, "sub_id": str(n), "f": f"/qty = {n} AND /px > 1"} for n in numbers])
        peer.send({"c": "unsubscribe", "sub_id": "all", "cid": "end", "a": "processed"})
        peer.read_until(b'"cid":"end"')


def execute(statement: str, port: int, stop: multiprocessing.synchronize.Event) -> None:
    """Execute a statement of SQL, again and again."""
    with psycopg.connect(
        host="127.0.0.1", port=port, user="busy", dbname="any", autocommit=True
    ) as connection:
        while not stop.is_set():
            connection.execute(statement)


LOADS = (
    Load("nothing", everywhere=True),
    Load("publishes", ("-topic", "busy"), everywhere=True),
    Load("publishes, 1 KB", ("-topic", "busy", "-size", "1024"), everywhere=True),
    Load("publishes, logged", ("-topic", "logged", "-ack", "persisted")),
    Load("publishes, records and log", ("-topic", "records", "-ack", "persisted")),
    Load("fan-out to 1,000", ("-topic", "busy", "-subs", "1000", "-window", "64"), everywhere=True),
    Load("queries", busy=query),
    Load("replays", busy=replay),
    Load("subscribing by the thousand", busy=subscribe),
    Load(
        f"SQL, aggregate of {SCANNED_RECORDS:,} records",
        busy=partial(execute, "SELECT region, sum(qty * price) FROM scanned GROUP BY region"),
        is_sql=True,
    ),
    Load(
        f"SQL, condition on {SCANNED_RECORDS:,} records",
        busy=partial(execute, "SELECT count(*) FROM scanned WHERE qty = 7"),
        is_sql=True,
    ),
    Load(
        "SQL, history",
        busy=partial(execute, "SELECT count(*), sum(qty) FROM history.logged"),
        is_sql=True,
    ),
)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.fairness")
    parser.add_argument("--only", default="", help="loads with this text in their names")
    only: str = parser.parse_args(arguments).only
    sql_port = free_port()
    with contextlib.ExitStack() as running:
        directory = running.enter_context(tempfile.TemporaryDirectory())
        ours = running.enter_context(
            amperage(
                ELEMENTS.format(directory=directory),
                transports=SQL_TRANSPORT.format(port=sql_port),
            )
        )
        theirs = running.enter_context(nats())
        seed = ("-mode", "sowseed", "-size", "256")
        ours.load(*seed, "-topic", "queried", "-n", str(RECORDS))
        ours.load(*seed, "-topic", "scanned", "-n", str(SCANNED_RECORDS))
        ours.load("-topic", "logged", "-n", str(RECORDS))
        rows: list[Sequence[object]] = []
        for load in LOADS:
            if only not in load.name and load is not LOADS[0]:
                continue
            for server in (ours, theirs):
                if server is not None and (server is ours or load.everywhere):
                    with _beside(server, load, sql_port):
                        rows.append((f"{load.name}, {server.name}", *_latencies(server)))
    head = ("beside", "p50 us", "p99 us", "max us")
    print_table("A quiet pair at 1,000 messages a second", head, rows)


def _latencies(server: Server) -> tuple[float, float, float]:
    run = server.load("-mode", "latency", "-rate", "1000", "-secs", str(SECONDS))
    return run["p50_us"], run["p99_us"], run["max_us"]


@contextlib.contextmanager
def _beside(server: Server, load: Load, sql_port: int) -> Iterator[None]:
    """Have a load made while the body runs."""
    if load.busy is not None:
        stop = multiprocessing.Event()
        port = sql_port if load.is_sql else server.port
        process = multiprocessing.Process(target=load.busy, args=(port, stop))
        process.start()
        time.sleep(SQL_WARM_UP_S if load.is_sql else 0.5)
        yield
        stop.set()
        process.join()
        return
    if not load.arguments:
        yield
        return
    command = [str(tool("ampsload")), "-proto", server.protocol, "-port", str(server.port)]
    command += ["-secs", str(SECONDS * 10), *load.arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as busy:
        time.sleep(0.7)
        yield
        busy.terminate()


if __name__ == "__main__":
    main(sys.argv[1:])
