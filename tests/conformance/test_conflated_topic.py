"""Conflated topics: copies of topics in which each record changes once an interval."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_configuration, running_server
from tests.support.sow import query, receive_group
from tests.support.waiting import wait_until

TOPICS = """
<SOW>
  <Topic>
    <Name>orders</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
  <ConflatedTopic>
    <Name>orders-C</Name>
    <MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>300ms</Interval>
  </ConflatedTopic>
  <ConflatedTopic>
    <Name>large</Name>
    <MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>100ms</Interval>
    <Filter>/n > 100</Filter>
    <Enrichment><Field>/n * 2 AS /double</Field></Enrichment>
    <HashIndex><Key>/side</Key></HashIndex>
  </ConflatedTopic>
  <ConflatedTopic>
    <Name>larger</Name>
    <MessageType>json</MessageType>
    <UnderlyingTopic>large</UnderlyingTopic>
    <Interval>100ms</Interval>
    <Filter>/double > 1000</Filter>
  </ConflatedTopic>
  <Topic>
    <Name>desks</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Pattern>^/desk/</Pattern>
    <Durability>transient</Durability>
  </Topic>
  <ConflatedTopic>
    <Name>desks-C</Name>
    <MessageType>json</MessageType>
    <UnderlyingTopic>desks</UnderlyingTopic>
    <TopicFormat>slow%n-C</TopicFormat>
    <Interval>100ms</Interval>
  </ConflatedTopic>
  <ConflatedTopic>
    <Name>desks-D</Name>
    <MessageType>json</MessageType>
    <UnderlyingTopic>desks</UnderlyingTopic>
    <TopicFormat>%n-D</TopicFormat>
    <Interval>100ms</Interval>
  </ConflatedTopic>
</SOW>
"""


server = module_server(TOPICS)


def publish(peer: RawPeer, message: dict[str, Any], topic: str = "orders", **keys: Any) -> None:
    """Publish a JSON message."""
    peer.publish(topic, json.dumps(message).encode(), **keys)


def follow(peer: RawPeer, topic: str, filter_: str, **keys: Any) -> None:
    """Subscribe."""
    peer.subscribe(topic, "s", f=filter_, **keys)


def wait_for(peer: RawPeer, topic: str, filter_: str, count: int) -> list[Any]:
    """The records of a query, once there are so many of them."""
    found: list[Any] = []

    def are_all_there() -> bool:
        found[:] = query(peer, topic, f=filter_).messages
        return len(found) == count

    wait_until(are_all_there, lambda: found)
    return found


def test_a_record_changes_once_an_interval(server: RunningServer) -> None:
    """The first change waits as well; then come the latest state, its key and correlation id."""
    with server.log_on() as peer:
        follow(peer, "orders-C", "/id = 1")
        peer.subscribe("orders", "source", f="/id = 1 AND /n = 5")
        started = time.monotonic()
        with peer.at_once():
            for n in range(6):
                publish(peer, {"id": 1, "n": n}, x=f"c{n}")
        source = peer.receive()[0]
        assert source["sids"] == "source"
        header, body = peer.receive()
        assert time.monotonic() - started >= 0.29
        assert json.loads(body) == {"id": 1, "n": 5}
        assert (header["t"], header["x"], header["k"]) == ("orders-C", "c5", source["k"])
        assert peer.hears_nothing()


def test_it_can_be_queried_and_followed(server: RunningServer) -> None:
    """Like any topic with records, by its keys too."""
    with server.log_on() as peer:
        publish(peer, {"id": 2, "n": 1})
        wait_for(peer, "orders-C", "/id = 2", 1)
        peer.send({"c": "sow_and_subscribe", "cid": "s", "t": "orders-C", "f": "/id = 2"})
        ((header, body),) = receive_group(peer).records
        assert json.loads(body) == {"id": 2, "n": 1}
        assert query(peer, "orders-C", sow_keys=header["k"]).messages == [{"id": 2, "n": 1}]
        publish(peer, {"id": 2, "n": 2})
        assert json.loads(peer.receive()[1]) == {"id": 2, "n": 2}


def test_deltas_and_focus(server: RunningServer) -> None:
    """Are those of the copy."""
    with server.log_on() as peer:
        publish(peer, {"id": 3, "n": 1, "m": 1})
        wait_for(peer, "orders-C", "/id = 3", 1)
        follow(peer, "orders-C", "/id = 3 AND /n < 9", c="delta_subscribe", o="oof")
        publish(peer, {"id": 3, "n": 2, "m": 1})
        assert json.loads(peer.receive()[1]) == {"id": 3, "n": 2}
        publish(peer, {"id": 3, "n": 9, "m": 1})
        header, _ = peer.receive()
        assert (header["c"], header["reason"]) == ("oof", "match")


def test_a_deleted_record_goes_with_the_interval(server: RunningServer) -> None:
    """Subscribers hear that it is deleted, and what they knew of it."""
    with server.log_on() as peer:
        publish(peer, {"id": 4, "n": 1})
        wait_for(peer, "orders-C", "/id = 4", 1)
        follow(peer, "orders-C", "/id = 4", o="oof")
        with peer.at_once():
            publish(peer, {"id": 4, "n": 2})
            peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 4"})
        header, body = peer.receive()
        assert (header["c"], header["reason"]) == ("oof", "deleted")
        assert json.loads(body) == {"id": 4, "n": 1}
        assert query(peer, "orders-C", f="/id = 4").records == []


def test_filter_enrichment_and_copies_of_copies(server: RunningServer) -> None:
    """Records that the filter does not let through are not there, or leave."""
    with server.log_on() as peer:
        for id_, n in ((50, 1), (51, 150), (52, 600)):
            publish(peer, {"id": id_, "n": n, "side": "B"})
        found = wait_for(peer, "larger", "/id IN (50, 51, 52)", 1)
        assert found == [{"id": 52, "n": 600, "side": "B", "double": 1200}]
        assert len(query(peer, "large", f="/side = 'B'").records) == 2
        follow(peer, "large", "/id = 51", o="oof")
        publish(peer, {"id": 51, "n": 7, "side": "B"})
        header, _ = peer.receive()
        assert (header["c"], header["reason"]) == ("oof", "match")
        wait_for(peer, "large", "/side = 'B'", 1)


def test_a_copy_of_many_logical_topics(server: RunningServer) -> None:
    """Each has a copy of its own, named by the format."""
    with server.log_on() as peer:
        peer.subscribe("^slow/desk/", "s")
        publish(peer, {"id": 1, "n": 1}, "/desk/a")
        publish(peer, {"id": 1, "n": 2}, "/desk/b")
        assert [peer.receive()[0]["t"] for _ in range(2)] == ["slow/desk/a-C", "slow/desk/b-C"]
        assert query(peer, "slow/desk/b-C").messages == [{"id": 1, "n": 2}]
        assert len(query(peer, "^slow/").records) == 2


def test_a_copy_whose_names_the_pattern_covers_is_not_copied_again(server: RunningServer) -> None:
    """The names that the format makes are the copy's, for queries, subscribers and publishers."""
    with server.log_on() as peer:
        peer.subscribe("^/desk/c", "s")
        publish(peer, {"id": 1, "n": 1}, "/desk/c")
        assert [peer.receive()[0]["t"] for _ in range(2)] == ["/desk/c", "/desk/c-D"]
        assert peer.hears_nothing()
        assert query(peer, "/desk/c-D").messages == [{"id": 1, "n": 1}]
        assert len(query(peer, "^/desk/c").records) == 2
        ack = peer.ask({"c": "publish", "cid": "1", "t": "/desk/c-D", "a": "processed"}, b"{}")
        assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")


def test_nobody_writes_to_it(server: RunningServer) -> None:
    """Neither publishes nor deletes."""
    with server.log_on() as peer:
        for command in ("publish", "delta_publish"):
            header = {"c": command, "cid": "1", "t": "orders-C", "a": "processed"}
            for _ in range(2):
                peer.send(header, b'{"id":1}')
                ack = peer.receive_header()
                assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")
        peer.publish("orders-C", b'{"id":1}')
        peer.publish("orders-C", b'{"id":1}')
        delete = {"c": "sow_delete", "cid": "1", "t": "orders-C", "f": "1=1", "a": "processed"}
        ack = peer.ask(delete)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")


def test_a_deletion_by_regular_expression_passes_over_it(server: RunningServer) -> None:
    """The records of the source go, and the copies follow."""
    with server.log_on() as peer:
        publish(peer, {"id": 77, "n": 1, "side": "gone"})
        assert query(peer, "orders", f="/side = 'gone'").messages
        delete = {"c": "sow_delete", "cid": "1", "t": "^orders", "f": "/side = 'gone'"}
        ack = peer.ask(delete | {"a": "stats"})
        assert (ack["status"], ack["records_deleted"]) == ("success", 1)
        assert query(peer, "orders", f="/side = 'gone'").messages == []


def test_a_copy_is_made_at_the_start(tmp_path: Path) -> None:
    """Of the records that the source has then."""
    with running_server(tmp_path, elements=TOPICS) as first:
        with first.log_on() as peer:
            publish(peer, {"id": 1, "n": 500})
            peer.flush()
        assert first.stop() == 0
        port = first.port
    text = (tmp_path / "config.xml").read_text()
    with running_configuration(tmp_path, text, port) as second, second.log_on() as peer:
        assert query(peer, "orders-C").messages == [{"id": 1, "n": 500}]
        assert query(peer, "larger").records == []
        assert query(peer, "large").messages == [{"id": 1, "n": 500, "double": 1000}]
