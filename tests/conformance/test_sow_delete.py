"""sow_delete: which records go, and what the client is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import module_server
from tests.support.sow import TOPICS, query

server = module_server(TOPICS)


@pytest.fixture
def peer(peer: RawPeer) -> RawPeer:
    """A client, and orders 1 to 5 only."""
    peer.send({"c": "sow_delete", "t": "^.*$", "f": "1=1"})
    for n in range(1, 6):
        peer.publish("orders", b'{"id":%d,"n":%d}' % (n, 10 * n))
    peer.flush()
    return peer


def delete(peer: RawPeer, body: bytes = b"", **keys: Any) -> tuple[int, int, int]:
    """Delete, and give the counts: records tested, matching and deleted."""
    header = {"c": "sow_delete", "cid": "d", "t": "orders", "a": "processed,completed,stats"}
    peer.send(header | keys, body)
    processed, completed, stats = (peer.receive_header() for _ in range(3))
    assert [processed["a"], completed["a"], stats["a"]] == ["processed", "completed", "stats"]
    assert processed["status"] == completed["status"] == stats["status"] == "success"
    return stats["topic_matches"], stats["matches"], stats["records_deleted"]


def ids(peer: RawPeer) -> list[int]:
    """The orders that are left."""
    return sorted(message["id"] for message in query(peer, "orders").messages)


def test_by_filter(peer: RawPeer) -> None:
    """The stats ack has the counts."""
    assert delete(peer, f="/n > 30") == (5, 2, 2)
    assert ids(peer) == [1, 2, 3]


def test_everything(peer: RawPeer) -> None:
    """The filter that the reference recommends."""
    assert delete(peer, f="1=1") == (5, 5, 5)
    assert ids(peer) == []


def test_by_keys(peer: RawPeer) -> None:
    """Keys without a record are passed over."""
    keys = {json.loads(body)["id"]: header["k"] for header, body in query(peer, "orders").records}
    assert delete(peer, sow_keys=f"{keys[2]},1,{keys[4]}")[2] == 2
    assert ids(peer) == [1, 3, 5]


def test_keys_that_are_named_twice_count_once(peer: RawPeer) -> None:
    """However far apart they are."""
    keys = {json.loads(body)["id"]: header["k"] for header, body in query(peer, "orders").records}
    others = [str(number) for number in range(1000)]
    named = [keys[2], *others, keys[2], keys[4]]
    assert delete(peer, sow_keys=",".join(named)) == (2, 2, 2)


def test_by_message(peer: RawPeer) -> None:
    """The record that a publish of the message would update; an absent one is no error."""
    assert delete(peer, b'{"id":3}')[2] == 1
    assert delete(peer, b'{"id":3}')[2] == 0
    assert ids(peer) == [1, 2, 4, 5]


def test_by_regular_expression(peer: RawPeer) -> None:
    """Topic by topic."""
    for topic in ("/desk/a", "/desk/b", "/desk/special"):
        peer.publish(topic, b'{"id":1,"n":99}')
    assert delete(peer, t="^/desk/[as]", f="/n = 99")[2] == 2
    assert len(query(peer, "^/desk/").records) == 1
    assert delete(peer, b'{"id":1}', t="^/desk/b")[2] == 1
    assert len(query(peer, "^/desk/").records) == 0


def test_by_message_with_the_name_of_a_regex(peer: RawPeer) -> None:
    """It is the topic that a publish of the message would go to, and no other that matches."""
    for topic in ("/desk/a.b", "/desk/a.bc"):
        peer.publish(topic, b'{"id":1,"n":99}')
    assert delete(peer, b'{"id":1}', t="/desk/a.b") == (1, 1, 1)
    ((header, _),) = query(peer, "^/desk/a").records
    assert header["t"] == "/desk/a.bc"


def test_a_delete_is_persisted(peer: RawPeer) -> None:
    """The ack comes once the deletion is on stable storage."""
    ack = peer.ask({"c": "sow_delete", "cid": "d", "t": "orders", "f": "1=1", "a": "persisted"})
    assert (ack["a"], ack["status"]) == ("persisted", "success")


def test_a_deleted_record_can_be_published_again(peer: RawPeer) -> None:
    """It is a new record, with the same key."""
    ((before, _),) = query(peer, "orders", f="/id = 1").records
    delete(peer, f="/id = 1")
    peer.publish("orders", b'{"id":1}')
    ((after, _),) = query(peer, "orders", f="/id = 1").records
    assert before["k"] == after["k"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"t": "adhoc", "f": "1=1"}, "invalid topic"),
        ({}, "invalid command"),
        ({"f": "/id = 1", "sow_keys": "1"}, "invalid command"),
        ({"f": "/id ="}, "bad filter"),
        ({"bm": "1|1|"}, "invalid topic"),
        ({"f": "1=1", "o": "top_n=1"}, "invalid option"),
        ({"f": "1=1", "o": "cancel"}, "invalid option"),
    ],
)
def test_what_cannot_be_deleted_is_refused(
    peer: RawPeer, keys: dict[str, Any], reason: str
) -> None:
    """And nothing is deleted."""
    ack = peer.ask({"c": "sow_delete", "cid": "1", "t": "orders", "a": "processed"} | keys)
    assert (ack["status"], ack["reason"]) == ("failure", reason)
    assert ids(peer) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("keys", [{"f": "/id = 1"}, {"sow_keys": "1"}])
def test_a_message_cannot_be_given_beside_another_way(peer: RawPeer, keys: dict[str, Any]) -> None:
    """Which of the two would count is nothing to guess about a deletion."""
    header = {"c": "sow_delete", "cid": "1", "t": "orders", "a": "processed"}
    ack = peer.ask(header | keys, b'{"id":2}')
    assert (ack["status"], ack["reason"]) == ("failure", "invalid command")
    assert "no more than one" in ack["detail"]
    assert ids(peer) == [1, 2, 3, 4, 5]
