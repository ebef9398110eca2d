"""What Spark costs between a server and a DataFrame, beside Parquet and our client alone.

`python -m benchmarks.pipeline` prints, for one core and for two, rows a second of reading records,
of publishing and of following the log, for JSON of 1 KB; the peers are Spark reading and writing
the same rows as Parquet. Rates of processor time are those of Python, the Java of Spark and its
workers together, without the server. Then it prints how long a message takes to where it can be
seen, beside a Parquet file that is put into a directory which Spark watches.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pipeline
from benchmarks.harness import amperage
from benchmarks.spark_runs import CORES, best, consume, in_a_process, print_scaling
from benchmarks.tables import print_table
from client import Client, Message, MessageStream, TimedOutError

ROWS: Final = 100_000
MESSAGES: Final = 100
"""How many messages the latency is measured with, one after the other."""

Wait: TypeAlias = Callable[[str, float], bool]
"""Waits until a body has been seen, for so many seconds at most; says whether it has."""

_FIELDS: Final = "id BIGINT, symbol STRING, qty INT, price DOUBLE, side STRING"

ELEMENTS: Final = """
  <SOW>
    <Topic>
      <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
  </SOW>
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory><JournalSize>1GB</JournalSize>
    <Topic><Name>^log</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""


def bodies(count: int) -> Iterator[bytes]:
    """Messages of 1 KB."""
    fill = "x" * 920
    for number in range(count):
        yield json.dumps(
            {
                "id": number,
                "symbol": f"S{number % 500}",
                "qty": number % 1000,
                "price": number / 7,
                "side": "buy" if number % 2 else "sell",
                "fill": fill,
            }
        ).encode()


@contextmanager
def connected(uri: str, name: str | None = None) -> Iterator[Client]:
    """Our client alone."""
    with Client(name, timeout=60) as client:
        client.connect(uri)
        client.logon(options="ack_conflation=10ms")
        yield client


def fill(uri: str, directory: Path) -> None:
    """Put the same rows into a topic of records, into the log, and into a Parquet file."""
    rows = list(bodies(ROWS))
    with connected(uri, "fill") as client:
        client.publish_all("records", rows)
        client.publish_all("log-filled", rows)
        client.flush(timeout=120)
    (directory / "parquet").mkdir()
    table = pa.table({"body": pa.array([row.decode() for row in rows])})
    for number in range(2):
        half = table.slice(number * ROWS // 2, ROWS // 2)
        pyarrow.parquet.write_table(half, directory / "parquet" / f"{number}.parquet")


def alone(uri: str) -> None:
    """Print what our client does without Spark."""
    select = "select=[-/,+/id,+/symbol,+/qty,+/price,+/side]"
    with connected(uri, "alone") as client:

        def query(options: str | None) -> None:
            stream = client.sow("records", batch_size=1000, options=options)
            while stream.batch():
                pass

        def publish() -> None:
            client.publish_all("log-alone", bodies(ROWS))
            client.confirmed_publish("log-alone", b"{}")

        rows = [
            ("read bodies", *best(lambda: query(None), ROWS)),
            ("read five fields selected", *best(lambda: query(select), ROWS)),
            ("publish, without sequence numbers", *best(publish, ROWS)),
        ]
    print_table(
        f"The client alone, {ROWS:,} messages of 1 KB",
        ("rows a second", "", "of processor time, with the server's"),
        rows,
    )


def measure(uri: str, directory: Path, cores: int) -> None:
    """Measure rates on some cores, and print them as JSON."""
    spark = _session(cores)
    parquet, scratch, numbers = str(directory / "parquet"), directory / f"out-{cores}", count()

    def records(**options: object) -> DataFrameReader:
        given = {name: str(value) for name, value in options.items()}
        reader = spark.read.format("amps").options(server=uri, topic="records", partitions=cores)
        return reader.options(**given)

    def publish() -> None:
        writer = spark.read.parquet(parquet).write.format("amps").mode("append")
        writer.options(server=uri, topic="log-spark").save()

    def follow() -> None:
        reader = spark.readStream.format("amps").option("max_rows_per_trigger", ROWS // 2)
        reader = reader.options(server=uri, topic="log-filled", partitions=cores)
        writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
        checkpoint = str(scratch / f"checkpoint-{next(numbers)}")
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    def follow_parquet() -> None:
        reader = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1)
        writer = reader.parquet(parquet).writeStream.format("noop").trigger(availableNow=True)
        checkpoint = str(scratch / f"checkpoint-{next(numbers)}")
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    def fields(**options: object) -> DataFrame:
        return records(**options).schema(_FIELDS).load()

    jobs: dict[str, Callable[[], object]] = {
        "read bodies": lambda: consume(records().load().select("body")),
        "read five fields": lambda: consume(fields()),
        "read 1%, pushed down": lambda: consume(
            pipeline.read(
                spark,
                server=uri,
                topic="records",
                partitions=cores,
                columns=_FIELDS,
                where="qty < 10",
            )
        ),
        "read 1%, not pushed down": lambda: consume(fields().filter("qty < 10")),
        "Parquet: read bodies": lambda: consume(spark.read.parquet(parquet)),
        "sink: publish to the log": publish,
        "Parquet: write": lambda: spark.read.parquet(parquet).write.parquet(
            str(scratch / f"rows-{next(numbers)}")
        ),
        "stream: follow the log to the end": follow,
        "Parquet: stream of two files": follow_parquet,
    }
    print(json.dumps({name: best(job, ROWS) for name, job in jobs.items()}))
    spark.stop()


def latency(uri: str, directory: Path) -> None:
    """How long what is published, or a file that is put somewhere, takes to be seen."""
    spark = _session(2)
    reader = spark.readStream.format("amps").option("bookmark", "0|1|")
    frame = reader.options(server=uri, topic="log-in").load().select("body")
    with connected(uri) as client:

        def publish(body: str) -> None:
            client.publish("log-in", body.encode())

        received = client.subscribe("log-in", bookmark="0|1|")
        rows = [("client alone", *_quantiles(publish, _received(received)))]
        received.unsubscribe()

        batches = _Batches()
        query = batches.of(frame, directory / "to-batches")
        rows.append(("Spark, seen in foreachBatch", *_quantiles(publish, batches.wait)))
        query.stop()

        writer = frame.writeStream.format("amps").options(server=uri, topic="log-out")
        query = writer.option("checkpointLocation", str(directory / "to-topic")).start()
        received = client.subscribe("log-out", bookmark="0|1|")
        times = _quantiles(publish, _received(received))
        rows.append(("Spark, received from another topic", *times))
        query.stop()

    watched, hidden = directory / "watched", directory / "hidden"
    watched.mkdir()
    hidden.mkdir()

    def put(body: str) -> None:
        name = f"{time.monotonic_ns()}.parquet"
        pyarrow.parquet.write_table(pa.table({"body": [body]}), hidden / name)
        (hidden / name).rename(watched / name)

    batches = _Batches()
    frame = spark.readStream.schema("body STRING").parquet(str(watched))
    query = batches.of(frame, directory / "of-files")
    rows.append(("Parquet file, seen in foreachBatch", *_quantiles(put, batches.wait)))
    query.stop()
    spark.stop()
    print_table("End to end, ms", ("what", "median", "90%", "99%"), rows)


class _Batches:
    """What has been seen in micro-batches."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._changed = threading.Condition()

    def of(self, frame: DataFrame, checkpoint: Path) -> StreamingQuery:
        """Start to look at the bodies of a stream."""
        writer = frame.writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def wait(self, body: str, seconds: float) -> bool:
        """Wait until a body has been seen."""
        with self._changed:
            return self._changed.wait_for(lambda: body in self._seen, seconds)

    def _take(self, batch: DataFrame, _: int) -> None:
        found = {row.body for row in batch.collect()}
        with self._changed:
            self._seen |= found
            self._changed.notify_all()


def _quantiles(send: Callable[[str], None], wait: Wait) -> Sequence[float]:
    """Milliseconds between sending and seeing: median, 90%, 99%."""
    for number in count():  # until it is listened to, and some more, for Java to get warm
        body = f'{{"warm":{number},"at":{time.monotonic_ns()}}}'
        send(body)
        if wait(body, 5) and number >= 10:
            break
    times = []
    for number in range(MESSAGES):
        body = f'{{"n":{number},"at":{time.monotonic_ns()}}}'
        began = time.perf_counter()
        send(body)
        if not wait(body, 60):
            raise TimeoutError(f"{body} has not been seen")
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    quantiles = statistics.quantiles(times, n=100)
    return quantiles[49], quantiles[89], quantiles[98]


def _received(stream: MessageStream) -> Wait:
    def wait(body: str, seconds: float) -> bool:
        expected = body.encode()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if any(message.body == expected for message in _arrived(stream, left)):
                return True
        return False

    return wait


def _arrived(stream: MessageStream, seconds: float) -> list[Message]:
    try:
        return stream.batch(seconds)
    except TimedOutError:
        return []


def _session(cores: int) -> SparkSession:
    spark = pipeline.session("benchmark", master=f"local[{cores}]")
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with amperage(ELEMENTS.format(directory=directory)) as server:
            uri = f"tcp://127.0.0.1:{server.port}/amps/json"
            fill(uri, directory)
            alone(uri)
            one, two = (in_a_process(__spec__.name, uri, name, cores) for cores in CORES)
            print_scaling(f"Spark, {ROWS:,} messages of 1 KB", one, two)
            latency(uri, directory)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
