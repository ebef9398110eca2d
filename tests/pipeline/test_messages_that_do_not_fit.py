"""Times of every message type, numbers as people write them, and messages that fit no schema."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import bson
import msgpack
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from amperage.client import Message
from amperage.wire.header import Header
from pipeline.amps.options import read_options
from pipeline.errors import PipelineError
from pipeline.journal.source import AmpsJournalDataSource
from pipeline.rows import RowFormat
from server.message_types.bflat_fields import BFlatCode, pair
from tests.pipeline.journals import journal
from tests.pipeline.streams import read_all
from tests.pipeline.topics import publish, reading, streaming
from tests.support.server import RunningServer

TIME, NTZ, DAY = TimestampType(), TimestampNTZType(), DateType()
BY_A_MOMENT = datetime(2026, 1, 2, 3, 4, 5, 123000, UTC)
WHOLE_SECOND = BY_A_MOMENT.replace(microsecond=0)
MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
SECONDS = 1767323045
"""Of 2026-01-02T03:04:05Z."""
MILLIS = struct.pack("<q", SECONDS * 1000 + 123)

Read = Callable[[Path, str, bytes, StructType, Mapping[str, str]], list[dict[str, Any]]]


def from_messages(
    _: Path, message_type: str, body: bytes, schema: StructType, options: Mapping[str, str]
) -> list[dict[str, Any]]:
    """As `amps` makes rows."""
    given = {"server": f"tcp://localhost:9007/amps/{message_type}", "topic": "t"}
    tolerance = read_options(given | dict(options), "read").tolerance
    rows = RowFormat(schema, message_type, tolerance)
    messages = [Message(Header(command="sow"), body)]
    return list(rows.batch(messages).to_pylist())


def from_journals(
    directory: Path, message_type: str, body: bytes, schema: StructType, options: Mapping[str, str]
) -> list[dict[str, Any]]:
    """As `amps-journal` does."""
    with journal(directory) as writer:
        writer.publish("t", body, message_type=message_type)
    reader = AmpsJournalDataSource({"path": str(directory), **options}).reader(schema)
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    return [row for batch in batches for row in batch.to_pylist()]


READERS = [
    pytest.param(from_messages, id="amps"),
    pytest.param(from_journals, id="amps-journal"),
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("body", [b'{"n":"many"}', b"\xff\xfe", b'{"n":1'])
def test_of_messages_none_of_which_fits_nothing_is_left(
    tmp_path: Path, read: Read, body: bytes
) -> None:
    """Also where they are all that has arrived together."""
    schema = StructType().add("n", "integer")
    assert read(tmp_path, "json", body, schema, {"mode": "drop"}) == []


def fix(value: str) -> bytes:
    """A message of type fix or nvfix."""
    return f"60={value}\x01".encode()


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("message_type", "body", "kind", "timestamps", "expected"),
    [
        ("json", b'{"60":"2026-01-02T03:04:05.123Z"}', TIME, None, BY_A_MOMENT),
        ("json", b'{"60":"2026-01-02T08:04:05.123+05:00"}', TIME, None, BY_A_MOMENT),
        ("json", b'{"60":"2026-01-02T03:04:05.123"}', TIME, None, BY_A_MOMENT),
        (
            "json",
            b'{"60":"2026-01-02T08:04:05.123+05:00"}',
            NTZ,
            None,
            BY_A_MOMENT.replace(tzinfo=None),
        ),
        ("json", b'{"60":"2026-01-02"}', DAY, None, date(2026, 1, 2)),
        ("json", b'{"60":1767323045}', TIME, None, "Expected `datetime | null`, got `int`"),
        ("json", b'{"60":"1767323045"}', TIME, None, "Invalid RFC3339 encoded datetime"),
        ("json", b'{"60":1767323045123}', TIME, "millis", BY_A_MOMENT),
        ("json", b'{"60":1767323045.123}', TIME, "seconds", BY_A_MOMENT),
        ("json", b'{"60":1767323045123000}', TIME, "micros", BY_A_MOMENT),
        ("json", b'{"60":1767323045123}', DAY, "millis", date(2026, 1, 2)),
        ("json", b'{"60":1767323045123}', TIME, "seconds", "is not a time between the years 1 and"),
        ("json", b'{"60":"20260102-03:04:05.123"}', TIME, "fix", BY_A_MOMENT),
        ("json", b'{"60":true}', TIME, "millis", "expected a time, got True"),
        ("json", b'{"60":[1767323045]}', ArrayType(TIME), "seconds", [WHOLE_SECOND]),
        ("fix", fix("20260102-03:04:05.123"), TIME, None, BY_A_MOMENT),
        ("fix", fix("20260102-03:04:05.123"), NTZ, None, BY_A_MOMENT.replace(tzinfo=None)),
        ("fix", fix("20260102-03:04:05.123456789"), DAY, None, date(2026, 1, 2)),
        ("fix", fix("20260101-23:59:60"), TIME, None, MIDNIGHT),
        ("fix", fix("20260102"), TIME, None, MIDNIGHT),
        ("fix", fix("20260102"), DAY, None, date(2026, 1, 2)),
        ("fix", fix("2026-01-02"), DAY, None, date(2026, 1, 2)),
        ("fix", fix("03:04:05"), TIME, None, "a time of day has no date"),
        ("fix", fix("1767323045"), TIME, None, "Invalid RFC3339"),
        ("fix", fix("1767323045123"), TIME, "millis", BY_A_MOMENT),
        ("fix", fix("20260102"), TIME, "iso", "Invalid RFC3339"),
        ("fix", fix("20261302"), TIME, None, "month must be in 1..12"),
        ("nvfix", fix("20260102-03:04:05.123"), TIME, None, BY_A_MOMENT),
        ("nvfix", fix("20260102"), NTZ, None, MIDNIGHT.replace(tzinfo=None)),
        ("nvfix", fix("1767323045"), DAY, None, "Invalid RFC3339"),
        ("xml", b"<r><d>20260102</d></r>", TIME, None, "Invalid RFC3339"),
        ("xml", b"<r><d>2026-01-02T03:04:05.123Z</d></r>", TIME, None, BY_A_MOMENT),
        ("xml", b"<r><d>1767323045.123</d></r>", TIME, "seconds", BY_A_MOMENT),
        ("xml", b"<r><d>20260102</d></r>", DAY, "fix", date(2026, 1, 2)),
        ("bson", bson.encode({"60": BY_A_MOMENT}), TIME, None, BY_A_MOMENT),
        ("bson", bson.encode({"60": BY_A_MOMENT}), DAY, None, date(2026, 1, 2)),
        (
            "bson",
            bson.encode({"60": datetime(1969, 12, 31, 23, tzinfo=UTC)}),
            NTZ,
            None,
            datetime(1969, 12, 31, 23),
        ),
        ("bson", bson.encode({"60": [BY_A_MOMENT]}), ArrayType(TIME), None, [BY_A_MOMENT]),
        ("bson", bson.encode({"60": "20260102"}), TIME, None, "Invalid RFC3339"),
        ("bson", bson.encode({"60": 1.5}), TIME, "iso", "only with the option timestamps"),
        (
            "msgpack",
            msgpack.packb({"60": msgpack.Timestamp(SECONDS, 123_000_000)}),
            TIME,
            None,
            BY_A_MOMENT,
        ),
        ("msgpack", msgpack.packb({"60": msgpack.Timestamp(0)}), DAY, None, date(1970, 1, 1)),
        (
            "msgpack",
            msgpack.packb({"60": [msgpack.Timestamp(0)]}),
            ArrayType(NTZ),
            None,
            [datetime(1970, 1, 1)],
        ),
        ("msgpack", msgpack.packb({"60": SECONDS}), TIME, None, "only with the option timestamps"),
        ("msgpack", msgpack.packb({"60": "20260102"}), TIME, None, "Invalid RFC3339"),
        ("msgpack", msgpack.packb({"60": b"\xff\xff"}), TIME, None, "column '60': "),
        ("msgpack", msgpack.packb({"60": SECONDS}), TIME, "seconds", WHOLE_SECOND),
        ("bflat", pair(b"60", BFlatCode.DATETIME, MILLIS), TIME, None, BY_A_MOMENT),
        (
            "bflat",
            pair(b"60", BFlatCode.DATETIME, MILLIS),
            TIME,
            "iso",
            "only with the option timestamps",
        ),
    ],
)
def test_times(
    tmp_path: Path,
    read: Read,
    message_type: str,
    body: bytes,
    kind: DataType,
    timestamps: str | None,
    expected: Any,
) -> None:
    """What is a time goes by the message type and the option; what is none is refused."""
    options = {} if timestamps is None else {"timestamps": timestamps}
    inner = StructType().add("d", kind)
    schema = StructType().add("r", inner) if message_type == "xml" else StructType().add("60", kind)
    if isinstance(expected, str):
        with pytest.raises(PipelineError) as caught:
            read(tmp_path, message_type, body, schema, options)
        assert expected in str(caught.value)
        return
    (row,) = read(tmp_path, message_type, body, schema, options)
    found = row["r"]["d"] if message_type == "xml" else row["60"]
    assert found == expected


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("message_type", "body", "kind", "expected"),
    [
        ("json", b'{"n":5.0}', LongType(), 5),
        ("json", b'{"n":1e3}', IntegerType(), 1000),
        ("json", b'{"n":[5.0,6]}', ArrayType(LongType()), [5, 6]),
        ("json", b'{"n":5.5}', LongType(), "Expected `int | null`, got `float` - at `$.n`"),
        ("json", b'{"n":3e9}', IntegerType(), "Expected `int | null`, got `float`"),
        ("json", b'{"n":"5"}', LongType(), "Expected `int | null`, got `str` - at `$.n`"),
        ("json", b'{"n":NaN}', LongType(), "JSON is malformed"),
        ("json", b'{"n":5,"d":NaN}', LongType(), 5),
        ("json", b'{"n":-Infinity}', DoubleType(), float("-inf")),
        ("json", b'{"n":' + b"[" * 100_000, LongType(), "a message does not fit"),
        ("nvfix", b"n=5.0\x01", LongType(), 5),
        ("nvfix", b"n=5.5\x01", LongType(), "column 'n': "),
        ("bson", bson.encode({"n": 5.0}), IntegerType(), 5),
        ("msgpack", msgpack.packb({"n": b"\xff"}), StringType(), "column 'n' of type string"),
    ],
)
def test_numbers(
    tmp_path: Path, read: Read, message_type: str, body: bytes, kind: DataType, expected: Any
) -> None:
    """Whole numbers with a fraction of zero are whole; NaN is a number of doubles."""
    schema = StructType().add("n", kind)
    if isinstance(expected, str):
        with pytest.raises(PipelineError) as caught:
            read(tmp_path, message_type, body, schema, {})
        assert expected in str(caught.value)
    else:
        assert read(tmp_path, message_type, body, schema, {}) == [{"n": expected}]


BODIES = [b'{"i":1}', b'{"i":"two"}', b"\xff no json", b'{"i":4.0}', b"[5]", b'{"i":6,"d":NaN}']
SCHEMA = "i INT, _topic STRING, _corrupt_record STRING"
FITTING = [(1, None), (4, None), (6, None)]


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("PERMISSIVE", [*FITTING, (None, BODIES[1]), (None, BODIES[2]), (None, BODIES[4])]),
        ("dropMalformed", FITTING),
    ],
)
def test_a_stream_goes_on_behind_what_does_not_fit(
    spark: SparkSession,
    server: RunningServer,
    tmp_path: Path,
    mode: str,
    rows: list[tuple[int | None, bytes | None]],
) -> None:
    """Of a server and of its journals."""
    topic = f"log-poison-{mode}"
    publish(server, topic, BODIES)
    stream = streaming(spark, server, topic, mode=mode).schema(SCHEMA).load()
    journals = spark.readStream.format("amps-journal").options(topic=topic, mode=mode)
    directory = server.log_file.parent / "journal"
    for number, frame in enumerate((stream, journals.schema(SCHEMA).load(str(directory)))):
        frame = frame.selectExpr("i", "cast(_corrupt_record AS BINARY) AS corrupt", "_topic")
        found = read_all(spark, frame, tmp_path / str(number))
        assert {row._topic for row in found} == {topic}
        values = [(row.i, None if row.corrupt is None else bytes(row.corrupt)) for row in found]
        assert sorted(values, key=str) == sorted(rows, key=str)


def test_bodies_that_are_no_utf_8_are_rows(spark: SparkSession, server: RunningServer) -> None:
    """By the schema that a source has by default; they can be had as they are."""
    publish(server, "log-bytes", [b'{"id":1,"s":"\xff"}'])
    frame = spark.read.format("amps-journal").option("topic", "log-bytes")
    bodies = [frame.load(str(server.log_file.parent / "journal"))]
    publish(server, "both-bytes", [b'{"id":1,"s":"\xff"}'])
    bodies.append(reading(spark, server, "both-bytes").load())
    for one in bodies:
        (row,) = one.selectExpr("body", "cast(body AS BINARY) AS bytes").collect()
        assert row.body == '{"id":1,"s":"\ufffd"}'
        assert bytes(row.bytes) == b'{"id":1,"s":"\xff"}'


def test_the_server_leaves_fields_out_if_asked_to(
    spark: SparkSession, server: RunningServer
) -> None:
    """Which shows in messages that do not fit: by default they are whole."""
    publish(server, "both-pruned", [b'{"id":"x","more":1}'])
    for options, expected in (({}, '{"id":"x","more":1}'), ({"prune": "server"}, '{"id":"x"}')):
        reader = reading(spark, server, "both-pruned", mode="permissive", **options)
        (row,) = reader.schema("id INT, _corrupt_record STRING").load().collect()
        assert row._corrupt_record == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "lenient"}, "option mode='lenient': expected failfast, permissive or drop"),
        ({"timestamps": "days"}, "option timestamps='days': expected seconds, millis, micros, fix"),
        ({"corrupt_record_column": "i"}, "schema: column 'i' is int, expected string or binary"),
    ],
)
@pytest.mark.parametrize("read", READERS)
def test_options(tmp_path: Path, read: Read, options: dict[str, str], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        read(tmp_path, "json", b"{}", StructType().add("i", "integer"), options)
    assert str(caught.value).startswith(message)
