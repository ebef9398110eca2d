"""Queues as sources and sinks: reading takes nothing, and each row enters once."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from amperage.client import Client
from pipeline.amps.options import read_options
from pipeline.amps.publisher import RowPublisher
from pipeline.amps.sink import TaskIdentity
from pipeline.bodies import OutgoingMessages
from tests.pipeline.streams import read_all
from tests.pipeline.topics import logged, publish, reading, streaming, uri, writing
from tests.support.server import RunningServer


def worked_off(server: RunningServer, queue: str, count: int) -> list[int]:
    """So many messages of a queue, by their ids, which a consumer acknowledges."""
    ids: list[int] = []
    with Client("worker") as client:
        client.connect(uri(server))
        client.logon()
        with client.subscribe(queue, max_backlog=100, auto_ack=True) as stream:
            while len(ids) < count:
                message = stream.next(60)
                assert message is not None
                ids.append(json.loads(message.body)["id"])
    return ids


def test_a_queue_is_written_read_and_followed(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """A read shows what waits, a stream all that has ever come; neither takes anything."""
    schema = "id INT, _topic STRING"
    writing(spark.range(3), server, topic="queue-shown").save()
    publish(server, "log-shown-2", [{"id": 3}])
    waiting = reading(spark, server, "queue-shown", partitions=2, filter="/id >= 0")
    assert sorted(row.id for row in waiting.schema(schema).load().collect()) == [0, 1, 2, 3]
    assert sorted(worked_off(server, "queue-shown", 4)) == [0, 1, 2, 3]
    publish(server, "queue-shown", [{"id": 4}])
    assert [row.id for row in waiting.schema(schema).load().collect()] == [4]
    frame = streaming(spark, server, "queue-shown").schema(schema).load()
    found = {(row.id, row._topic) for row in read_all(spark, frame, tmp_path)}
    assert found == {(id_, f"log-shown-{2 if id_ == 3 else 1}") for id_ in range(5)}
    assert worked_off(server, "queue-shown", 1) == [4]


def test_a_stream_into_a_queue_enters_it_once(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Also what is published again after a crash, behind a shuffle, and through its own name."""
    publish(server, "log-to-queue", [{"id": id_} for id_ in range(500)])
    frame = streaming(spark, server, "log-to-queue", max_rows_per_trigger=200)

    def run() -> None:
        writer = frame.schema("id INT").load().repartition(1).writeStream.format("amps")
        writer = writer.option("server", uri(server)).option("topic", "queue-copied")
        writer = writer.option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    for name in ("2", ".2.crc"):  # as if it had been killed before that was noted down
        (tmp_path / "commits" / name).unlink()
    publish(server, "log-to-queue", [{"id": id_} for id_ in range(500, 520)])
    run()
    assert sorted(worked_off(server, "queue-copied", 520)) == list(range(520))
    assert len(logged(server, "log-copied")) == 520


def test_a_task_that_runs_again_knows_what_it_has_put_into_a_queue(server: RunningServer) -> None:
    """In whatever order its rows come."""
    options = read_options({"server": uri(server), "topic": "queue-one"}, "write")
    bodies = [b'{"id":%d,"again":true}' % (number // 2) for number in range(40)]
    for rows in (bodies[:25], list(reversed(bodies)), bodies):
        with RowPublisher(options, TaskIdentity("spark-queue-again-0", 0)) as publisher:
            publisher.send(OutgoingMessages(rows, {}))
            publisher.finish()
    entered = [body for body in logged(server, "log-fed") if b"again" in body]
    assert sorted(entered) == sorted(bodies)
