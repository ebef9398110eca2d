"""Records of SOW topics as DataFrames."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import bson
import msgspec
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from amperage.client import Client
from pipeline.compiled_readers import FieldReader
from pipeline.errors import PipelineError
from pipeline.fields import read_fields
from tests.pipeline.bodies import packed
from tests.pipeline.topics import bookmarks, publish, reading, uri
from tests.support.server import RunningServer, free_port


def test_records_come_as_bodies_with_their_metadata(
    spark: SparkSession, server: RunningServer
) -> None:
    """Which is the schema where none is given."""
    started = datetime.now(UTC)
    publish(server, "sow-bodies", [b'{"id": 1,  "x": 1.0}', b'{"id":2}'])
    with Client() as client:
        client.connect(uri(server))
        client.logon()
        client.confirmed_publish("sow-bodies", b'{"id":3}', "processed", correlation_id="c3")
    frame = reading(spark, server, "sow-bodies").load()
    assert frame.columns == ["body", "topic", "sow_key", "bookmark", "timestamp", "correlation_id"]
    rows = frame.orderBy("body").collect()
    assert [row.body for row in rows] == ['{"id": 1,  "x": 1.0}', '{"id":2}', '{"id":3}']
    assert [row.correlation_id for row in rows] == [None, None, "c3"]
    assert {row.topic for row in rows} == {"sow-bodies"}
    assert all(row.sow_key.isdigit() for row in rows)
    assert all(abs((row.timestamp.astimezone(UTC) - started).total_seconds()) < 60 for row in rows)


def test_the_first_server_that_can_be_reached_is_read(
    spark: SparkSession, server: RunningServer
) -> None:
    publish(server, "sow-several", [{"id": 1}])
    away = f"tcp://127.0.0.1:{free_port()}/amps/json"
    for servers in (f"{away},{uri(server)}", f"{uri(server)}, {away}"):
        frame = reading(spark, server, "sow-several").option("server", servers).load()
        assert [row.body for row in frame.collect()] == ['{"id": 1}']


def test_fields_come_as_columns(spark: SparkSession, server: RunningServer) -> None:
    """Of all types, nested ones too; metadata among them has an underscore."""
    message = (
        b'{"id":1,"skipped":{"deep":[1]},"n":12.30,"day":"2026-01-02","at":"2026-01-02T03:04:05Z",'
        b'"list":[{"a":1},{"b":"x"}],"map":{"k":1.5},"topic":"mine","odd name":true}'
    )
    publish(server, "sow-columns", [message])
    schema = (
        "id INT, n DECIMAL(10,2), day DATE, at TIMESTAMP, list ARRAY<STRUCT<a: INT, b: STRING>>,"
        " map MAP<STRING, DOUBLE>, topic STRING, `odd name` BOOLEAN, missing BIGINT, _topic STRING"
    )
    (row,) = reading(spark, server, "sow-columns").schema(schema).load().collect()
    assert row.asDict(recursive=True) == {
        "id": 1,
        "n": Decimal("12.30"),
        "day": datetime(2026, 1, 2).date(),
        "at": datetime(2026, 1, 2, 3, 4, 5),
        "list": [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        "map": {"k": 1.5},
        "topic": "mine",
        "odd name": True,
        "missing": None,
        "_topic": "sow-columns",
    }


def test_a_schema_is_inferred_from_a_sample(spark: SparkSession, server: RunningServer) -> None:
    """Of records, and of the log for topics that keep none."""
    messages = [{"id": 1, "n": 1, "x": {"a": None}}, {"id": 2, "n": 1.5, "x": {"a": [1]}}]
    expected = "struct<id:bigint,n:double,x:struct<a:array<bigint>>>"
    for topic in ("sow-sample", "log-sample"):
        publish(server, topic, messages)
        assert reading(spark, server, topic, sample=10).load().schema.simpleString() == expected


def test_what_the_server_selects_and_orders(spark: SparkSession, server: RunningServer) -> None:
    """filter, orderby, top_n and options go to the server as they are."""
    publish(server, "sow-top", [{"id": i, "n": i % 10} for i in range(100)])
    terms = {"filter": "/id < 50", "orderby": "/n DESC, /id", "top_n": 3, "options": "skip_n=1"}
    frame = reading(spark, server, "sow-top", **terms).schema("id INT, n INT").load()
    assert [row.id for row in frame.collect()] == [19, 29, 39]
    assert [row.id for row in frame.filter("id > 20").collect()] == [29, 39]


def test_a_read_is_divided_without_loss(spark: SparkSession, server: RunningServer) -> None:
    """By keys, and by topics of a regular expression."""
    for number in range(4):
        publish(server, f"sow-part-{number}", [{"id": i} for i in range(50)])
    for by in ("key", "topic"):
        frame = reading(spark, server, "^sow-part-", partitions=3, partition_by=by).load()
        rows = frame.selectExpr("topic", "body", "spark_partition_id() AS part").collect()
        assert len({(row.topic, row.body) for row in rows}) == len(rows) == 200
        tasks = {(row.topic, row.part) for row in rows}
        assert len(tasks) == (4 if by == "topic" else 12)


def test_time_travel(spark: SparkSession, server: RunningServer) -> None:
    """The state of a moment, or after a message, of a topic that keeps its history."""
    publish(server, "past", [{"id": 1, "n": 1}])
    (message,) = bookmarks(server, "past")
    time.sleep(0.005)
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    time.sleep(0.005)
    publish(server, "past", [{"id": 1, "n": 2}, {"id": 2, "n": 2}])
    shown = datetime.strptime(moment, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    local = shown.astimezone(timezone(timedelta(hours=-5, minutes=-30)))
    points = [("bookmark", moment), ("bookmark", message), ("versionAsOf", message)]
    points += [("timestampAsOf", text) for text in (local.isoformat(), f"{shown:%F %T.%f}")]
    for option, point in points:
        then = reading(spark, server, "past", **{option: point}).schema("id INT, n INT").load()
        assert then.collect() == [Row(id=1, n=1)]
    now = reading(spark, server, "past").schema("id INT, n INT").load()
    changed = "SELECT id FROM {now} LEFT ANTI JOIN {then} USING (id, n) ORDER BY id"
    assert [row.id for row in spark.sql(changed, now=now, then=then).collect()] == [1, 2]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW then (id INT, n INT) USING amps OPTIONS"
        f" (server '{uri(server)}', topic 'past', timestampAsOf '{shown:%F %T.%f}')"
    )
    assert spark.sql("SELECT sum(n) FROM then").collect() == [(1,)]


def test_fields_of_other_types_than_json(spark: SparkSession, server: RunningServer) -> None:
    """Texts become what the columns are."""
    publish(server, "nv", [b"id=1\x01px=1.50\x01s=007\x01"], "nvfix")
    reader = reading(spark, server, "nv").option("server", uri(server, "nvfix"))
    schema = StructType().add("id", "integer").add("px", "double").add("s", "string")
    assert [tuple(row) for row in reader.schema(schema).load().collect()] == [(1, 1.5, "007")]


def read_one(reader: FieldReader, body: bytes) -> dict[str, Any]:
    return {name: column[0].as_py() for name, column in reader.columns(packed([body])).items()}


def test_structs_of_other_types_than_json() -> None:
    """Are put together from the values that their members lead to; bytes are taken as they are."""
    inner = StructType().add("q", "integer").add("z", "string")
    schema = StructType().add("n", inner).add("b", "binary").add("none", inner)
    body = msgspec.msgpack.encode({"n": {"q": 1}, "b": b"\xff"})
    reader = read_fields(schema, "msgpack")
    assert read_one(reader, body) == {"n": {"q": 1, "z": None}, "b": b"\xff", "none": None}
    reader = read_fields(StructType().add("a", inner.add("@x", "integer")), "xml")
    body = b"<a x='7'><q>1</q><z>t</z></a>"
    assert read_one(reader, body) == {"a": {"q": 1, "z": "t", "@x": 7}}
    nested = StructType().add("n", ArrayType(inner))
    with pytest.raises(PipelineError, match="column 'n': from messages of type nvfix, only single"):
        read_fields(nested, "nvfix")
    packed = StructType().add("n", MapType(StringType(), BinaryType()))
    with pytest.raises(PipelineError, match="column 'n': bytes within maps and within arrays"):
        read_fields(packed, "msgpack")


@pytest.mark.parametrize(
    ("message_type", "encode"), [("msgpack", msgspec.msgpack.encode), ("bson", bson.encode)]
)
def test_maps_and_arrays_of_structs(message_type: str, encode: Callable[[Any], bytes]) -> None:
    """Of message types that have them; members that are missing are NULL."""
    leg = StructType().add("px", "double").add("lots", ArrayType(LongType()))
    legs = ArrayType(leg)
    counts = MapType(StringType(), IntegerType())
    inner = StructType().add("counts", counts).add("q", "integer")
    reader = read_fields(
        StructType().add("legs", legs).add("n", inner).add("none", legs), message_type
    )
    body = encode({"legs": [{"px": 1.5, "lots": [1, 2]}, {"px": 2}], "n": {"counts": {"a": 1.0}}})
    assert read_one(reader, body) == {
        "legs": [{"px": 1.5, "lots": [1, 2]}, {"px": 2.0, "lots": None}],
        "n": {"counts": [("a", 1)], "q": None},
        "none": None,
    }
    with pytest.raises(PipelineError, match="column 'legs': Expected `float"):
        read_one(reader, encode({"legs": [{"px": {}}]}))
    with pytest.raises(PipelineError, match="column 'none'"):
        read_one(reader, encode({"none": {"px": 1}}))
