"""The topics of the servers that the pipeline's tests use, and what is published to them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrameReader, SparkSession

from client import Client
from tests.support.server import RunningServer

TOPICS = """
<SOW>
  <Topic>
    <Name>records</Name><Pattern>^(sow|both)-</Pattern>
    <MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>past</Name><MessageType>json</MessageType><Key>/id</Key><FileName>past.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(log|both)-.*$</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>^log-.*$</Name><MessageType>nvfix</MessageType></Topic>
  <Topic><Name>^log-.*$</Name><MessageType>binary</MessageType></Topic>
</TransactionLog>
"""
"""`sow-…` keeps records, `log-…` is in the transaction log, `both-…` is both; others are neither."""


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


def reading(
    spark: SparkSession,
    server: RunningServer,
    topic: str,
    message_type: str = "json",
    **options: Any,
) -> DataFrameReader:
    """A reader of a topic."""
    reader = spark.read.format("amps").option("server", uri(server, message_type))
    return reader.option("topic", topic).options(**options)
