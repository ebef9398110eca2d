"""What Spark costs between a server and a DataFrame, beside Parquet, JSON files and a floor.

`python -m benchmarks pipeline` prints, for messages of 370 bytes and of 1 KB, processor time of
reading records of a SOW topic as five columns, and of publishing five columns as messages that the
server logs, both with what they are to reach. The server's time is not in it. Then it prints how
long a message takes to where it can be seen while 10,000 a second are published.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from amperage.client import Client, TimedOutError
from benchmarks.harness import amperage
from benchmarks.orders import DIFFERENT, FIVE, LONG, SHORT, orders
from benchmarks.spark_runs import (
    Work,
    consume,
    in_a_process,
    in_turns,
    json_files,
    print_aims,
    start,
)
from benchmarks.tables import print_table

ROWS: Final = {SHORT: 400_000, LONG: 200_000}
RATE: Final = 10_000
"""Messages a second while the latency is measured."""
SLOWEST: Final = 300
"""Milliseconds that half of the messages may take."""
_WARM: Final = 6.0
_MEASURED: Final = 10.0
_MAX_START: Final = 120.0
"""Seconds until a query has its first micro-batch."""
_PACE: Final = 0.01
"""Seconds between the publisher's turns."""

_QUERY: Final = Work(
    "SOW query, five fields", 5e5, "Parquet, read", "JSON files, read", "constant source"
)
_SINK: Final = Work("sink, five columns", 2e5, "Parquet, written", "JSON files, written")

_RECORDS: Final = """
    <Topic>
      <Name>records-{size}</Name><MessageType>json</MessageType><Key>/order_id</Key>
      <Durability>transient</Durability>
    </Topic>
"""
_ELEMENTS: Final = f"""
  <SOW>{"".join(_RECORDS.format(size=size) for size in ROWS)}</SOW>
  <TransactionLog>
    <JournalDirectory>{{directory}}/journal</JournalDirectory><JournalSize>1GB</JournalSize>
    <Topic><Name>^log</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""

_Stop = Callable[[], list[float]]
"""Stops looking, and gives what each message took, in ms."""


@contextmanager
def connected(uri: str) -> Iterator[Client]:
    """Our client."""
    with Client(timeout=120) as client:
        client.connect(uri)
        client.logon(options="ack_conflation=10ms")
        yield client


def measure(uri: str, directory: Path, size: int) -> None:
    """Measure costs, and print JSON: name -> rows a second, and of processor time."""
    spark, rows = start(2), ROWS[size]
    parquet, text, out = (str(directory / f"{name}-{size}") for name in ("parquet", "json", "out"))
    reader = spark.read.format("amps").options(server=uri, topic=f"records-{size}")
    records = reader.schema(FIVE).load()
    records.coalesce(1).write.parquet(parquet)
    columns = spark.read.parquet(parquet)
    constant = spark.read.format("constant").options(rows=rows, tasks=1).load()
    writer = columns.write.format("amps").options(server=uri, topic="log-sink").mode("append")
    jobs: dict[str, Callable[[], object]] = {
        _QUERY.name: lambda: consume(records),
        _QUERY.parquet: lambda: consume(columns),
        _QUERY.json: lambda: consume(spark.read.schema(FIVE).json(text)),
        "constant source": lambda: consume(constant),
        _SINK.name: writer.save,
        _SINK.parquet: lambda: columns.write.mode("overwrite").parquet(out),
        _SINK.json: lambda: columns.write.mode("overwrite").json(out),
    }
    print(json.dumps(in_turns(jobs, rows)))
    spark.stop()


def publish(uri: str) -> None:
    """Publish messages that say when, at a pace."""
    filler = "n" * (SHORT - 40)
    each = int(RATE * _PACE)
    with connected(uri) as client:
        begin = time.perf_counter()
        for turn in range(int((_WARM + _MEASURED) / _PACE)):
            late = begin + turn * _PACE - time.perf_counter()
            if late > 0:
                time.sleep(late)
            body = f'{{"at":{time.time_ns()},"note":"{filler}"}}'.encode()
            client.publish_all("log-in", [body] * each)
        client.flush()


def latency(uri: str, directory: Path) -> list[list[object]]:
    """Rows of a table: how long what is published takes to be seen."""
    spark = start(2)
    reader = spark.readStream.format("amps").options(server=uri, topic="log-in", bookmark="0|1|")
    frame = reader.schema("at BIGINT").load()

    def batches() -> _Stop:
        took: list[float] = []

        def take(batch: DataFrame, _: int) -> None:
            at = batch.toArrow()["at"].to_numpy()
            took.extend(((time.time_ns() - at) / 1e6).tolist())

        writer = frame.writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(directory / "batches")).start()
        _wait_for_first(query)

        def stop() -> list[float]:
            _stop(query)
            return took

        return stop

    def topic() -> _Stop:
        writer = frame.writeStream.format("amps").options(server=uri, topic="log-out")
        query = writer.option("checkpointLocation", str(directory / "topic")).start()
        _wait_for_first(query)
        stop_receiving = _receive(uri, "log-out")

        def stop() -> list[float]:
            _stop(query)
            return stop_receiving()

        return stop

    rows = [
        _quantiles("our client alone", uri, lambda: _receive(uri, "log-in")),
        _quantiles("Spark, seen in foreachBatch", uri, batches),
        _quantiles("Spark, received from another topic", uri, topic),
    ]
    spark.stop()
    return rows


def _wait_for_first(query: StreamingQuery) -> None:
    """Wait for the first micro-batch, which is empty.

    The now from which the query reads is that of its start, which takes Spark as long as it takes:
    on a busy machine longer than everything is published.
    """
    deadline = time.monotonic() + _MAX_START
    while not query.recentProgress:
        if not query.isActive or time.monotonic() > deadline:
            _stop(query)
            raise RuntimeError(f"the query has had no micro-batch: {query.status}")
        time.sleep(0.05)


def _stop(query: StreamingQuery) -> None:
    """Stop a query, and raise what has stopped it before."""
    failure = query.exception()
    if failure is not None:
        raise failure
    query.stop()


def _receive(uri: str, topic: str) -> _Stop:
    """Look at what a topic gets, on a thread."""
    took: list[float] = []
    is_over = threading.Event()

    def take() -> None:
        with connected(uri) as client:
            stream = client.subscribe(topic)
            while not is_over.is_set():
                try:
                    messages = stream.batch(0.2)
                except TimedOutError:
                    continue
                now = time.time_ns()
                took.extend((now - json.loads(one.body)["at"]) / 1e6 for one in messages)

    thread = threading.Thread(target=take)
    thread.start()

    def stop() -> list[float]:
        is_over.set()
        thread.join()
        return took

    return stop


def _quantiles(name: str, uri: str, look: Callable[[], _Stop]) -> list[object]:
    """Publish while somebody looks; what is seen first, while Java gets warm, does not count."""
    stop = look()
    time.sleep(1)
    subprocess.run([sys.executable, "-m", __spec__.name, uri], check=True)
    time.sleep(2)
    took = stop()[-int(RATE * _MEASURED) :]
    if not took:
        raise RuntimeError(f"{name}: no message has been seen")
    half, *rest = np.quantile(took, [0.5, 0.9, 0.99]).tolist()
    return [name, len(took), half, *rest, SLOWEST, "yes" if half <= SLOWEST else "no"]


def fill(uri: str, directory: Path, size: int) -> None:
    """Put the same rows into a topic of records, and into JSON files."""
    bodies = orders(size, ROWS[size])
    with connected(uri) as client:
        client.publish_all(f"records-{size}", bodies)
        client.flush(timeout=120)
    json_files(directory / f"json-{size}", list(bodies[:DIFFERENT]), ROWS[size])


def main() -> None:
    """Print all tables."""
    aims: list[list[object]] = []
    times: Sequence[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with amperage(_ELEMENTS.format(directory=directory)) as server:
            uri = f"tcp://127.0.0.1:{server.port}/amps/json"
            for size, what in ((SHORT, "370 B"), (LONG, "1 KB")):
                fill(uri, directory, size)
                found = in_a_process(__spec__.name, uri, name, size)
                aims += [work.row(found, what) for work in (_QUERY, _SINK)]
        print_aims(
            f"A server's topics: {ROWS[SHORT]:,} rows of 370 B, {ROWS[LONG]:,} of 1 KB", aims
        )
        with amperage(_ELEMENTS.format(directory=directory / "latency")) as server:
            times = latency(f"tcp://127.0.0.1:{server.port}/amps/json", directory)
    head = ("", "messages", "median", "90%", "99%", "aim, median", "reached")
    print_table(f"From publishing to being seen at {RATE:,} messages a second, ms", head, times)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    elif len(sys.argv) == 2 and "//" in sys.argv[1]:
        publish(sys.argv[1])
    else:
        main()
