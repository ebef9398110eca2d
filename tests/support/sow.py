"""What tests of topics with records need besides a peer: configurations, and `sow` frames."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.support.raw import RawPeer

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
  <Topic>
    <Name>quotes</Name>
    <MessageType>json</MessageType>
    <Key>/symbol</Key>
    <Durability>transient</Durability>
    <Expiration>enabled</Expiration>
  </Topic>
  <Topic>
    <Name>notes</Name>
    <MessageType>json</MessageType>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>/desk/special</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>desks</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Pattern>^/desk/</Pattern>
    <FileName>desks.sow</FileName>
  </Topic>
  <Topic>
    <Name>blobs</Name>
    <MessageType>binary</MessageType>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>fixed</Name>
    <MessageType>fix</MessageType>
    <Key>/37</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
"""
"""Topics for any test: persistent and transient ones, one with a Pattern, two without Key."""

CHAINED_TOPIC = """
  <Topic>
    <Name>chained</Name><MessageType>json</MessageType>
    <KeyGenerator>
      <Module>chaining</Module>
      <Options>
        <Primary>/id</Primary><Secondary>/previous</Secondary><FileName>ids.chain</FileName>
      </Options>
    </KeyGenerator>
    <FileName>chained.sow</FileName>
  </Topic>
"""
"""A topic of which messages name the message before them; needs `CHAINING`."""

CHAINING = """
<Modules>
  <Module>
    <Name>chaining</Name><Library>libamps_id_chaining_key_generator.so</Library>
  </Module>
</Modules>
"""
"""The module that makes its keys."""


@dataclass
class Group:
    """What came between group_begin and group_end.

    Attributes:
        query_id: the id on both.
        records: header and body of each record, in order.
        frames: the headers of the sow frames.
    """

    query_id: str
    records: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        """The records' bodies."""
        return [body for _, body in self.records]

    @property
    def messages(self) -> list[Any]:
        """The records' bodies, as JSON."""
        return [json.loads(body) for body in self.bodies]


def split_records(header: dict[str, Any], content: bytes) -> list[tuple[dict[str, Any], bytes]]:
    """The records of a sow frame; each has the frame's topic in its header."""
    records = []
    while content:
        text = content.decode("latin-1")
        _, end = json.JSONDecoder().raw_decode(text)
        record = json.loads(content[:end])
        records.append((record | {"t": header["t"]}, content[end : end + record["l"]]))
        content = content[end + record["l"] :]
    assert len(records) == header["bs"]
    return records


def receive_group(peer: RawPeer) -> Group:
    """The next frames, which are the results of a query."""
    begin = peer.receive_header()
    assert begin["c"] == "group_begin", begin
    group = Group(begin["query_id"])
    while True:
        header, content = peer.receive()
        if header["c"] == "group_end":
            assert header["query_id"] == group.query_id
            return group
        assert (header["c"], header["query_id"]) == ("sow", group.query_id)
        group.frames.append(header)
        group.records += split_records(header, content)


def query(peer: RawPeer, topic: str, **keys: Any) -> Group:
    """Run a query, which has to succeed."""
    peer.send({"c": "sow", "cid": "q", "t": topic, "a": "processed"} | keys)
    ack = peer.receive_header()
    assert (ack["a"], ack["status"]) == ("processed", "success"), ack
    return receive_group(peer)
