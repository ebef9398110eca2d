"""The topics of the servers that the pipeline's tests use, and what is published to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from amperage.client import Client, Message
from tests.support.server import RunningServer

TOPICS = """
<SOW>
  <Topic>
    <Name>records</Name><Pattern>^sow-</Pattern>
    <MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>logged-records</Name><Pattern>^both-</Pattern>
    <MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>nv</Name><MessageType>nvfix</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>past</Name><MessageType>json</MessageType><Key>/id</Key><FileName>past.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Queue>
    <Name>queue-one</Name><MessageType>json</MessageType>
    <UnderlyingTopic>log-fed</UnderlyingTopic>
  </Queue>
  <Queue>
    <Name>queue-several</Name><MessageType>json</MessageType>
    <UnderlyingTopic>^log-feeds-</UnderlyingTopic>
    <DefaultPublishTarget>log-feeds-1</DefaultPublishTarget>
    <MaxPerSubscriptionBacklog>100</MaxPerSubscriptionBacklog>
  </Queue>
  <Queue>
    <Name>queue-shown</Name><MessageType>json</MessageType>
    <UnderlyingTopic>^log-shown-</UnderlyingTopic>
    <DefaultPublishTarget>log-shown-1</DefaultPublishTarget>
    <MaxPerSubscriptionBacklog>100</MaxPerSubscriptionBacklog>
  </Queue>
  <Queue>
    <Name>queue-copied</Name><MessageType>json</MessageType>
    <UnderlyingTopic>log-copied</UnderlyingTopic>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(log-.*|logged-records|past)$</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>^log-.*$</Name><MessageType>nvfix</MessageType></Topic>
  <Topic><Name>^log-.*$</Name><MessageType>binary</MessageType></Topic>
</TransactionLog>
"""
"""`sow-…` keeps records, `log-…` is in the transaction log, `both-…` is both, `queue-…` a queue."""


def uri(server: RunningServer, message_type: str = "json") -> str:
    """The value of the option `server`."""
    return f"tcp://127.0.0.1:{server.port}/amps/{message_type}"


def publish(
    server: RunningServer,
    topic: str,
    messages: Iterable[dict[str, Any] | bytes],
    message_type: str = "json",
) -> None:
    """Publish messages, and wait until they are stored."""
    bodies = [
        message if isinstance(message, bytes) else json.dumps(message).encode()
        for message in messages
    ]
    with Client() as client:
        client.connect(uri(server, message_type))
        client.logon()
        client.publish_all(topic, bodies[:-1])
        client.confirmed_publish(topic, bodies[-1])


def logged(server: RunningServer, topic: str, message_type: str = "json") -> list[bytes]:
    """What the transaction log has of a topic."""
    return [message.body for message in _replayed(server, topic, message_type)]


def bookmarks(server: RunningServer, topic: str) -> list[str | None]:
    """The bookmarks of the messages that the transaction log has of a topic."""
    return [message.bookmark for message in _replayed(server, topic, "json")]


def _replayed(server: RunningServer, topic: str, message_type: str) -> Iterator[Message]:
    with Client() as client:
        client.connect(uri(server, message_type))
        client.logon()
        for message in client.subscribe(topic, bookmark="[0:0|1|]", acks=("completed",)):
            if message.command == "ack":
                break
            yield message


def records(server: RunningServer, topic: str) -> list[Any]:
    """The records of a topic, by their ids."""
    with Client() as client:
        client.connect(uri(server))
        client.logon()
        found = [json.loads(message.body) for message in client.sow(topic)]
        return sorted(found, key=lambda record: record["id"])


def writing(
    frame: DataFrame, server: RunningServer, message_type: str = "json", **options: Any
) -> DataFrameWriter:
    """A writer to a topic."""
    writer = frame.write.format("amps").mode("append").option("server", uri(server, message_type))
    return writer.options(**options)


def streaming(
    spark: SparkSession, server: RunningServer, topic: str, **options: Any
) -> DataStreamReader:
    """A reader that follows a topic."""
    reader = spark.readStream.format("amps").option("server", uri(server))
    return reader.option("topic", topic).options(**options)


def reading(
    spark: SparkSession, server: RunningServer, topic: str, **options: Any
) -> DataFrameReader:
    """A reader of a topic."""
    reader = spark.read.format("amps").option("server", uri(server))
    return reader.option("topic", topic).options(**options)


def rows_read(frame: DataFrame) -> int:
    """How many rows a source has given for the filter of a DataFrame to look at."""
    plan = frame._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    scan = plan.collectLeaves().head()
    return int(scan.metrics().apply("numOutputRows").value())
