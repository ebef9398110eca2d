"""Queues worked off by streams: `format("amps")` with `consume=true`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from amperage.client import Client
from pipeline.amps.options import read_options
from pipeline.amps.queue_stream import AmpsQueueStreamReader
from pipeline.errors import PipelineError
from tests.pipeline.quick_java import quick_java
from tests.pipeline.streams import WAIT_SECONDS, until
from tests.pipeline.topics import publish, streaming, uri
from tests.support.long_form import ONLY_LONG
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    free_port,
    running_configuration,
    running_server,
)

NAMES = ("once", "killed", "again", "leased", "failed", "spark")
LEASED = "<LeasePeriod>600ms</LeasePeriod>"


def queue(name: str) -> str:
    return f"""
      <Queue>
        <Name>queue-{name}</Name><MessageType>json</MessageType>
        <UnderlyingTopic>log-{name}</UnderlyingTopic>
        <MaxPerSubscriptionBacklog>1000</MaxPerSubscriptionBacklog>
        {LEASED if name == "leased" else ""}
      </Queue>"""


ELEMENTS = f"""
<SOW>{"".join(map(queue, NAMES))}</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^log-.*$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
SCHEMA = StructType([StructField("id", IntegerType()), StructField("_topic", StringType())])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with queues that nobody else uses."""
    with running_server(tmp_path_factory.mktemp("queues"), elements=ELEMENTS) as running:
        yield running


def put(server: RunningServer, name: str, ids: range) -> None:
    publish(server, f"log-{name}", [{"id": number} for number in ids])


def waiting(server: RunningServer, name: str) -> list[int]:
    """What nobody has."""
    with Client() as client:
        client.connect(uri(server))
        client.logon()
        return sorted(json.loads(one.body)["id"] for one in client.sow(f"queue-{name}"))


class Driver:
    """What Spark's driver does with the reader of a stream, one micro-batch after the other.

    Attributes:
        offset: up to which batches are done.
    """

    def __init__(self, server: RunningServer, name: str, **more: str) -> None:
        given = {"server": uri(server), "topic": f"queue-{name}", "consume": "true", **more}
        self._options = read_options(given, "readStream")
        self._reader = AmpsQueueStreamReader(self._options, SCHEMA)
        self.offset = self._reader.initialOffset()

    def next(self, limit: ReadLimit | None = None) -> dict[str, Any]:
        """The offset of a batch that has messages."""
        found = [self.offset]

        def came() -> bool:
            found[0] = self._reader.latestOffset(self.offset, limit or ReadAllAvailable())
            return found[0] != self.offset

        until(came)
        return found[0]

    def has_nothing(self) -> bool:
        time.sleep(0.3)  # what comes comes at once
        return self._reader.latestOffset(self.offset, ReadAllAvailable()) == self.offset

    def rows(self, end: dict[str, Any]) -> list[int]:
        """The rows of a batch, as tasks read them, in processes of their own."""
        found = []
        for part in self._reader.partitions(self.offset, end):
            for batch in AmpsQueueStreamReader(self._options, SCHEMA).read(part):
                assert set(batch["_topic"].to_pylist()) == {self._options.read_topic}
                found += batch["id"].to_pylist()
        return found

    def work_off(self, count: int) -> list[int]:
        """So many rows, and their batches done: what is published at once may come in two."""
        found: list[int] = []
        while len(found) < count:
            end = self.next()
            found += self.rows(end)
            self.offset = end
        return found

    def stop(self) -> None:
        self._reader.stop()


@contextmanager
def driving(server: RunningServer, name: str, **more: str) -> Iterator[Driver]:
    driver = Driver(server, name, **more)
    try:
        yield driver
    finally:
        driver.stop()


def test_messages_leave_the_queue_when_their_batch_is_done(server: RunningServer) -> None:
    put(server, "once", range(10))
    with driving(server, "once") as driver:
        first = driver.next(ReadMaxRows(4))
        assert driver.next() == first, "until Spark says that this batch is done"
        assert driver.rows(first) == [0, 1, 2, 3]
    assert waiting(server, "once") == list(range(10)), "the driver is gone, and nothing was done"
    with driving(server, "once", partitions="3") as driver:
        assert driver.rows(first) == [0, 1, 2, 3], "the same batch, which is repeated"
        driver.offset = first
        assert driver.work_off(6) == [4, 5, 6, 7, 8, 9]
        assert driver.has_nothing()
        assert waiting(server, "once") == []
        put(server, "once", range(10, 11))
        assert driver.rows(driver.next()) == [10]
    assert waiting(server, "once") == [10]


def test_a_batch_has_its_messages_whoever_has_taken_them_meanwhile(server: RunningServer) -> None:
    put(server, "again", range(6))
    with driving(server, "again") as driver:
        batch = driver.next()
    with Client("other") as other:
        other.connect(uri(server))
        other.logon()
        with other.subscribe("queue-again", max_backlog=3, auto_ack=True) as stream:
            assert [stream.next(60) is not None for _ in range(3)] == [True] * 3
        other.flush_acks()
    with driving(server, "again") as driver:
        assert driver.rows(batch) == list(range(6))
        driver.offset = batch
        assert driver.has_nothing()
    assert waiting(server, "again") == []


def test_leases_are_renewed_for_as_long_as_a_batch_takes(server: RunningServer) -> None:
    put(server, "leased", range(200))
    with driving(server, "leased") as driver:
        batch = driver.next()
        with Client("other") as other:
            other.connect(uri(server))
            other.logon()
            stream = other.subscribe("queue-leased", max_backlog=1000)
            with pytest.raises(TimeoutError):  # in two lease periods
                stream.batch(1.5)
        driver.offset = batch
        assert driver.has_nothing()
    assert waiting(server, "leased") == []


def test_a_server_that_is_killed_during_a_batch(tmp_path: Path) -> None:
    """It gives all messages again to whoever connects then; none is in a second batch."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=ELEMENTS, transports="", level="info")
    with running_configuration(tmp_path, text, port) as server:
        put(server, "killed", range(5))
        driver = Driver(server, "killed")
        first = driver.next()
        server.stop(signal.SIGKILL)
    with running_configuration(tmp_path, text, port) as server:
        put(server, "killed", range(5, 8))
        driver.offset = first
        assert driver.work_off(3) == [5, 6, 7]
        assert driver.has_nothing()
        driver.stop()
        assert waiting(server, "killed") == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"topic": "log-once"}, "option topic='log-once': it is not a queue"),
        ({"bookmark": "0"}, "option bookmark='0': a queue begins with its oldest"),
        ({"consume": "yes"}, "option consume='yes': expected true or false"),
        ({"filter": "/id >"}, "option filter='/id >'"),
    ],
)
def test_what_cannot_be_is_said(server: RunningServer, more: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError) as failure:
        Driver(server, "once", **more).next()
    assert said in str(failure.value)


def test_a_server_that_is_away_is_waited_for_and_no_longer(tmp_path: Path) -> None:
    given = {"server": f"tcp://127.0.0.1:{free_port()}/amps/json", "topic": "queue-once"}
    options = read_options({**given, "consume": "true", "timeout": "0.3"}, "readStream")
    reader = AmpsQueueStreamReader(options, SCHEMA)

    def tells() -> bool:
        try:
            return reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) is None
        except PipelineError as error:
            return "Unable to connect" in str(error)

    until(tells)


def taking(
    spark: SparkSession, server: RunningServer, name: str, checkpoint: Path
) -> Callable[..., None]:
    """Runs a query over what waits in a queue."""

    def run(take: Callable[[DataFrame, int], None]) -> None:
        frame = streaming(spark, server, f"queue-{name}", consume="true", max_rows_per_trigger=4)
        writer = frame.schema("id INT").load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination()

    return run


def test_a_batch_that_fails_is_repeated(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    put(server, "failed", range(10))
    run = taking(spark, server, "failed", tmp_path)
    batches: dict[int, list[int]] = {}

    def take(frame: DataFrame, batch: int) -> None:
        batches[batch] = sorted(row.id for row in frame.collect())
        if fails and batch == 1:
            raise InterruptedError

    fails = True
    with pytest.raises(StreamingQueryException):
        run(take)
    assert waiting(server, "failed") == [4, 5, 6, 7, 8, 9]
    before = dict(batches)
    fails = False
    run(take)
    assert batches == before | {2: [8, 9]}
    assert waiting(server, "failed") == []


WORK = """
import sys, time
import pipeline

server, directory, java = sys.argv[1:]
spark = pipeline.session(master="local[1]", conf={"spark.driver.extraJavaOptions": java})
reader = spark.readStream.format("amps").option("server", server).option("topic", "queue-spark")
reader = reader.option("consume", True).option("max_rows_per_trigger", 50).option("partitions", 2)

def take(frame, batch):
    frame.write.mode("overwrite").parquet(f"{directory}/rows/batch={batch}")

writer = reader.schema("id INT").load().writeStream.foreachBatch(take)
writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""


@ONLY_LONG
@pytest.mark.usefixtures("quick_python")
def test_drivers_that_are_killed_work_each_message_off_once(
    server: RunningServer, tmp_path: Path
) -> None:
    """Into a sink that replaces a batch by itself."""
    count = 300
    put(server, "spark", range(count))
    script = tmp_path / "work.py"
    script.write_text(WORK)

    def run() -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), uri(server), str(tmp_path), quick_java()]
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def batches() -> int:
        return len(list(tmp_path.glob("rows/batch=*/*.parquet")))

    with run() as first:
        until(lambda: batches() > 2 or first.poll() is not None)
        assert first.poll() is None, (tmp_path / "log").read_text()[-3000:]
        first.kill()
    with run() as second:
        assert second.wait(WAIT_SECONDS) == 0, (tmp_path / "log").read_text()[-3000:]
    table = ds.dataset(tmp_path / "rows", partitioning="hive").to_table()
    assert sorted(table["id"].to_pylist()) == list(range(count))
    assert waiting(server, "spark") == []
