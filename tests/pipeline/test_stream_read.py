"""Messages of the transaction log as a stream."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import Row, SparkSession

from tests.pipeline.streams import read_all, until
from tests.pipeline.topics import publish, streaming
from tests.support.server import RunningServer


def test_all_there_is_in_batches_and_again_from_the_checkpoint(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Large batches are divided; a batch that was not committed is repeated as it was."""
    publish(server, "log-now", [{"id": i} for i in range(12_500)])
    options = {"max_rows_per_trigger": 11_000, "partitions": 2}
    frame = streaming(spark, server, "log-now", **options).schema("id INT, _bookmark STRING").load()
    rows = read_all(spark, frame, tmp_path)
    assert sorted(row.id for row in rows) == list(range(12_500))
    assert len({row._bookmark for row in rows}) == 12_500
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[01]"))
    assert [len(json.loads(one.read_text().splitlines()[-1])["ranges"]) for one in offsets] == [
        2,
        2,
    ]
    # As if it had been killed after the last batch was written and before that was noted down.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    publish(server, "log-now", [{"id": 12_500}])
    rows = read_all(spark, frame, tmp_path)
    assert sorted(row.id for row in rows) == list(range(12_501))


def test_a_stream_goes_on_with_another_column(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Messages have got a field that they did not have before; the checkpoint is the same."""
    publish(server, "log-evolves", [{"id": 1}, {"id": 2}])
    first = streaming(spark, server, "log-evolves").schema("id INT").load()
    read_all(spark, first, tmp_path)
    publish(server, "log-evolves", [{"id": 3, "qty": 5}, {"id": 4}])
    second = streaming(spark, server, "log-evolves").schema("id INT, qty INT").load()
    read_all(spark, second, tmp_path)
    rows = spark.read.schema("id INT, qty INT").parquet(str(tmp_path / "rows")).collect()
    assert sorted(map(tuple, rows), key=str) == [(1, None), (2, None), (3, 5), (4, None)]


def test_what_comes_is_followed(spark: SparkSession, server: RunningServer, tmp_path: Path) -> None:
    """From now on, over several topics, filtered by the server, as bodies with metadata."""
    publish(server, "log-follow-1", [{"id": -1}])
    options = {"bookmark": "0|1|", "filter": "/id % 2 = 0"}
    frame = streaming(spark, server, "^log-follow-", **options).load()
    found: list[Row] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        until(lambda: bool(query.recentProgress) or _publish_probe(server, found), query)
        publish(server, "log-follow-1", [{"id": i} for i in range(4)])
        publish(server, "log-follow-2", [{"id": i} for i in range(4, 8)])
        until(lambda: [row.body for row in found if "probe" not in row.body][3:] != [], query)
    finally:
        query.stop()
    rows = [row for row in found if "probe" not in row.body]
    assert [(row.topic, json.loads(row.body)["id"]) for row in rows] == [
        ("log-follow-1", 0),
        ("log-follow-1", 2),
        ("log-follow-2", 4),
        ("log-follow-2", 6),
    ]
    assert all(row.bookmark.count("|") == 2 and row.timestamp is not None for row in rows)


def _publish_probe(server: RunningServer, found: list[Row]) -> bool:
    """Publish something that tells by its arrival that the query is listening."""
    publish(server, "log-follow-1", [{"id": 0, "probe": True}])
    return bool(found)


def test_records_that_are_followed_have_their_keys(
    spark: SparkSession, server: RunningServer, tmp_path: Path
) -> None:
    """Of a topic that keeps records."""
    publish(server, "both-keys", [{"id": i % 3} for i in range(6)])
    frame = streaming(spark, server, "both-keys").schema("id INT, _sow_key STRING").load()
    rows = read_all(spark, frame, tmp_path)
    assert sorted(row.id for row in rows) == [0, 0, 1, 1, 2, 2]
    assert len({(row.id, row._sow_key) for row in rows}) == 3
