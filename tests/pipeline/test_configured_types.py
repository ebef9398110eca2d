"""Fields of messages whose types a configuration defines."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.functions import col

from amperage.client import Client
from pipeline.configuration import read_configuration
from pipeline.expressions import Environment, Message, matches
from tests.pipeline.topics import publish, uri
from tests.support.server import RunningServer, running_server

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string symbol = 2;
  double price = 3;
  Buyer buyer = 4;
  repeated int32 lots = 5;
  google.protobuf.Timestamp at = 6;
}
message Buyer { string name = 1; }
"""
ELEMENTS = """
<MessageTypes>
  <MessageType>
    <Name>order</Name><Module>protobuf</Module>
    <ProtoPath>{directory}</ProtoPath><ProtoFile>order.proto</ProtoFile><Type>shop.Order</Type>
  </MessageType>
  <MessageType>
    <Name>pipes</Name><Module>nvfix</Module><FieldSeparator>124</FieldSeparator>
  </MessageType>
  <MessageType>
    <Name>pair</Name><Module>composite-local</Module>
    <MessageType>json</MessageType><MessageType>pipes</MessageType>
  </MessageType>
</MessageTypes>
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>order</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>piped</Name><MessageType>pipes</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>pairs</Name><MessageType>pair</MessageType><Key>/0/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>numbers</Name><MessageType>fix</MessageType><Key>/1</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>numbers</Name><MessageType>nvfix</MessageType><Key>/1</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>numbers</Name><MessageType>xml</MessageType><Key>/m/@i</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>order</MessageType></Topic>
</TransactionLog>
"""


def order(number: int, symbol: bytes, price: float) -> bytes:
    """An order, as protobuf writes it: keys, lengths, values."""
    buyer = b"\x0a\x03Ann"
    second = 1_767_225_600 + number  # of the year 2026
    at = b"\x08" + bytes((second >> shift) & 0x7F | 0x80 for shift in (0, 7, 14, 21))
    at += bytes([second >> 28])
    return b"".join(
        (
            bytes((0x08, number)),
            bytes((0x12, len(symbol))) + symbol,
            b"\x19" + struct.pack("<d", price),
            bytes((0x22, len(buyer))) + buyer,
            bytes((0x2A, 2, number, number + 1)),
            bytes((0x32, len(at))) + at,
        )
    )


def pair(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


class Instance(NamedTuple):
    server: RunningServer
    directory: Path

    def reading(self, spark: SparkSession, topic: str, kind: str) -> DataFrameReader:
        reader = spark.read.format("amps").option("config", str(self.directory / "config.xml"))
        return reader.options(server=uri(self.server, kind), topic=topic)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    directory = tmp_path_factory.mktemp("typed")
    (directory / "order.proto").write_text(PROTO)
    with running_server(directory, elements=ELEMENTS.format(directory=directory)) as server:
        publish(server, "orders", [order(1, b"IBM", 2.5), order(2, b"MSFT", 1)], "order")
        publish(server, "piped", [b"id=1|qty=5|", b"id=2|qty=12|day=20260102|"], "pipes")
        publish(server, "pairs", [pair(b'{"id":1,"qty":5}', b"note=x|")], "pair")
        yield Instance(server, directory)


ORDERS = (
    "id BIGINT, symbol STRING, price DOUBLE, buyer STRUCT<name: STRING>, lots ARRAY<INT>,"
    " at TIMESTAMP"
)


def test_protobuf(spark: SparkSession, instance: Instance) -> None:
    frame = instance.reading(spark, "orders", "order").schema(ORDERS).load()
    rows = frame.selectExpr(
        "id", "symbol", "price", "buyer.name", "lots[1] as lot", "string(at) as at"
    )
    assert sorted(map(tuple, rows.collect())) == [
        (1, "IBM", 2.5, "Ann", 2, "2026-01-01 00:00:01"),
        (2, "MSFT", 1.0, "Ann", 3, "2026-01-01 00:00:02"),
    ]


def test_protobuf_in_journals(spark: SparkSession, instance: Instance) -> None:
    """Filters read it, too."""
    reader = spark.read.format("amps-journal").schema("id BIGINT, symbol STRING, _topic STRING")
    reader = reader.options(config=str(instance.directory / "config.xml"), filter="/price > 1")
    rows = reader.load(str(instance.directory / "journal")).collect()
    assert list(map(tuple, rows)) == [(1, "IBM", "orders")]


def test_other_separators(spark: SparkSession, instance: Instance) -> None:
    """What a time is goes by the module."""
    reader = instance.reading(spark, "piped", "pipes").schema("id INT, qty INT, day DATE")
    rows = reader.load().selectExpr("id", "qty", "string(day)").collect()
    assert sorted(map(tuple, rows)) == [(1, 5, None), (2, 12, "2026-01-02")]


def test_composites(spark: SparkSession, instance: Instance) -> None:
    schema = "`0` STRUCT<id: INT, qty: INT>, `1` STRUCT<note: STRING>"
    rows = instance.reading(spark, "pairs", "pair").schema(schema).load().collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"0": {"id": 1, "qty": 5}, "1": {"note": "x"}}
    ]


NUMBERS = ("5", "12", "007", "1e3", "abc", "", "2.0", "-3", "100", "2", "+5", " 5", "NaN", "0x10")
FILTERS = (
    "{0} > 9",
    "{0} = 2",
    "{0} = '2.0'",
    "{0} >= 5 AND {0} < 100",
    "{0} BETWEEN 2 AND 12",
    "{0} IN (5, 1000)",
    "{0} > '12'",
    "{0} IS NULL",
    "{0} * 2 = 10",
    "{0} + 1 > {0}",
    "ABS({0}) = 3",
    "NOT {0} < 7",
)


def texts(kind: str) -> tuple[str, list[bytes]]:
    """Where a number is in messages of a type, and messages that have all of them."""
    if kind == "xml":
        form, path = "<m i='{}'><q>{}</q></m>", "/m/q"
    else:
        form, path = "1={}\x012={}\x01", "/2"
    return path, [form.format(*one).encode() for one in enumerate(NUMBERS)]


def chosen_by_server(
    instance: Instance, topic: str, kind: str, filters: list[str]
) -> list[set[bytes]]:
    with Client() as client:
        client.connect(uri(instance.server, kind))
        client.logon()
        return [{one.body for one in client.sow(topic, filter=text)} for text in filters]


def chosen_on_spark(
    spark: SparkSession, instance: Instance, topic: str, kind: str, filters: list[str]
) -> list[set[bytes]]:
    environment = Environment(read_configuration(str(instance.directory / "config.xml")))
    message = Message(col("body"), kind)
    frame = instance.reading(spark, topic, kind).schema("body BINARY").load()
    found = [matches(text, message, environment).alias(str(n)) for n, text in enumerate(filters)]
    rows = frame.select("body", *found).collect()
    return [{bytes(row.body) for row in rows if row[str(n)]} for n in range(len(filters))]


@pytest.mark.parametrize("kind", ["fix", "nvfix", "xml"])
def test_texts_are_numbers_where_they_are_for_the_server(
    spark: SparkSession, instance: Instance, kind: str
) -> None:
    path, messages = texts(kind)
    publish(instance.server, "numbers", messages, kind)
    filters = [text.format(path) for text in FILTERS]
    expected = chosen_by_server(instance, "numbers", kind, filters)
    assert all(0 < len(one) < len(NUMBERS) for one in expected)
    assert chosen_on_spark(spark, instance, "numbers", kind, filters) == expected


def test_protobuf_is_filtered_as_by_the_server(spark: SparkSession, instance: Instance) -> None:
    filters = ["/price > 1", "/id = 2", "/symbol LIKE '^IB'", "/buyer/name = 'Ann'", "/lots > 2"]
    expected = chosen_by_server(instance, "orders", "order", filters)
    assert list(map(len, expected)) == [1, 1, 1, 2, 1]
    assert chosen_on_spark(spark, instance, "orders", "order", filters) == expected


def test_without_the_configuration_the_error_names_the_option(
    spark: SparkSession, instance: Instance
) -> None:
    frame = spark.read.format("amps").schema("id INT")
    with pytest.raises(PySparkException, match="give it with the option config"):
        frame.load(server=uri(instance.server, "order"), topic="orders").collect()


def test_a_configuration_that_does_not_fit_is_refused(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    """One that is not there, one without the type, and one whose files are gone."""
    reader = instance.reading(spark, "orders", "order").schema("id INT")
    with pytest.raises(PySparkException, match=r"missing.xml: invalid configuration"):
        reader.option("config", str(tmp_path / "missing.xml")).load().collect()
    other = tmp_path / "other.xml"
    text = (instance.directory / "config.xml").read_text()
    other.write_text(text.replace(">order<", ">another<"))
    with pytest.raises(PySparkException, match="cannot be read from messages of type order"):
        reader.option("config", str(other)).load().collect()
    other.write_text(text.replace("order.proto", "gone.proto"))
    with pytest.raises(PySparkException, match=r"other.xml.*message type order: .*gone.proto"):
        reader.option("config", str(other)).load().collect()
