"""SQL beside DuckDB: aggregates, filters, point queries, SUBSCRIBE, and memory of connections.

    python -m benchmarks.sql [--records 1000000] [--quick]

The records have 12 fields. DuckDB answers the same statements from a table of its own in this
process, with as many threads as a query of the server has, which gets its rows through a socket.
Times are medians of rounds in which both take turns. Processor time of the server includes that of
its query processes, and is steadier on a machine that has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb
import psycopg
import pyarrow as pa

from benchmarks.fairness import Peer
from benchmarks.harness import Server, amperage, free_port
from benchmarks.tables import print_table

RECORDS: Final = 1_000_000
QUICK_RECORDS: Final = 50_000
WARM_UPS: Final = 8
"""Executions before a statement is measured: by then the server has columns of what it reads."""
ROUNDS: Final = 7
POINTS: Final = 300
CHANGES: Final = 30_000
SUBSCRIPTION_ROUNDS: Final = 3
CONNECTIONS: Final = 100
PUBLISH_BATCH: Final = 1_000
DUCKDB_THREADS: Final = 2
"""The default of `SQL/MaxThreads`."""

TRANSPORT: Final = """
  <Transport>
    <Name>sql</Name><Type>tcp</Type><Protocol>postgresql</Protocol>
    <InetAddr>127.0.0.1:{port}</InetAddr>
  </Transport>
"""
ELEMENTS: Final = """
  <SOW>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
      <HashIndex><Key>/desk</Key></HashIndex>
      <Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>ticks</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
  </SOW>
"""

_SUM: Final = "SELECT count(*), sum(qty * price) FROM orders WHERE"
STATEMENTS: Final = {
    "SELECT 1": "SELECT 1",
    "sum by region": "SELECT region, sum(qty * price) FROM orders GROUP BY region",
    "1%: equality, HashIndex": f"{_SUM} desk = 'D42'",
    "1%: equality, no index": f"{_SUM} trader = 'T42'",
    "1%: range of numbers": f"{_SUM} qty >= 420 AND qty < 430",
    "1%: rows by equality": "SELECT id, symbol, qty, price FROM orders WHERE trader = 'T42'",
}


class Cost(NamedTuple):
    """The cost of a statement, in milliseconds: medians.

    Attributes:
        elapsed: from the statement to its last row.
        processor: processor time.
    """

    elapsed: float
    processor: float


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.sql")
    parser.add_argument("--records", type=int, default=RECORDS, help="records in the topic")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RECORDS:,} records")
    options = parser.parse_args(arguments)
    records: int = QUICK_RECORDS if options.quick else options.records
    port = free_port()
    with ExitStack() as running:
        server = running.enter_context(amperage(ELEMENTS, transports=TRANSPORT.format(port=port)))
        publish(server.port, "orders", map(order, range(records)))
        connection = running.enter_context(connect(port))
        print_table(
            f"Statements over {records:,} records of 12 fields, milliseconds",
            ["", "elapsed", "server CPU", "DuckDB, elapsed", "CPU", "elapsed / DuckDB"],
            _statement_rows(server, connection, records),
        )
        print_table(
            f"The record of a key, of {records:,}, milliseconds",
            ["", "p50", "p99", "server CPU"],
            _point_rows(server, connection, records),
        )
        print_table(
            f"{CHANGES:,} new records, sent to one client",
            ["", "a second", "server CPU, us/record"],
            _subscription_rows(server, port),
        )
        print_table("Memory", ["", "MB"], [_connection_row(server, port)])


def order(number: int) -> dict[str, object]:
    """Return a record; `desk` and `trader` have 100 values each, and `qty` 1,000."""
    dice = (number * 2_654_435_761) & 0xFFFFFFFF
    return {
        "id": number,
        "symbol": f"SYM{dice % 5000}",
        "region": ("EU", "US", "APAC", "LATAM")[dice >> 5 & 3],
        "desk": f"D{(dice >> 7) % 100}",
        "trader": f"T{(dice >> 9) % 100}",
        "side": ("BUY", "SELL")[dice >> 3 & 1],
        "status": ("NEW", "OPEN", "FILLED", "CANCELED")[dice >> 17 & 3],
        "qty": (dice >> 8) % 1000,
        "price": (dice >> 12) % 40_000 / 100 + 0.25,
        "limit": (dice >> 11) % 50_000 / 100 + 0.25,
        "venue": f"V{dice % 30}",
        "note": f"order {number} of this day",
    }


def connect(port: int) -> psycopg.Connection[Any]:
    """Return a connection in autocommit mode."""
    return psycopg.connect(
        host="127.0.0.1", port=port, user="benchmark", dbname="any", autocommit=True
    )


def publish(port: int, topic: str, messages: Iterator[dict[str, object]]) -> None:
    """Publish messages, and wait until the last one has been processed."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(
            _frame({"c": "logon", "cid": "logon", "client_name": "publisher", "mt": "json"})
        )
        frames: list[bytes] = []
        for message in messages:
            frames.append(_frame({"c": "publish", "t": topic}, json.dumps(message).encode()))
            if len(frames) == PUBLISH_BATCH:
                peer.sendall(b"".join(frames))
                frames.clear()
        peer.sendall(b"".join(frames) + _frame({"c": "flush", "cid": "end", "a": "processed"}))
        received = b""
        while b'"end"' not in received:
            received = received[-10:] + peer.recv(65536)


def _frame(header: dict[str, object], body: bytes = b"") -> bytes:
    content = json.dumps(header).encode() + body
    return struct.pack(">I", len(content)) + content


def processor_ms(pid: int) -> float:
    """Return the processor time of a server and of its query processes, in milliseconds."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if stat.parent.name == str(pid):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(pid):
            ticks += sum(map(int, fields[11:13]))
    return ticks * 1000 / os.sysconf("SC_CLK_TCK")


# ---- statements


def _statement_rows(
    server: Server, connection: psycopg.Connection[Any], records: int
) -> list[list[object]]:
    database = _duckdb(records)
    rows: list[list[object]] = []
    for name, statement in STATEMENTS.items():
        ours, peers = _in_turns(
            lambda text=statement: connection.execute(text).fetchall(),  # type: ignore[misc]  # bound
            lambda text=statement: database.execute(text).fetchall(),  # type: ignore[misc]  # bound
            lambda: processor_ms(server.pid),
            repeats=50 if statement == "SELECT 1" else 2,
        )
        rows.append([name, *ours, *peers, ours.elapsed / peers.elapsed])
    return rows


def _in_turns(
    ours: Callable[[], object],
    peers: Callable[[], object],
    our_processor_ms: Callable[[], float],
    repeats: int,
) -> tuple[Cost, Cost]:
    """Return the costs of a statement, for us and for the peer."""
    for statement in (ours, peers) * WARM_UPS:
        statement()
    our_costs, peer_costs = [], []
    for _ in range(ROUNDS):
        our_costs.append(_cost(ours, our_processor_ms, repeats))
        peer_costs.append(_cost(peers, lambda: time.process_time() * 1000, repeats))
    return _median(our_costs), _median(peer_costs)


def _cost(statement: Callable[[], object], processor: Callable[[], float], repeats: int) -> Cost:
    started_s, before_ms = time.perf_counter(), processor()
    for _ in range(repeats):
        statement()
    elapsed_ms = (time.perf_counter() - started_s) * 1000
    return Cost(elapsed_ms / repeats, (processor() - before_ms) / repeats)


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def _duckdb(records: int) -> duckdb.DuckDBPyConnection:
    """Return a database with the records in a table."""
    database = duckdb.connect(config={"threads": DUCKDB_THREADS})
    for start in range(0, records, 100_000):
        numbers = range(start, min(start + 100_000, records))
        batch = pa.Table.from_pylist([order(number) for number in numbers])
        database.register("batch", batch)
        verb = "INSERT INTO orders" if start else "CREATE TABLE orders AS"
        database.execute(f"{verb} SELECT * FROM batch")
    return database


# ---- records by their keys


def _point_rows(
    server: Server, connection: psycopg.Connection[Any], records: int
) -> list[list[object]]:
    columns = "id, symbol, region, qty, price, status"
    text = f"SELECT {columns} FROM orders WHERE id ="
    ways: dict[str, Callable[[int], object]] = {
        "the key as a parameter, prepared": lambda key: connection.execute(
            f"{text} %s", (key,), prepare=True
        ).fetchone(),
        "the key as a parameter": lambda key: connection.execute(
            f"{text} %s", (key,), prepare=False
        ).fetchone(),
        "the key in the text": lambda key: connection.execute(f"{text} {key}").fetchone(),
        "all columns, the key in the text": lambda key: connection.execute(
            f"SELECT * FROM orders WHERE id = {key}"
        ).fetchone(),
    }
    return [
        [name, *_point_costs(server, query, [number * 7919 % records for number in range(POINTS)])]
        for name, query in ways.items()
    ]


def _point_costs(
    server: Server, query: Callable[[int], object], keys: Sequence[int]
) -> tuple[float, float, float]:
    """Return the median and the 99th percentile of the time, and the mean processor time, in ms."""
    query(0)
    before_ms = processor_ms(server.pid)
    times_ms = []
    for key in keys:
        started_s = time.perf_counter()
        query(key)
        times_ms.append((time.perf_counter() - started_s) * 1000)
    spent_ms = (processor_ms(server.pid) - before_ms) / len(keys)
    percentiles = statistics.quantiles(times_ms, n=100)
    return percentiles[49], percentiles[98], spent_ms


# ---- changes


def _subscription_rows(server: Server, port: int) -> list[list[object]]:
    runs: dict[str, list[tuple[float, float]]] = {
        "subscribe": [],
        "COPY (SUBSCRIBE ...) TO STDOUT": [],
    }
    for start in range(0, 2 * SUBSCRIPTION_ROUNDS * CHANGES, 2 * CHANGES):
        last = f"order {start + CHANGES - 1} of this day".encode()
        read = partial(_read_plain, server.port, last)
        runs["subscribe"].append(_delivery(server, read, start))
        last = f"order {start + 2 * CHANGES - 1} of this day".encode()
        read = partial(_read_live, port, last)
        runs["COPY (SUBSCRIBE ...) TO STDOUT"].append(_delivery(server, read, start + CHANGES))
    return [
        [name, *map(statistics.median, zip(*found, strict=True))] for name, found in runs.items()
    ]


def _delivery(
    server: Server, read: Callable[[threading.Event], None], start: int
) -> tuple[float, float]:
    """Return new records a second, and the server's processor time of one in microseconds."""
    ready = threading.Event()
    reader = threading.Thread(target=read, args=(ready,))
    reader.start()
    ready.wait()
    before_ms, started_s = processor_ms(server.pid), time.perf_counter()
    publish(server.port, "ticks", map(order, range(start, start + CHANGES)))
    reader.join()
    elapsed_s = time.perf_counter() - started_s
    spent_us = (processor_ms(server.pid) - before_ms) * 1000
    return CHANGES / elapsed_s, spent_us / CHANGES


def _read_plain(port: int, last: bytes, ready: threading.Event) -> None:
    peer = Peer(port)
    peer.send({"c": "subscribe", "t": "ticks", "cid": "s", "a": "processed"})
    peer.read_until(b'"cid":"s"')
    ready.set()
    peer.read_until(last)
    peer.send({"c": "unsubscribe", "sub_id": "all", "cid": "end", "a": "processed"})
    peer.read_until(b'"cid":"end"')


def _read_live(port: int, last: bytes, ready: threading.Event) -> None:
    columns = "id, symbol, region, desk, trader, side, status, qty, price, venue, note"
    query = f"SUBSCRIBE (SELECT {columns} FROM ticks)"
    statement = f"COPY ({query} WITH (snapshot = false, progress = true)) TO STDOUT"
    with (
        connect(port) as connection,
        connection.cursor() as cursor,
        suppress(psycopg.errors.QueryCanceled),
        cursor.copy(statement) as copy,
    ):
        copy.read()  # the first row says that it has begun
        ready.set()
        while last not in bytes(copy.read()):
            pass
        connection.cancel()
        while copy.read():
            pass


# ---- memory


def _connection_row(server: Server, port: int) -> list[object]:
    before = server.resident_bytes
    connections = [connect(port) for _ in range(CONNECTIONS)]
    grown = server.resident_bytes - before
    for connection in connections:
        connection.close()
    return [f"{CONNECTIONS} connections without a statement", grown / 1_000_000]


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
