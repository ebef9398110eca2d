"""A pair of servers: what is published at one of them, as clients see it at the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import PAIR, Cluster, cluster
from tests.support.raw import RawPeer
from tests.support.server import RunningServer
from tests.support.small_disk import small_disk
from tests.support.sow import query
from tests.support.waiting import comes_true

ELEMENTS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>{sow}/orders.sow</FileName>
  </Topic>
  <View>
    <Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Projection><Field>/group</Field><Field>SUM(/n) AS /sum</Field></Projection>
    <Grouping><Field>/group</Field></Grouping>
  </View>
</SOW>
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options>
        <Topic>orders</Topic><MessageType>json</MessageType>
        <MessageSource>replicated</MessageSource><Filter>/n = 13</Filter>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>from elsewhere: {{{{AMPS_DATA}}}}</Message></Options>
    </Do>
  </Action>
</Actions>
"""

SUBSCRIPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"t": "orders", "o": "bookmark"},
    "focus": {"t": "orders", "filter": "/n > 20", "o": "oof,bookmark"},
    "past": {"t": "orders", "bm": "0"},
}

END = "the end"
"""The correlation id of the last message."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Cluster]:
    """Two servers that replicate to each other."""
    with cluster(tmp_path, PAIR, elements=ELEMENTS.format(sow=".")) as pair:
        pair.start()
        yield pair


def order(number: int) -> bytes:
    """An order; some replace others."""
    return json.dumps({"id": number % 17, "group": number % 3, "n": number}).encode()


def publish(peer: RawPeer, first: int, last: int, **header: Any) -> None:
    """Publish orders; the last one is acknowledged."""
    for number in range(first, last + 1):
        acks = {"a": "persisted"} if number == last else {}
        peer.send({"c": "publish", "t": "orders", "s": number} | header | acks, order(number))
    while True:
        head = peer.receive_header()
        if head["c"] == "ack" and head["a"] == "persisted" and int(head["s"]) >= last:
            return


def records(server: RunningServer, topic: str) -> list[dict[str, Any]]:
    """The records of a topic."""
    with server.log_on("auditor") as peer:
        return sorted(query(peer, topic).messages, key=json.dumps)


def received(peer: RawPeer) -> list[tuple[str, str, str | None, str]]:
    """The messages up to the last one: command, bookmark, correlation id, and body."""
    came = [peer.receive()]
    while came[-1][0].get("x") != END:
        came.append(peer.receive())
    return [(head["c"], head.get("bm", ""), head.get("x"), body.decode()) for head, body in came]


def test_the_other_instance_has_and_tells_the_same(pair: Cluster) -> None:
    """Subscribers with and without filters and bookmarks, queries, views; also after a kill."""
    one, two = pair["A"].server, pair["B"].server
    with ExitStack() as open_peers:
        peers = []
        for server in (one, two):
            for name, header in SUBSCRIPTIONS.items():
                peers.append(open_peers.enter_context(server.log_on(f"{name} at {server.port}")))
                peers[-1].send({"c": "subscribe", "cid": "1", "a": "processed"} | header)
                assert peers[-1].receive_header()["status"] == "success"
        with one.log_on("publisher") as peer:
            publish(peer, 1, 40)
            publish(peer, 41, 45, x="mark")
            peer.send({"c": "delta_publish", "t": "orders", "s": 46}, b'{"id":1,"more":true}')
            peer.send({"c": "sow_delete", "t": "orders", "filter": "/group = 1", "s": 47})
            publish(peer, 48, 48, x=END)
        told = [received(peer) for peer in peers]
    assert told[:3] == told[3:]
    assert {command for command, *_ in told[4]} == {"p", "oof"}
    past = told[5]
    assert [body for *_, body in past][:45] == [order(n).decode() for n in range(1, 46)]
    for topic in ("orders", "sums"):
        assert records(one, topic) == records(two, topic)
    echo = f"from elsewhere: {order(13).decode()}"
    assert comes_true(lambda: echo in pair["B"].logs())
    assert echo not in pair["A"].logs()

    before = records(two, "orders")
    pair["B"].kill()
    pair["B"].start()
    assert records(pair["B"].server, "orders") == before
    with pair["B"].server.log_on("new reader") as peer:
        peer.send({"c": "subscribe", "cid": "1", "t": ".*", "bm": "0"})
        assert received(peer) == past  # and nothing of the view


def test_a_full_disk_of_the_other_one_loses_nothing(tmp_path: Path) -> None:
    """What comes waits, and so does its publisher's ack, until there is space."""
    small = tmp_path / "small"
    small.mkdir()
    elements = ELEMENTS.format(sow=small).replace(
        "<FileName>", "<SlabSize>1MB</SlabSize><FileName>"
    )
    with small_disk(small, 8) as disk, cluster(tmp_path, PAIR, elements=elements) as pair:
        one = pair["A"].start()
        two = pair["B"].start(disk)
        with one.log_on("publisher") as peer:
            publish(peer, 1, 10)
            disk.fill()
            body = json.dumps({"n": 1, "text": "x" * 100_000}).encode()[:-1]
            for number in range(11, 61):
                acks = {"a": "persisted"} if number == 60 else {}
                peer.send(
                    {"c": "publish", "t": "orders", "s": number} | acks,
                    body + b',"id":%d}' % number,
                )
            assert comes_true(lambda: "1D-0024" in pair["B"].logs())
            assert 10 < len(records(two, "orders")) < 60
            disk.make_space()
            while int((head := peer.receive_header()).get("s", 0)) < 60:
                assert head["status"] == "success"
        assert records(two, "orders") == records(one, "orders")
        assert len(records(one, "orders")) == 60
        assert "1D-0025" in pair["B"].logs()


PATTERN = """
<SOW>
  <Topic>
    <Name>desk/own</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>desk</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^desk/</Pattern>
    <FileName>desk.sow</FileName>
  </Topic>
</SOW>
"""


@pytest.mark.parametrize("topics", ["desk", "^desk$"])
def test_a_destination_names_a_topic_with_a_pattern(topics: str, tmp_path: Path) -> None:
    """What that keeps is replicated, and not what has a definition of its own."""
    with cluster(tmp_path, PAIR, elements=PATTERN, topics=topics) as pair:
        pair.start()
        with (
            pair["A"].server.log_on("publisher", a="processed") as publisher,
            pair["B"].server.log_on("reader") as reader,
        ):
            for topic in ("desk/own", "other", "desk/a", "desk/b"):
                publisher.publish(topic, b'{"id": 1}')
            assert comes_true(lambda: len(query(reader, "desk/b").records) == 1)
            assert len(query(reader, "desk/a").records) == 1
            assert not query(reader, "desk/own").records
