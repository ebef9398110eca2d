"""Records of SOW topics as DataFrames."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from tests.pipeline.topics import publish, reading
from tests.support.server import RunningServer


def test_records_come_as_bodies_with_their_metadata(
    spark: SparkSession, server: RunningServer
) -> None:
    """Which is the schema where none is given."""
    started = datetime.now(UTC)
    publish(server, "sow-bodies", [b'{"id": 1,  "x": 1.0}', b'{"id":2}'])
    frame = reading(spark, server, "sow-bodies").load()
    assert frame.columns == ["body", "topic", "sow_key", "bookmark", "timestamp", "correlation_id"]
    rows = frame.orderBy("body").collect()
    assert [row.body for row in rows] == ['{"id": 1,  "x": 1.0}', '{"id":2}']
    assert {row.topic for row in rows} == {"sow-bodies"}
    assert all(row.sow_key.isdigit() for row in rows)
    assert all(abs((row.timestamp.astimezone(UTC) - started).total_seconds()) < 60 for row in rows)


def test_fields(spark: SparkSession, server: RunningServer) -> None:
    publish(server, "sow-f", [{"id": i, "qty": i * 2, "s": str(i)} for i in range(10)])
    frame = (
        reading(spark, server, "sow-f").schema("id INT, qty BIGINT, s STRING, _topic STRING").load()
    )
    q = frame.filter("qty > 10 and s like '9%'")
    q.explain()
    assert [tuple(r) for r in q.collect()] == [(9, 18, "9", "sow-f")]
    assert (
        reading(spark, server, "sow-f", sample=5).load().schema.simpleString()
        == "struct<id:bigint,qty:bigint,s:string>"
    )
    assert reading(spark, server, "sow-f", partitions=3).load().count() == 10
    try:
        reading(spark, server, "nix").load().count()
    except Exception as e:
        print(str(e)[-3000:])
    assert 0
