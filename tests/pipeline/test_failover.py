"""A stream from a pair of instances to the same pair, of which either dies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import IntegerType, StructField, StructType

from amperage.client import EPOCH, Backoff, HAClient, ServerChooser
from pipeline.amps.log_follower import LogFollower
from pipeline.amps.offsets import MessageEnd
from pipeline.amps.options import AmpsOptions, read_options
from pipeline.amps.stream import AmpsStreamReader
from pipeline.errors import PipelineError
from tests.pipeline.streams import WAIT_SECONDS, until
from tests.pipeline.test_exactly_once import assert_once
from tests.pipeline.topics import logged
from tests.support.cluster import PAIR, Cluster, Instance, cluster
from tests.support.long_form import spread
from tests.support.waiting import wait_until

ROWS: Final = 6_000
DURABLE: Final = "fully_durable"


def count(instance: Instance, topic: str) -> int:
    """How many messages of a topic an instance has."""
    return len(logged(instance.server, topic))


@pytest.mark.parametrize("order", spread(["checked", "sorted"], 1))
def test_each_row_is_published_once(spark: SparkSession, tmp_path: Path, order: str) -> None:
    """Offsets, numbers and what is read back mean the same at both instances."""
    with cluster(tmp_path / "pair", PAIR, elements="") as pair:
        one, other = pair
        pair.start()
        servers = ",".join(pair.uris("A", "B"))
        reader = spark.readStream.format("amps").option("max_rows_per_trigger", 400)
        frame = reader.option("server", servers).option("topic", "in").schema("id INT").load()
        writer = frame.writeStream.format("amps").option("order", order).option("server", servers)
        writer = writer.option("topic", "out").option("timeout", WAIT_SECONDS)
        chooser, backoff = (
            ServerChooser(pair.uris("A", "B"), "in_order"),
            Backoff(first=0.01, longest=0.1),
        )
        with HAClient(chooser, "source", backoff=backoff, timeout=WAIT_SECONDS) as source:
            source.connect()
            source.publish_all("in", [f'{{"id":{n}}}' for n in range(2_000)])
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            until(lambda: count(other, "out") > 300, query)
            one.kill()
            source.publish_all("in", [f'{{"id":{n}}}' for n in range(2_000, 4_000)])
            one.start()
            until(lambda: count(one, "out") > 2_300, query)
            other.kill()
            source.publish_all("in", [f'{{"id":{n}}}' for n in range(4_000, ROWS)])
            other.start()
            source.publish_flush()
        for instance in pair:
            until(lambda: count(instance, "out") >= ROWS, query)  # noqa: B023 - called at once
        query.stop()
        for instance in pair:
            assert_once(instance.server, "in", ROWS)
            assert_once(instance.server, "out", ROWS)


def publish(instance: Instance, numbers: range) -> None:
    """Publish messages with some numbers, and wait until they are there."""
    with instance.server.log_on(f"publisher of {numbers}") as peer:
        for number in numbers:
            peer.publish("in", f'{{"id":{number}}}'.encode())
        wait_until(lambda: f'{{"id":{numbers[-1]}}}'.encode() in logged(instance.server, "in"))


def publish_apart(pair: Cluster, there: range) -> int:
    """Publish at both instances, the second part while they are apart; how many that were."""
    one, other = pair
    publish(one, range(3))
    wait_until(lambda: count(other, "in") == 3)
    pair.network.part("A", "B")
    publish(one, range(3, 6))
    if there:
        publish(other, there)
    pair.network.heal()
    total = 6 + len(there)
    for uri in pair.uris("A", "B"):  # each knows that the other one has everything
        follower = LogFollower(read_options({"server": uri, "topic": "in"}, "readStream"), DURABLE)
        assert len(read(follower, EPOCH, total)[0]) == total
        follower.close()
    return total


def read(
    follower: LogFollower, place: str, count: int, end: MessageEnd | None = None
) -> tuple[list[int], str]:
    """So many messages behind a bookmark, and the bookmark of the last."""
    found: list[int] = []
    while len(found) < count:
        for messages in follower.read_messages(place, count - len(found), end):
            place = messages[-1].bookmark or ""
            found += [message.json()["id"] for message in messages]
    return found, place


def given(pair: Cluster) -> AmpsOptions:
    """The options of a stream that reads from either."""
    return read_options({"server": ",".join(pair.uris("A", "B")), "topic": "in"}, "readStream")


@pytest.mark.parametrize(
    ("there", "count_read"),
    [(range(0), 6), (range(6, 9), 9), (range(6, 9), 7)],
    ids=["the same order", "another order of what was read", "something new in between"],
)
def test_a_stream_goes_on_where_what_it_has_read_stands_together(
    tmp_path: Path, there: range, count_read: int
) -> None:
    """Else messages would be left out, or read twice; also by another run."""
    with cluster(tmp_path, PAIR, elements="") as pair:
        one, other = pair
        pair.start()
        total = publish_apart(pair, there)
        options = given(pair)
        follower = LogFollower(options, "bookmark_not_found=fail")
        found, place = read(follower, EPOCH, count_read)
        assert found == list(range(count_read))
        behind = follower.measure_backlog()
        assert behind is not None
        assert behind.rows == total - count_read
        end = follower.read_end
        one.kill()
        publish(other, range(9, 12))
        for running, known in ((follower, follower.read_end), (LogFollower(options, None), end)):
            if count_read == total:
                assert read(running, place, 3, known)[0] == [9, 10, 11]
            else:
                with pytest.raises(PipelineError, match="as a contiguous sequence"):
                    read(running, place, 3, known)
            running.close()


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_batch_is_repeated_where_it_has_the_same_messages(tmp_path: Path, is_whole: bool) -> None:
    """In whichever order; elsewhere it fails, also where as many are between the same two."""
    schema = StructType([StructField("id", IntegerType())])
    with cluster(tmp_path, PAIR, elements="") as pair:
        one, _ = pair
        pair.start()
        total = publish_apart(pair, range(6, 9))
        options = given(pair)
        reader = AmpsStreamReader(options, schema)
        start = reader.initialOffset()
        end = start
        while sum(end["ranges"].values()) < total:
            end = reader.latestOffset(start, ReadMaxRows(total))
        reader.stop()
        one.kill()
        if not is_whole:
            end["digests"] = ["0" * 32]
        again = AmpsStreamReader(options, schema)
        (part,) = again.partitions(start, end)
        if is_whole:
            found = [row["id"] for batch in again.read(part) for row in batch.to_pylist()]
            assert sorted(found) == list(range(total))
            assert found != sorted(found), "the order of the other one"
        else:
            with pytest.raises(PipelineError, match="has other messages"):
                list(again.read(part))
