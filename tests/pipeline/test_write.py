"""DataFrames published to topics, and used to delete records."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

from pyspark.sql import Row, SparkSession

from tests.pipeline.topics import logged, publish, reading, records, writing
from tests.support.server import RunningServer


def test_columns_become_json(spark: SparkSession, server: RunningServer) -> None:
    """Whatever their types; what is NULL is left out."""
    row = Row(
        id=1,
        text='ü"',
        price=Decimal("1.10"),
        when=datetime(2026, 1, 2, 3, 4, 5, 600000, UTC),
        flags=[True, None],
        inner=Row(a=1.5, b=None),
        map={"k": 1},
        nothing=None,
    )
    schema = (
        "id INT, text STRING, price DECIMAL(10,2), when TIMESTAMP, flags ARRAY<BOOLEAN>,"
        " inner STRUCT<a: DOUBLE, b: STRING>, map MAP<STRING, INT>, nothing STRING"
    )
    frame = spark.createDataFrame([row], schema)
    writing(frame, server, topic="log-json").save()
    (body,) = logged(server, "log-json")
    assert b'"price":1.10' in body
    assert json.loads(body) == {
        "id": 1,
        "text": 'ü"',
        "price": 1.1,
        "when": "2026-01-02T03:04:05.600000Z",
        "flags": [True, None],
        "inner": {"a": 1.5, "b": None},
        "map": {"k": 1},
    }


def test_bodies_go_as_they_are_and_rows_say_where(
    spark: SparkSession, server: RunningServer
) -> None:
    """Bodies of any type; topic and correlation id from columns."""
    rows = [("a=1\x01", "log-x1", "c1"), ("a=2\x01", "log-x2", None)]
    frame = spark.createDataFrame(rows, "body STRING, topic STRING, correlation_id STRING")
    writing(frame, server, "nvfix").save()
    assert logged(server, "log-x1", "nvfix") == [b"a=1\x01"]
    assert logged(server, "log-x2", "nvfix") == [b"a=2\x01"]
    blobs = spark.createDataFrame([(bytearray(b"\x00\xff"),)], "body BINARY")
    writing(blobs, server, "binary", topic="log-b").save()
    assert logged(server, "log-b", "binary") == [b"\x00\xff"]


def test_what_was_read_can_be_written(spark: SparkSession, server: RunningServer) -> None:
    publish(server, "both-from", [{"id": i, "v": "x" * i} for i in range(20)])
    frame = reading(spark, server, "both-from").load().drop("topic")
    writing(frame, server, topic="both-to").save()
    assert records(server, "both-to") == records(server, "both-from")


def test_delta_publish_changes_records(spark: SparkSession, server: RunningServer) -> None:
    publish(server, "both-delta", [{"id": i, "a": 1, "b": 1} for i in range(3)])
    frame = spark.createDataFrame([(0, 5, None), (2, None, 7)], "id INT, a INT, b INT")
    writing(frame, server, topic="both-delta", command="delta_publish").save()
    assert records(server, "both-delta") == [
        {"id": 0, "a": 5, "b": 1},
        {"id": 1, "a": 1, "b": 1},
        {"id": 2, "a": 1, "b": 7},
    ]


def test_rows_delete_records(spark: SparkSession, server: RunningServer) -> None:
    """By SOW key, many at once, and by a message for each."""
    publish(server, "both-del", [{"id": i, "a": i % 2} for i in range(2000)])
    keys = reading(spark, server, "both-del", filter="/a = 1").load().select("sow_key")
    writing(keys.limit(400), server, topic="both-del", command="sow_delete").save()
    assert len(records(server, "both-del")) == 1600
    renamed = keys.withColumnRenamed("sow_key", "_sow_key")
    writing(renamed, server, topic="both-del", command="sow_delete").save()
    assert [record["id"] for record in records(server, "both-del")] == list(range(0, 2000, 2))
    writing(spark.range(0, 1990, 2, 2), server, topic="both-del", command="sow_delete").save()
    assert [record["id"] for record in records(server, "both-del")] == list(range(1990, 2000, 2))
