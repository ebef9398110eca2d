"""What cannot be done is refused, naming the option and the cause."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import bson
import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructType

from amperage.client import Message
from amperage.wire.header import Header
from pipeline.amps.offsets import bookmark_of, ranges_of
from pipeline.amps.options import AccessMode, read_options
from pipeline.amps.sink import TaskIdentity
from pipeline.amps.source import AmpsDataSource
from pipeline.bodies import BodyFormat
from pipeline.errors import PipelineError
from pipeline.inference import decoder, infer_schema
from pipeline.rows import RowFormat
from tests.pipeline.topics import logged, publish, reading, records, streaming, uri, writing
from tests.support.server import RunningServer, free_port

GOOD = {"server": "tcp://localhost:9007/amps/json", "topic": "orders"}


@pytest.mark.parametrize(
    ("use", "given", "message"),
    [
        ("read", {"topic": "t"}, "option server: missing; expected a URI such as tcp://"),
        ("read", {"provider": "amps", "owner": "me"}, "option server: missing; expected a URI"),
        ("read", GOOD | {"pushdown": "true"}, "option pushdown='true': Spark applies the filters"),
        ("read", GOOD | {"where": "a > 1"}, "option where='a > 1': expected a text"),
        ("write", GOOD | {"order": "any"}, "option order='any': expected checked, given or sorted"),
        ("read", {"server": GOOD["server"]}, "option topic: missing"),
        ("read", GOOD | {"server": "localhost:9007"}, "option server: localhost:9007: expected a"),
        (
            "read",
            GOOD | {"server": "tcp://u:secret@a:1/amps/json,tcp://b:1/amps/fix"},
            "option server='tcp://u@a:1/amps/json,tcp://b:1/amps/fix': expected the same message",
        ),
        ("read", GOOD | {"server": "tcp://a:1/amps,tcp://b"}, "option server: tcp://b: expected h"),
        ("read", GOOD | {"fliter": "x"}, "option fliter: unknown; did you mean filter?"),
        ("read", GOOD | {"path": "orders"}, "option path: unknown; known are batch_size, bookmark"),
        ("read", GOOD | {"top_n": "-1"}, "option top_n='-1': expected a whole number from 1"),
        (
            "read",
            GOOD | {"batch_size": "2147483648"},
            "option batch_size='2147483648': expected a whole number from 1 to 2147483647",
        ),
        ("read", GOOD | {"filter": " "}, "option filter=' ': it is empty"),
        ("read", GOOD | {"timeout": "soon"}, "option timeout='soon': expected seconds"),
        (
            "read",
            GOOD | {"command": "publish"},
            "option command: it is for write, writeStream,",
        ),
        ("write", GOOD | {"command": "sow"}, "option command='sow': expected publish, delta_publi"),
        ("write", GOOD | {"exactly_once": "1"}, "option exactly_once='1': expected true or false"),
        ("write", GOOD | {"write_id": "n"}, "option write_id='n': write_version is missing"),
        ("write", GOOD | {"write_version": "1"}, "option write_version='1': write_id is missing"),
        (
            "write",
            GOOD | {"write_id": "n", "write_version": "2147483648"},
            "option write_version='2147483648': expected a whole number from 0 to 2147483647",
        ),
        (
            "write",
            GOOD | {"write_id": "n", "write_version": "1", "exactly_once": "false"},
            "option write_id='n': it requires exactly_once",
        ),
        (
            "readStream",
            GOOD | {"failondataloss": "no"},
            "option fail_on_data_loss='no': expected true or false",
        ),
        (
            "readStream",
            GOOD | {"failondataloss": "true", "fail_on_data_loss": "true"},
            "options failOnDataLoss and fail_on_data_loss: expected one of them",
        ),
        ("read", GOOD | {"timestampasof": "then"}, "option timestampAsOf='then': expected a time"),
        ("read", GOOD | {"versionasof": "5"}, "option versionAsOf='5': expected the bookmark of a"),
        (
            "read",
            GOOD | {"versionasof": "5|6|", "bookmark": "5|6|"},
            "options bookmark and versionAsOf: expected one of them",
        ),
        (
            "readStream",
            GOOD | {"versionasof": "5|6|"},
            "option versionAsOf: it is for read, and this is readStream",
        ),
        ("writeStream", GOOD | {"write_id": "n"}, "option write_id: it is for write, and this is"),
        (
            "read",
            GOOD | {"partitions": "2", "orderby": "/a"},
            "option partitions='2': orderby applies",
        ),
    ],
)
def test_options(use: AccessMode, given: dict[str, str], message: str) -> None:
    """Of every use, before anything is connected to."""
    with pytest.raises(PipelineError) as caught:
        read_options(given, use)
    assert str(caught.value).startswith(message)


def test_every_option_of_a_use_is_taken() -> None:
    for use in get_args(AccessMode):
        assert read_options(GOOD, use).topic == "orders"


@pytest.mark.parametrize(
    ("schema", "message_type", "message"),
    [
        ({"body": "integer"}, "json", "schema: column body is int, expected string or binary"),
        ({"body": "string", "qty": "integer"}, "json", "schema: column 'qty': with a column body"),
        (
            {"body": "variant"},
            "json",
            "schema: column body is variant, expected string or binary: parse_json(body) converts",
        ),
        (
            {"order": "variant"},
            "json",
            "schema: column 'order': no field of a message is of type variant; Spark's parse_json(",
        ),
        ({"body": "string", "topic": "long"}, "json", "schema: column 'topic' is bigint, expected"),
        ({"qty": "integer"}, "binary", "schema: the fields qty cannot be read from messages"),
        ({"qty": "interval"}, "json", "schema: column 'qty': no field of a message is of type"),
    ],
)
def test_schemas_for_reading(schema: dict[str, str], message_type: str, message: str) -> None:
    """By what can be had of messages of a type."""
    columns = StructType()
    for name, kind in schema.items():
        columns = columns.add(name, kind) if kind != "interval" else columns.add(name, "void")
    source = AmpsDataSource(GOOD | {"server": f"tcp://localhost:9007/amps/{message_type}"})
    with pytest.raises(PipelineError) as caught:
        source.reader(columns)
    assert str(caught.value).startswith(message)


def test_columns_that_must_not_be_null() -> None:
    """Spark would not look, and fail or pass over rows; the same goes for two of one name."""
    some = StructType().add("a", "long", nullable=False).add("l", ArrayType(LongType(), False))
    inner = StructType().add("s", some)
    for schema, body, message in (
        (some, b'{"a":1,"l":[1]}', ""),
        (some, b"{}", "column 'a' is NOT NULL"),
        (some, b'{"a":1,"l":[null]}', "column 'l.element' is NOT NULL"),
        (inner, b'{"s":{"a":1}}', ""),
        (inner, b'{"s":null}', ""),
        (inner, b'{"s":{}}', "column 's.a' is NOT NULL"),
        (StructType().add("m", MapType(StringType(), some)), b'{"m":{"k":{}}}', "'m.value.a'"),
        (StructType().add("_bookmark", "string", nullable=False), b"{}", "'_bookmark' is NOT"),
        (StructType().add("a", "long").add("a", "string"), b"{}", "'a': 2 columns have this name"),
    ):
        messages = [Message(Header(command="sow"), one) for one in (b'{"a":1,"l":[]}', body)]
        with pytest.raises(PipelineError, match=message) if message else nullcontext():
            RowFormat(schema, "json").batch(messages[1:] if "s" in schema.names else messages)


def test_samples_of_other_types_than_json() -> None:
    """Have the types that their values have."""
    bodies = [{"i": 1, "s": "x", "legs": [{"px": 1.5}]}, {"i": 2**40, "legs": [{"lot": 1}]}]
    expected = "struct<i:bigint,s:string,legs:array<struct<px:double,lot:bigint>>>"
    encoders: dict[str, Callable[[Any], bytes]] = {
        "msgpack": msgspec.msgpack.encode,
        "bson": bson.encode,
    }
    for kind, encode in encoders.items():
        decode = decoder(kind, None)
        assert decode is not None
        assert infer_schema(map(encode, bodies), decode).simpleString() == expected
        with pytest.raises(PipelineError, match="a message is not valid such thing"):
            infer_schema([b"\x81\xa1"], decode, "such thing")
    assert decoder("nvfix", None) is None


def test_samples_that_disagree() -> None:
    """A field of two types, none at all, and what is no JSON."""
    for bodies, message in {
        (b'{"a":1}', b'{"a":"x"}'): "field 'a' is bigint in one message and string in another",
        (): "no messages with fields",
        (b"{",): "a message is not valid JSON",
        (b'{"body":1}',): "the messages have a field 'body', which is the name of a",
        (b'{"_topic":1}',): "the messages have a field '_topic', which is the name of a",
    }.items():
        with pytest.raises(PipelineError, match=message):
            infer_schema(bodies)


@pytest.mark.parametrize(
    ("read", "offset"),
    [
        (bookmark_of, {}),
        (bookmark_of, {"bookmark": None}),
        (bookmark_of, {"bookmark": ""}),
        (bookmark_of, {"bookmark": "1|x|"}),
        (bookmark_of, []),
        (ranges_of, {"bookmark": "0"}),
        (ranges_of, {"bookmark": "0", "ranges": [1]}),
    ],
)
def test_an_offset_of_another_source(
    read: Callable[[dict[str, Any]], object], offset: dict[str, Any]
) -> None:
    with pytest.raises(
        PipelineError, match=r"checkpoint: the offset [{\[].*[}\]] is not one of forma"
    ):
        read(offset)


def test_a_lifetime_below_zero() -> None:
    schema = StructType().add("body", "string").add("expiration", "integer")
    batch = pa.RecordBatch.from_pydict({"body": ["{}"] * 3, "expiration": [1, None, -5]})
    with pytest.raises(PipelineError, match="column 'expiration' is -5 in a row; expected sec"):
        BodyFormat(schema, "json").messages(batch)


def test_a_checkpoint_that_was_set_back() -> None:
    """The server has later batches of the query: those of this one would be taken for sent."""
    assert TaskIdentity("me", 7).count_sent((7 << 32) + 5) == 5
    assert TaskIdentity("me", 7).count_sent((6 << 32) + 5) == 0
    with pytest.raises(PipelineError, match=r"micro-batch 7, and .* already has micro-batch 8"):
        TaskIdentity("me", 7).count_sent((8 << 32) + 1)


def test_reads_that_the_server_refuses(spark: SparkSession, server: RunningServer) -> None:
    """And one that reaches no server."""
    publish(server, "sow-bad", [{"id": 1, "n": "x"}])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"topic": "nowhere"}, "option topic='nowhere': sow: invalid topic"),
        ({"filter": "/a ="}, "option filter='/a =': sow: bad filter"),
        ({"orderby": "/a sideways"}, "option orderby='/a sideways': sow: invalid orderby"),
        ({"options": "conflation"}, "option options='conflation"),
        ({"bookmark": "yesterday", "topic": "past"}, "option bookmark='yesterday': sow: invalid"),
        ({"versionAsOf": "5|6|", "topic": "past"}, "option bookmark='5|6|': sow: bookmark not fou"),
        ({"timestampAsOf": "2026-01-02"}, "option topic='sow-bad': no state as of 20260102T000000"),
        ({"server": f"tcp://localhost:{free_port()}/amps/json"}, "option server='tcp://localhost"),
        ({"server": uri(server, "nonsense")}, "option server='tcp://127.0.0.1"),
    ]
    for options, message in cases:
        frame = reading(spark, server, "sow-bad").options(**options).load()
        with pytest.raises(PySparkException) as caught:
            frame.count()
        assert message in str(caught.value)
    with pytest.raises(PySparkException) as caught:
        reading(spark, server, "sow-bad").schema("id INT, n INT").load().collect()
    assert "schema: a message does not fit: Expected `int | null`, got `str` - at `$.n`" in str(
        caught.value
    )


def test_streams_that_cannot_be(spark: SparkSession, server: RunningServer, tmp_path: Path) -> None:
    """Topics that are not in the log, and places that it does not have."""
    publish(server, "log-short", [{"id": 1}])
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("sow-bad", {}, "option topic='sow-bad': it is not in the server's TransactionLog"),
        ("log-short", {"bookmark": "5|6|"}, "option bookmark='5|6|': subscribe: bookmark not foun"),
        ("log-short", {"bookmark": "[0:0|1|]"}, "option bookmark='[0:0|1|]': expected a start"),
    ]
    for number, (topic, options, message) in enumerate(cases):
        frame = streaming(spark, server, topic, **options).load()
        writer = frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / str(number))).start()
        with pytest.raises(PySparkException) as caught:
            query.awaitTermination()
        assert message in str(caught.value)


def test_writes_that_cannot_be(spark: SparkSession, server: RunningServer) -> None:
    """Nothing is written then; but by a write with a message that the server will not have."""
    frame = spark.createDataFrame([(1,)], "id INT")
    cases: list[tuple[Any, str]] = [
        (writing(frame, server, topic="sow-once"), "exactly_once=false allows that"),
        (writing(frame, server), "option topic: missing; expected a topic, or a column"),
        (
            writing(frame, server, "nvfix", topic="log-w"),
            "the columns id can be published",
        ),
        (
            writing(frame, server, topic="log-w").mode("overwrite"),
            "mode overwrite: published messages",
        ),
        (writing(frame.selectExpr("id AS _topic"), server), "column '_topic' is int, expected str"),
        (writing(frame, server, topic="^log-"), "option topic='^log-': it is not in the server's"),
        (
            writing(frame.selectExpr("id", "'' AS _topic"), server),
            "column '_topic' is NULL or empty in a row",
        ),
    ]
    for writer, message in cases:
        with pytest.raises(PySparkException) as caught:
            writer.save()
        assert message in str(caught.value)
    assert logged(server, "log-w") == []
    writing(frame, server, topic="sow-once", exactly_once=False).save()
    assert records(server, "sow-once") == [{"id": 1}]
    rows = [('{"id":2}', "both-w"), ("{}", "/AMPS/no"), ('{"id":3}', "both-w")]
    bodies = spark.createDataFrame(rows, "body STRING, topic STRING").coalesce(1)
    with pytest.raises(PySparkException) as caught:
        writing(bodies, server, exactly_once=False).save()
    assert "the server refused 1 of the rows and accepted all others" in str(caught.value)
    assert [record["id"] for record in records(server, "both-w")] == [2, 3]
    many = spark.range(0, 25, 1, 1).selectExpr("'{}' AS body", "'/AMPS/no' AS topic")
    with pytest.raises(PySparkException, match="the server refused at least 10 of the rows"):
        writing(many, server, exactly_once=False).save()
