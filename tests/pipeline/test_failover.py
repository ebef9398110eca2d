"""A stream from a pair of instances to the same pair, of which either dies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from client import Backoff, HAClient, ServerChooser
from tests.pipeline.streams import WAIT_SECONDS, until
from tests.pipeline.test_exactly_once import assert_once
from tests.pipeline.topics import logged
from tests.support.cluster import PAIR, Instance, cluster

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
