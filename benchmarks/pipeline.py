"""What Spark costs between a server and a DataFrame, beside our client doing the same alone.

`python -m benchmarks.pipeline` prints rows a second of reading records, of following the log and of
publishing, for JSON of 1 KB, and how long a message takes from one topic through Spark to another.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

import pipeline
from benchmarks.harness import Server, amperage, print_table
from client import Client, Message, MessageStream, TimedOutError

ROWS: Final = 100_000
MESSAGES: Final = 200
"""How many messages the latency is measured with, one after the other."""

_FIELDS: Final = "id BIGINT, symbol STRING, qty INT, price DOUBLE, side STRING"

CONFIGURATION: Final = """<AMPSConfig>
  <Name>benchmark</Name>
  <Transports>
    <Transport>
      <Name>any-tcp</Name><Type>tcp</Type><Protocol>amps</Protocol>
      <InetAddr>127.0.0.1:{{port}}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
  </Transports>
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
</AMPSConfig>
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
def connected(server: Server, name: str | None = None) -> Iterator[Client]:
    """Our client alone."""
    with Client(name, timeout=60) as client:
        client.connect(uri(server))
        client.logon(options="ack_conflation=10ms")
        yield client


def uri(server: Server) -> str:
    """The value of the option `server`."""
    return f"tcp://127.0.0.1:{server.port}/amps/json"


def rate(rows: int, work: Callable[[], object]) -> float:
    """Rows a second."""
    started = time.perf_counter()
    work()
    return rows / (time.perf_counter() - started)


def consume(frame: DataFrame) -> None:
    """Compute all rows, and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def reading(spark: SparkSession, server: Server) -> None:
    """Records of a SOW topic as rows."""

    def reader(**options: object) -> DataFrameReader:
        given = {name: str(value) for name, value in options.items()}
        return spark.read.format("amps").options(server=uri(server), topic="records", **given)

    with connected(server) as client:
        client.publish_all("records", bodies(ROWS))
        client.flush(timeout=120)

        def query(options: str | None) -> int:
            stream = client.sow("records", batch_size=1000, options=options)
            return sum(len(messages) for messages in iter(stream.batch, []))

        select = "select=[-/,+/id,+/symbol,+/qty,+/price,+/side]"
        rows: list[tuple[str, float]] = [
            ("client alone, bodies", rate(ROWS, lambda: query(None))),
            ("client alone, five fields selected", rate(ROWS, lambda: query(select))),
        ]
    consume(reader(top_n=10).load())  # the first job starts what later ones use
    for partitions in (1, 2):
        parts = f", {partitions} partition(s)"
        whole = reader(partitions=partitions).load().select("body")
        rows.append((f"Spark, bodies{parts}", rate(ROWS, partial(consume, whole))))
        fields = reader(partitions=partitions).schema(_FIELDS).load()
        rows.append((f"Spark, five fields{parts}", rate(ROWS, partial(consume, fields))))
    few = reader(pushdown=True).schema(_FIELDS).load().filter("qty < 10")
    rows.append(("Spark, 1% pushed down", rate(ROWS, partial(consume, few))))
    few = reader().schema(_FIELDS).load().filter("qty < 10")
    rows.append(("Spark, 1% not pushed down", rate(ROWS, partial(consume, few))))
    print_table(f"Reading {ROWS:,} records of 1 KB", ("what", "rows/s"), rows)


def publishing(spark: SparkSession, server: Server, directory: Path) -> None:
    """Rows to a topic in the transaction log, and from there as a stream."""
    path = str(directory / "rows")
    spark.createDataFrame(
        [(body.decode(),) for body in bodies(ROWS // 10)], "body STRING"
    ).write.save(path)
    frame = spark.read.load(path)
    for _ in range(9):
        frame = frame.unionAll(spark.read.load(path))
    frame = frame.coalesce(2)
    rows: list[tuple[str, float]] = []

    def publish_alone() -> None:
        with connected(server, "alone") as client:
            client.publish_all("log-alone", bodies(ROWS))
            client.confirmed_publish("log-alone", b"{}")

    def publish() -> None:
        writer = frame.write.format("amps").mode("append")
        writer.options(server=uri(server), topic="log-spark").save()

    def follow(partitions: int) -> None:
        reader = spark.readStream.format("amps").option("max_rows_per_trigger", ROWS // 2)
        reader = reader.options(server=uri(server), topic="log-spark", partitions=str(partitions))
        checkpoint = str(directory / f"checkpoint-{partitions}")
        writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    rows.append(("publish, client alone, no sequence numbers", rate(ROWS, publish_alone)))
    rows.append(("publish, Spark, 2 partitions", rate(ROWS, publish)))
    for partitions in (1, 2):
        work = rate(ROWS, partial(follow, partitions))
        rows.append((f"follow to the end, Spark, {partitions} partition(s)", work))
    print_table(f"The transaction log, {ROWS:,} messages of 1 KB", ("what", "rows/s"), rows)


def latency(spark: SparkSession, server: Server, directory: Path) -> None:
    """A message published, through Spark to another topic, received."""
    reader = spark.readStream.format("amps").option("bookmark", "0|1|")
    frame = reader.options(server=uri(server), topic="log-in").load().select("body")
    writer = frame.writeStream.format("amps").option(
        "checkpointLocation", str(directory / "latency")
    )
    query = writer.options(server=uri(server), topic="log-out").start()
    rows = []
    with connected(server) as client:
        for name, topic in (("client alone", "log-in"), ("through Spark", "log-out")):
            stream = client.subscribe(topic, bookmark="0|1|")
            times = []
            received = False
            while not received:  # until the query listens
                client.confirmed_publish("log-in", b'{"warm":1}')
                time.sleep(0.5)
                received = bool(_arrived(stream))
            for number in range(MESSAGES):
                body = b'{"n":%d}' % number
                started = time.perf_counter()
                client.publish("log-in", body)
                while all(message.body != body for message in stream.batch(60)):
                    pass
                times.append((time.perf_counter() - started) * 1000)
                time.sleep(0.05)
            quantiles = statistics.quantiles(times, n=100)
            rows.append((name, quantiles[49], quantiles[89], quantiles[98]))
            stream.unsubscribe()
    query.stop()
    print_table("End to end, ms", ("what", "median", "90%", "99%"), rows)


def _arrived(stream: MessageStream) -> list[Message]:
    try:
        return stream.batch(0.0)
    except TimedOutError:
        return []


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        spark = pipeline.session("benchmark", master="local[2]")
        spark.sparkContext.setLogLevel("OFF")
        with amperage(CONFIGURATION.format(directory=directory)) as server:
            reading(spark, server)
            publishing(spark, server, directory)
            latency(spark, server, directory)
        spark.stop()


if __name__ == "__main__":
    main()
