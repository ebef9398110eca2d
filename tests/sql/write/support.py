"""A server whose topics are written by SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.sql.support import SqlServer, sql_server

TOPICS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName></Topic>
  <Topic><Name>lines</Name><MessageType>json</MessageType><Key>/order</Key><Key>/at/line</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>given</Name><MessageType>json</MessageType><Durability>transient</Durability></Topic>
  <Topic><Name>regions</Name><Pattern>^region/</Pattern><MessageType>json</MessageType>
    <Key>/id</Key><Durability>transient</Durability></Topic>
  <Topic><Name>nv</Name><MessageType>nvfix</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>tags</Name><MessageType>fix</MessageType><Key>/1</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>doc</Name><MessageType>xml</MessageType><Key>/row/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>packed</Name><MessageType>msgpack</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>bsons</Name><MessageType>bson</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>
  <Topic><Name>raw</Name><MessageType>binary</MessageType><Durability>transient</Durability></Topic>
{cases}
  <View><Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/symbol AS /symbol</Field><Field>SUM(/qty) AS /qty</Field></Projection>
    <Grouping><Field>/symbol</Field></Grouping></View>
  <Queue><Name>work</Name><MessageType>json</MessageType></Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>events</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>work</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

CASE_TOPIC = """  <Topic><Name>case{number}</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability></Topic>"""
"""A topic of a test case: columns keep the types of the values that they have had."""

MAX_CASES = 40


@contextmanager
def write_server(directory: Path, *, users: str = "") -> Iterator[SqlServer]:
    """A server with topics of several message types, and a transaction log."""
    cases = "\n".join(CASE_TOPIC.format(number=number) for number in range(MAX_CASES))
    with sql_server(directory, topics=TOPICS.replace("{cases}", cases), users=users) as server:
        yield server


def bodies(connection: psycopg.Connection[Any], topic: str) -> list[Any]:
    """The records of a topic of JSON, in the order of their texts."""
    rows = connection.execute(f'SELECT _body FROM "{topic}" ORDER BY _body').fetchall()
    return [json.loads(body) for (body,) in rows]
