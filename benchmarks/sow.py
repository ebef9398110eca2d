"""What a topic of the State of the World costs: publishing, queries, memory, disk and start.

    python -m benchmarks.sow [--records 1000000]

Records are JSON of 1 KB in a persistent topic with a hash index. One run measures everything, our
own library in a process of its own for each part. Rates are those of one core: they are counted by
processor time, so that other work on the machine is not; where a disk is waited for, the time on
the clock is given too.

DuckDB (one thread) and SQLite hold the same bodies in memory, beside five columns of what is in
them, and answer the same query: once from the bodies, once from the columns. All give the bodies of
the records that match.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

import pyarrow as pa

from benchmarks.matching import FIVE_TERMS
from benchmarks.tables import print_table
from benchmarks.topics import topic_spec
from server.expressions import BUILTINS, parse
from server.expressions.backends import columns
from server.expressions.filter_cache import FilterParser
from server.message_types.registry import create
from server.process import garbage_collection
from server.storage.sow.file_store import FileStore, open_store
from server.storage.sow.group_commit import SowCommitter
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.topic_records import SowTopicRecords

RECORDS = 1_000_000
BODY_BYTES = 1024
TURN = 100
"""Publishes that the engine reads in one turn, after which it asks for a commit."""
NOW = 1_800_000_000 * 10**9
POINTS = 20_000
PEER_POINTS = 2_000
WARM_ROUNDS = 3

JSON_TERMS = (
    "body ->> '$.region' = 'EU' AND CAST(body ->> '$.qty' AS INTEGER) > 500"
    " AND CAST(body ->> '$.price' AS DOUBLE) < 200 AND body ->> '$.side' = 'BUY'"
    " AND body ->> '$.status' <> 'CANCELED'"
)
COLUMN_TERMS = (
    "region = 'EU' AND qty > 500 AND price < 200 AND side = 'BUY' AND status <> 'CANCELED'"
)
COLUMNS = ["symbol", "region", "qty", "price", "side", "status", "body"]
TABLE = (
    "CREATE TABLE orders (symbol VARCHAR, region VARCHAR, qty INTEGER, price DOUBLE, side VARCHAR,"
    " status VARCHAR, body VARCHAR)"
)

_FILTERS: Final = FilterParser(BUILTINS)
_SPEC: Final = topic_spec("orders", (("/symbol",),))

_PADDING: Final = [
    f'"field_{n}":{json.dumps((n * 7, n * 1.5, f"some text value {n}")[n % 3])}' for n in range(36)
]
_BEFORE: Final = ",".join(_PADDING[:18])
_AFTER: Final = ",".join(_PADDING[18:])

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Order(NamedTuple):
    """What is different from record to record."""

    symbol: str
    region: str
    qty: int
    price: float
    side: str
    status: str

    def body(self, number: int) -> bytes:
        """The message of an order."""
        text = (
            f'{{{_BEFORE},"id":{number},"symbol":"{self.symbol}","side":"{self.side}",'
            f'"region":"{self.region}","qty":{self.qty},"price":{self.price},'
            f'"status":"{self.status}",{_AFTER}}}'
        )
        return text.ljust(BODY_BYTES).encode()


def order(number: int, version: int = 0) -> Order:
    """An order; about one of 28 matches `FIVE_TERMS`."""
    dice = (number * 2_654_435_761 + version * 40_503) & 0xFFFFFFFF
    return Order(
        f"SYM{number:07}",
        ("EU", "US", "APAC", "LATAM")[dice >> 5 & 3],
        (dice >> 8) % 2000,
        (dice >> 12) % 40_000 / 100,
        ("BUY", "SELL")[dice >> 3 & 1],
        ("NEW", "OPEN", "FILLED", "CANCELED")[dice >> 17 & 3],
    )


class Published(NamedTuple):
    """How fast records were published.

    Attributes:
        by_processor: a second of the engine's processor time.
        by_clock: a second, up to the last one's being on stable storage.
        file_bytes: bytes on disk for each record afterwards.
    """

    by_processor: float
    by_clock: float
    file_bytes: float


class Scan(NamedTuple):
    """How a query over all records went.

    Attributes:
        rate: records tested a second.
        longest, usual: milliseconds of the longest slice, and of the one in the middle.
        matches: records found.
    """

    rate: float
    longest: float
    usual: float
    matches: int


class Service(NamedTuple):
    """What a process that opens the file does and needs.

    Attributes:
        start: seconds until all records are there.
        record_bytes, column_bytes: memory for each record, of its own and of five memo indexes.
        cold, warm: the query with five predicates for the first time, and the best afterwards (of
            its slices the longest of all).
        points: point queries a second.
    """

    start: float
    record_bytes: float
    column_bytes: float
    cold: Scan
    warm: Scan
    points: float


class Peer(NamedTuple):
    """What a database does with the same; records, or point queries, a second."""

    bodies: float
    columns: float
    points: float
    matches: int


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.sow")
    parser.add_argument("--records", type=int, default=RECORDS, help="records in the topic")
    records: int = parser.parse_args(arguments).records
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "orders.sow")
        inserts, updates = _apart(_publish, path, records)
        default = _apart(_serve, path, records, settled=False)
        settled = _apart(_serve, path, records, settled=True)
    peers = {"DuckDB": _apart(_duckdb, records), "SQLite": _apart(_sqlite, records)}
    print_table(
        f"Publishing to a persistent topic, {BODY_BYTES} bytes, a commit after {TURN} at most",
        ["", "a second, of one core", "a second, on the clock", "bytes on disk for each"],
        [[f"{records:,} new keys", *inserts], [f"{records:,} updates", *updates]],
    )
    print_table(
        f"Five predicates over {records:,} records, records a second of one core",
        ["", "records/s", "found"],
        [
            ["Amperage, warm", settled.warm.rate, settled.warm.matches],
            ["Amperage, cold", settled.cold.rate, settled.cold.matches],
            *[[f"{name}, columns", peer.columns, peer.matches] for name, peer in peers.items()],
            *[[f"{name}, JSON", peer.bodies, peer.matches] for name, peer in peers.items()],
        ],
    )
    print_table(
        f"Point queries over {records:,} records, parsing included",
        ["", "queries/s"],
        [
            ["Amperage, hash index", settled.points],
            *[[f"{name}, index", peer.points] for name, peer in peers.items()],
        ],
    )
    print_table(
        "Slices of these queries, milliseconds of processor time",
        ["garbage collection", "cold, longest", "usual", "warm, longest", "usual"],
        [
            [name, each.cold.longest, each.cold.usual, each.warm.longest, each.warm.usual]
            for name, each in [("as Python has it", default), ("as the server has it", settled)]
        ],
    )
    print_table(
        "Start and memory",
        ["", ""],
        [
            ["start, seconds of processor time", settled.start],
            ["start, records a second", records / settled.start],
            ["memory, bytes a record", settled.record_bytes],
            ["and for five memo indexes", settled.column_bytes],
        ],
    )


def scans(records: int) -> tuple[Service, Peer]:
    """What queries and a start cost that have so many records before them, and DuckDB's queries."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "orders.sow")
        _apart(_publish, path, records)
        service = _apart(_serve, path, records, settled=True)
    return service, _apart(_duckdb, records)


def _apart(
    call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Call a function in a new process, so that memory and garbage are its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *args, **kwargs).result()


def _fail(error: OSError | None) -> None:
    if error is not None:
        raise error


def _open(path: Path, committer: SowCommitter) -> tuple[FileStore, SowTopicRecords]:
    store, _ = open_store(path, committer, _fail, topic=_SPEC.name, slab_size=_SPEC.slab_size)
    return store, SowTopicRecords(_SPEC, create("json", "json", {}), store, BUILTINS)


def _publish(path: Path, records: int) -> tuple[Published, Published]:
    """Insert all records, then update all."""
    calls: deque[Callable[[], None]] = deque()
    committer = SowCommitter(calls.append)
    store, topic = _open(path, committer)
    garbage_collection.settle()
    found = []
    for version in range(2):
        processor = clock = 0.0
        for start in range(0, records, TURN):
            numbers = range(start, min(start + TURN, records))
            bodies = [order(number, version).body(number) for number in numbers]
            thread_began, began = time.thread_time(), time.perf_counter()
            for sequence, body in enumerate(bodies, version * records + start + 1):
                topic.apply(topic.prepare_record(body, NOW, sequence))
            store.commit()
            while calls:
                calls.popleft()()
            processor += time.thread_time() - thread_began
            clock += time.perf_counter() - began
        began = time.perf_counter()
        committer.wait_for_jobs()
        clock += time.perf_counter() - began
        while calls:
            calls.popleft()()
        file_bytes = store.statistics.allocated_bytes / records
        found.append(Published(records / processor, records / clock, file_bytes))
    store.close()
    committer.close()
    return found[0], found[1]


def _serve(path: Path, records: int, *, settled: bool) -> Service:
    """Open the file and query it.

    Args:
        path: the file.
        records: how many records there are.
        settled: whether garbage is collected as the server does it.
    """
    columns.warm_up()
    empty = _private_bytes()
    committer = SowCommitter(_call)
    began = time.process_time()
    store, topic = _open(path, committer)
    if settled:
        garbage_collection.settle()
    start = time.process_time() - began
    opened = _private_bytes()
    cold = _scan(topic)
    with_columns = _private_bytes()
    rounds = [_scan(topic) for _ in range(WARM_ROUNDS)]
    warm = max(rounds)._replace(longest=max(each.longest for each in rounds))
    points = _rate(lambda number: _point(topic, number), _spread(POINTS, records))
    store.close()
    committer.close()
    return Service(
        start,
        (opened - empty) / records,
        (with_columns - opened) / records,
        cold,
        warm,
        points,
    )


def _call(function: Callable[[], None]) -> None:
    function()


def _scan(topic: SowTopicRecords) -> Scan:
    slices: list[float] = []
    matches = 0
    query = topic.query(QuerySpec(filter=parse(FIVE_TERMS)), NOW)
    while True:
        began = time.thread_time()
        found = next(query, None)
        slices.append((time.thread_time() - began) * 1000)
        if found is None:
            break
        matches += len(found)
    rate = query.topic_matches / sum(slices) * 1000
    return Scan(rate, max(slices), sorted(slices)[len(slices) // 2], matches)


def _point(topic: SowTopicRecords, number: int) -> None:
    query = topic.query(QuerySpec(filter=_FILTERS.parse(f"/symbol = 'SYM{number:07}'")), NOW)
    assert sum(len(found) for found in query) == 1


def _spread(count: int, records: int) -> list[int]:
    """Some record numbers, all over the topic."""
    return [number * 7919 % records for number in range(count)]


def _rate(call: Callable[[int], object], numbers: Sequence[int]) -> float:
    began = time.process_time()
    for number in numbers:
        call(number)
    return len(numbers) / (time.process_time() - began)


def _private_bytes() -> int:
    """Memory of this process, without what it maps of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


# ---- the peers


def _rows(records: int) -> Iterator[tuple[str, str, int, float, str, str, str]]:
    """What is in the topic, after its updates."""
    for number in range(records):
        one = order(number, 1)
        yield (*one, one.body(number).decode())


def _sqlite(records: int) -> Peer:
    connection = sqlite3.connect(":memory:")
    connection.execute(TABLE)
    connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", _rows(records))
    connection.execute("CREATE INDEX symbols ON orders (symbol)")
    return _ask(lambda text, *values: connection.execute(text, values).fetchall(), records)


def _duckdb(records: int) -> Peer:
    import duckdb  # here only: a process that has it and does not use it complains at its end

    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute(TABLE)
        rows = _rows(records)
        while some := list(itertools.islice(rows, 50_000)):
            columns = [pa.array(values) for values in zip(*some, strict=True)]
            connection.register("arrived", pa.table(columns, names=COLUMNS))
            connection.execute("INSERT INTO orders SELECT * FROM arrived")
        connection.execute("CREATE INDEX symbols ON orders (symbol)")
        return _ask(lambda text, *values: connection.execute(text, values).fetchall(), records)


def _ask(execute: Callable[..., Sequence[object]], records: int) -> Peer:
    """Run the queries."""
    execute("SELECT count(*) FROM orders")
    rates = []
    for terms in (JSON_TERMS, COLUMN_TERMS):
        began = time.process_time()
        found = len(execute(f"SELECT body FROM orders WHERE {terms}"))
        rates.append(records / (time.process_time() - began))
    points = _rate(
        lambda number: execute("SELECT body FROM orders WHERE symbol = ?", f"SYM{number:07}"),
        _spread(PEER_POINTS, records),
    )
    return Peer(rates[0], rates[1], points, found)


if __name__ == "__main__":
    main(sys.argv[1:])
