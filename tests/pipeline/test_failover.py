"""A stream from a pair of instances to the same pair, of which either dies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from client import EPOCH, Backoff, HAClient, ServerChooser
from pipeline.amps.follower import Follower
from pipeline.amps.offsets import End
from pipeline.amps.options import read_options
from pipeline.errors import PipelineError
from tests.pipeline.streams import WAIT_SECONDS, until
from tests.pipeline.test_exactly_once import assert_once
from tests.pipeline.topics import logged
from tests.support.cluster import PAIR, Instance, cluster
from tests.support.waiting import wait_until

ROWS: Final = 6_000


def count(instance: Instance, topic: str) -> int:
    """How many messages of a topic an instance has."""
    return len(logged(instance.server, topic))


@pytest.mark.parametrize("order", ["checked", "sorted"])
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


@pytest.mark.parametrize("is_same", [True, False])
def test_a_stream_goes_on_only_where_what_it_has_read_has_the_same_order(
    tmp_path: Path, is_same: bool
) -> None:
    """Else messages of the other order would be left out, or read twice; also by another run."""

    def publish(instance: Instance, numbers: range) -> None:
        with instance.server.log_on(f"publisher of {numbers}") as peer:
            for number in numbers:
                peer.publish("in", f'{{"id":{number}}}'.encode())
            wait_until(lambda: f'{{"id":{numbers[-1]}}}'.encode() in logged(instance.server, "in"))

    def read(
        follower: Follower, place: str, count: int, end: End | None = None
    ) -> tuple[list[int], str]:
        found: list[int] = []
        while len(found) < count:
            for messages in follower.take(place, None, end):
                place = messages[-1].bookmark or ""
                found += [message.json()["id"] for message in messages]
        return found, place

    with cluster(tmp_path, PAIR, elements="") as pair:
        one, other = pair
        pair.start()
        publish(one, range(3))
        wait_until(lambda: count(other, "in") == 3)
        pair.network.part("A", "B")
        publish(one, range(3, 6))
        if not is_same:
            publish(other, range(6, 9))
        pair.network.heal()
        total = 6 if is_same else 9
        wait_until(lambda: all(count(instance, "in") == total for instance in pair))
        given = {"server": ",".join(pair.uris("A", "B")), "topic": "in"}
        options = read_options(given, "readStream")
        follower = Follower(options, "bookmark_not_found=fail")
        found, place = read(follower, EPOCH, total)
        assert found == list(range(total))
        end = follower.end
        one.kill()
        publish(other, range(9, 12))
        for running, known in ((follower, follower.end), (Follower(options, None), end)):
            if is_same:
                assert read(running, place, 3, known)[0] == [9, 10, 11]
            else:
                with pytest.raises(PipelineError, match="in the same order"):
                    read(running, place, 3, known)
            running.close()
