"""Each row is published once, whatever is killed meanwhile."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructField, StructType

from pipeline.amps.options import read_options
from pipeline.amps.publisher import RowPublisher
from pipeline.amps.sink import TaskIdentity
from pipeline.amps.writer import send
from pipeline.bodies import OutgoingMessages
from pipeline.errors import PipelineError
from tests.pipeline.killing import killing
from tests.pipeline.quick_java import quick_java
from tests.pipeline.streams import WAIT_SECONDS, until
from tests.pipeline.topics import (
    TOPICS,
    bookmarks,
    logged,
    publish,
    streaming,
    uri,
    writing,
)
from tests.support.long_form import ONLY_LONG
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    free_port,
    running_configuration,
    running_server,
)


def assert_once(server: RunningServer, topic: str, count: int) -> None:
    """A topic has got the messages 0 to count, each once."""
    ids = Counter(json.loads(body)["id"] for body in logged(server, topic))
    assert sorted(ids) == list(range(count))
    assert set(ids.values()) == {1}


def copying(
    frame: DataFrame, server: RunningServer, topic: str, checkpoint: Path, **trigger: bool
) -> StreamingQuery:
    """Publish a stream to a topic."""
    writer = frame.writeStream.format("amps").option("checkpointLocation", str(checkpoint))
    writer = writer.option("server", uri(server)).option("topic", topic)
    return (writer.trigger(availableNow=True) if trigger else writer).start()


def test_killed_tasks_go_on_where_they_were(spark: SparkSession, server: RunningServer) -> None:
    """A write whose processes are killed twice while they publish."""
    rows = 40_000
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "repeat('x', 300) AS fill")
    with killing(server, "log-killed", [2_000, 15_000]) as killer:
        writing(frame, server, topic="log-killed").save()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert killer.kills == 2
    assert_once(server, "log-killed", rows)


def in_another_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in an order that depends on the try, as behind a shuffle."""
    task = TaskContext.get()
    assert task is not None
    table = pa.Table.from_batches(batches)
    rows = list(range(table.num_rows))
    random.Random(task.attemptNumber()).shuffle(rows)
    yield from table.take(rows).to_batches(500)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="what is there is read back"),
        pytest.param({"order": "sorted"}, id="rows are sorted", marks=ONLY_LONG),
    ],
)
def test_tasks_behind_a_shuffle_lose_nothing(
    spark: SparkSession, server: RunningServer, options: dict[str, Any]
) -> None:
    """Tasks that are killed while they publish have their rows in another order the next time."""
    rows = 5_000  # of which 4,000 may be on their way
    topic = f"log-shuffled-{'-'.join(options)}"
    frame = spark.range(0, rows, 1, 4).selectExpr("id", "repeat('x', 4000) AS fill")
    shuffled = frame.repartition(1).mapInArrow(in_another_order, frame.schema)
    with killing(server, topic, [300, 2_000]) as killer:
        writing(shuffled, server, topic=topic, **options).save()
    assert killer.kills == 2
    assert_once(server, topic, rows)


def test_at_least_once_publishes_everything_again(server: RunningServer) -> None:
    """What a task does that is told so: no try takes rows for those of another."""
    given = {"server": uri(server), "topic": "log-at-least", "exactly_once": "false"}
    options, schema = read_options(given, "write"), StructType([StructField("id", LongType())])
    identity = TaskIdentity("spark-at-least-0", 0)

    def some(ids: range) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})

    def killed() -> Iterator[pa.RecordBatch]:
        yield some(range(500, 900))
        until(lambda: len(logged(server, "log-at-least")) == 400)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        send(options, schema, identity, killed())
    send(options, schema, identity, iter([some(range(1000))]))
    ids = Counter(json.loads(body)["id"] for body in logged(server, "log-at-least"))
    assert ids == Counter([*range(500, 900), *range(1000)])


def test_a_batch_that_is_repeated_is_published_once(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """As after a crash between a write and its note in the checkpoint; then the stream goes on."""
    frame = streaming(spark, server, "log-in", max_rows_per_trigger=1000).schema("id INT").load()
    publish(server, "log-in", [{"id": i} for i in range(2_500)])
    copying(frame, server, "log-out", tmp_path, availableNow=True).awaitTermination()
    assert_once(server, "log-out", 2_500)
    for name in ("2", ".2.crc"):
        (tmp_path / "commits" / name).unlink()
    publish(server, "log-in", [{"id": i} for i in range(2_500, 2_600)])
    copying(frame, server, "log-out", tmp_path, availableNow=True).awaitTermination()
    assert_once(server, "log-out", 2_600)


def test_a_write_that_says_what_it_is_comes_once(
    spark: SparkSession, server: RunningServer
) -> None:
    """Run again, it adds what is missing; further ones have the same names of clients."""
    topic = "log-named"

    def write(version: int, rows: DataFrame) -> None:
        writer = writing(rows, server, topic=topic, write_id="nightly", write_version=version)
        writer.save()

    first, second = (spark.range(start, start + 100, 1, 2) for start in (0, 100))
    write(20261124, first.limit(30).coalesce(1))  # as if it had been killed there
    write(20261124, first)
    write(20261124, first)
    assert_once(server, topic, 100)
    write(20261125, second)
    assert_once(server, topic, 200)
    with pytest.raises(PySparkException, match="the server already has version 20261125"):
        write(20261124, second)
    assert_once(server, topic, 200)
    assert len({str(bookmark).partition("|")[0] for bookmark in bookmarks(server, topic)}) == 2


def test_a_server_that_is_killed_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    """The query waits for it: reading, writing, and what is under way."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=TOPICS, transports="", level="error")
    text = text.replace("<Level>error</Level>", "<Level>info</Level>")
    with running_configuration(tmp_path, text, port) as server:
        frame = streaming(spark, server, "log-in").schema("id INT").load()
        query = copying(frame, server, "log-out", tmp_path / "checkpoint")
        publish(server, "log-in", [{"id": i} for i in range(5_000)])
        until(lambda: bool(logged(server, "log-out")), query)
        server.stop(signal.SIGKILL)
    with running_configuration(tmp_path, text, port) as server:
        publish(server, "log-in", [{"id": i} for i in range(5_000, 6_000)])
        until(lambda: len(logged(server, "log-out")) >= 6_000, query)
        query.stop()
        assert_once(server, "log-out", 6_000)


def test_two_tries_of_a_task_at_once(server: RunningServer) -> None:
    """Each connection ends the other's, as they have the same name; they take turns."""
    options = read_options({"server": uri(server), "topic": "log-two"}, "write")
    identity = TaskIdentity("spark-two-0", 3)
    rows = [b'{"id":%d}' % number for number in range(300)]
    with RowPublisher(options, identity) as one:
        one.send(OutgoingMessages(rows[:100], {}))
        one.finish()
        with RowPublisher(options, identity) as other:
            other.send(OutgoingMessages(rows[:200], {}))
            other.finish()
            one.send(OutgoingMessages(rows[100:250], {}))
            one.finish()
            other.send(OutgoingMessages(rows[200:], {}))
            other.finish()
        one.send(OutgoingMessages(rows[250:], {}))
        one.finish()
        assert not one.refusals
        assert not other.refusals
    assert_once(server, "log-two", 300)


def test_what_is_there_is_read_back_by_topic_and_header(server: RunningServer) -> None:
    """Of rows that say where they go, some of which are equal."""
    options = read_options({"server": uri(server)}, "write")
    identity = TaskIdentity("spark-again-0", 5)
    names = [("log-again-a", "x"), ("log-again-b", "x"), ("log-again-a", None)]
    topics = [topic for topic, _ in names] * 20
    ids: list[str | None] = [one for _, one in names] * 20
    bodies = [b'{"id":%d}' % (number // 6) for number in range(60)]

    def run(order: list[int]) -> None:
        headers: dict[str, list[Any]] = {
            "topic": [topics[place] for place in order],
            "correlation_id": [ids[place] for place in order],
        }
        with RowPublisher(options, identity) as publisher:
            publisher.send(OutgoingMessages([bodies[place] for place in order], headers))
            publisher.finish()

    run(list(range(35)))
    run(list(reversed(range(60))))
    run([*range(30, 60), *range(30)])
    for topic in ("log-again-a", "log-again-b"):
        expected = [body for body, one in zip(bodies, topics, strict=True) if one == topic]
        assert sorted(logged(server, topic)) == sorted(expected)


def test_what_is_read_back_takes_little_memory(server: RunningServer) -> None:
    """Of each message a hash is kept, however large it is, and however many are equal."""
    options = read_options({"server": uri(server), "topic": "log-large-task"}, "write")
    identity = TaskIdentity("spark-large-0", 0)
    count = 10_000
    rows = [b'{"id":%d,"note":"%s"}' % (number // 2, b"x" * 200) for number in range(count)]
    with RowPublisher(options, identity) as publisher:
        publisher.send(OutgoingMessages(rows, {}))
        publisher.finish()
    with RowPublisher(options, identity) as publisher:
        tracemalloc.start()
        publisher.send(OutgoingMessages(rows[:1], {}))
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        publisher.send(OutgoingMessages([*rows[1:], b'{"id":-1}'], {}))
        publisher.finish()
    assert size < 100 * count
    assert sorted(logged(server, "log-large-task")) == sorted([*rows, b'{"id":-1}'])


def test_what_is_there_is_read_back_of_queues(server: RunningServer) -> None:
    """Whose messages the log has under other names; those to such a topic itself are others."""
    options = read_options({"server": uri(server)}, "write")
    identity = TaskIdentity("spark-queued-0", 0)
    names = ["queue-several", "log-feeds-2", "queue-one", "log-fed"]
    topics = names * 20
    bodies = [b'{"id":%d}' % (number // 4) for number in range(80)]

    def run(order: list[int]) -> None:
        with RowPublisher(options, identity) as publisher:
            chosen = [topics[place] for place in order]
            publisher.send(
                OutgoingMessages([bodies[place] for place in order], {"topic": list(chosen)})
            )
            publisher.finish()

    run(list(range(45)))
    run(list(reversed(range(80))))
    run([*range(40, 80), *range(40)])
    once = sorted(set(bodies))
    assert sorted(logged(server, "^log-feeds-")) == sorted(once * 2)
    assert sorted(logged(server, "log-fed")) == sorted(once * 2)


@pytest.mark.parametrize(
    "tries",
    [
        pytest.param(["ax", "ax"], id="the last one"),
        pytest.param(["axb", "axb"], id="others behind it"),
        pytest.param(["axb", "abcx"], id="rows that trade places with it"),
        pytest.param(["xa", "abx", "bcax"], id="more than two tries"),
    ],
)
def test_what_was_refused_is_published_again(server: RunningServer, tries: list[str]) -> None:
    """Whoever was told of it may have been killed since; and other rows are not taken for it."""
    topic = f"log-refused-{'-'.join(tries)}"
    options = read_options({"server": uri(server), "topic": topic}, "write")
    too_large = b'{"id":"%s"}' % (b"x" * (11 << 20))  # for a journal
    for rows in tries:
        bodies = [too_large if row == "x" else b'{"id":"%s"}' % row.encode() for row in rows]
        with RowPublisher(options, TaskIdentity(f"spark-{topic}", 3)) as publisher:
            publisher.send(OutgoingMessages(bodies, {}))
            publisher.finish()
        assert [refusal.body for refusal in publisher.refusals] == [too_large]
    expected = sorted({row for rows in tries for row in rows} - {"x"})
    assert sorted(json.loads(body)["id"] for body in logged(server, topic)) == expected


COPY = """
import sys
import pipeline

server, checkpoint, master, java = sys.argv[1:]
kinds = ("driver", "executor")
conf = {f"spark.{kind}.extraJavaOptions": java for kind in kinds}
conf["spark.executor.memory"] = "512m"
spark = pipeline.session(master=master, conf=conf)
reader = spark.readStream.format("amps").option("max_rows_per_trigger", 500)
frame = reader.option("server", server).option("topic", "log-cluster-in").schema("id INT").load()
writer = frame.writeStream.format("amps").option("checkpointLocation", checkpoint)
writer = writer.option("server", server).option("topic", "log-cluster")
writer.trigger(availableNow=True).start().awaitTermination()
"""


ROWS = 3_000
"""Six batches of the stream above."""


@ONLY_LONG
@pytest.mark.usefixtures("quick_python")
def test_a_driver_that_is_killed_and_goes_on_elsewhere(
    server: RunningServer, tmp_path: Path
) -> None:
    """The second run has the first one's checkpoint, and executors in processes of their own.

    A stream whose tasks run in executors is also in `test_cluster`.
    """
    cluster = "local-cluster[2,1,512]"
    publish(server, "log-cluster-in", [{"id": i} for i in range(ROWS)])
    script = tmp_path / "follow_and_publish.py"
    script.write_text(COPY)

    def run(master: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), uri(server), str(tmp_path / "checkpoint"), master]
        command.append(quick_java())
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    with run("local[2]") as first:
        until(lambda: len(logged(server, "log-cluster")) > 500 or first.poll() is not None)
        assert first.poll() is None, (tmp_path / "log").read_text()[-3000:]
        first.kill()
    with run(cluster) as second:
        assert second.wait(WAIT_SECONDS) == 0, (tmp_path / "log").read_text()[-3000:]
    assert_once(server, "log-cluster", ROWS)


@pytest.mark.parametrize("rows", [1, 40_000])
def test_a_server_that_does_not_come_back_is_what_a_write_fails_for(
    tmp_path: Path, rows: int
) -> None:
    """Whatever is waited for when it goes: the last acknowledgements, or room for more."""
    with running_server(tmp_path, elements=TOPICS) as server:
        given = {"server": uri(server), "topic": "log-away", "timeout": "1"}
        options = read_options(given, "write")
        with RowPublisher(options, TaskIdentity("spark-away-0", 0)) as publisher:
            publisher.send(OutgoingMessages([b"{}"], {}))
            publisher.finish()
            server.process.kill()
            with pytest.raises(
                PipelineError, match=r"option server='tcp://.*(refused|closed|lost)"
            ):
                _send_all(publisher, rows)


def _send_all(publisher: RowPublisher, rows: int) -> None:
    for _ in range(rows // 1000 + 1):
        publisher.send(OutgoingMessages([b'{"n":"%s"}' % (b"x" * 1000)] * min(rows, 1000), {}))
    publisher.finish()
