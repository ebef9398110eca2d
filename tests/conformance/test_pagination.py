"""Paginated subscriptions: top_n and skip_n with a query that is followed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS, Group, query, receive_group

ELEMENTS = TOPICS.replace(
    "</SOW>",
    """
  <Topic>
    <Name>dotted.name</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <ConflatedTopic>
    <Name>quotes-C</Name>
    <UnderlyingTopic>quotes</UnderlyingTopic>
    <MessageType>json</MessageType>
    <Interval>100ms</Interval>
  </ConflatedTopic>
</SOW>""",
)


server = module_server(ELEMENTS)


def publish(peer: RawPeer, group: str, n: int, topic: str = "orders", **keys: Any) -> None:
    """Publish the record `n` of a group; `v` is what it is sorted by, unless given `n` itself."""
    value = keys.pop("v", n)
    body = {"id": f"{group}{n}", "symbol": f"{group}{n}", "g": group, "v": value}
    peer.publish(topic, json.dumps(body).encode(), **keys)


def follow(peer: RawPeer, group: str, options: str, topic: str = "orders", **keys: Any) -> Group:
    """Read a page of a group in the order of `v`, and give what the query returns."""
    header = {"c": "sow_and_subscribe", "cid": "s", "sub_id": "s", "t": topic, "a": "processed"}
    header |= {"f": f"/g = '{group}'", "orderby": "/v", "o": options} | keys
    ack = peer.ask(header)
    assert ack["status"] == "success", ack
    return receive_group(peer)


def values(group: Group) -> list[int]:
    """What the records of a page are sorted by."""
    return [message["v"] for message in group.messages]


def received(peer: RawPeer) -> tuple[str, str | None, float]:
    """What comes next: command, reason, and what the record is sorted by."""
    header, body = peer.receive()
    return header["c"], header.get("reason"), json.loads(body)["v"]


def test_an_insert_before_or_on_the_page(server: RunningServer) -> None:
    """The new record comes; what has to make room for it is out of focus, as it is."""
    with server.log_on() as peer:
        for n in (1, 2, 5, 7):
            publish(peer, "a", n)
        assert values(follow(peer, "a", "top_n=2,skip_n=1,oof")) == [2, 5]
        publish(peer, "a", 4)
        assert received(peer) == ("p", None, 4)
        header, body = peer.receive()
        assert (header["c"], header["reason"], header["sids"]) == ("oof", "match", "s")
        assert header["k"] == query(peer, "orders", f="/id = 'a5'").records[0][0]["k"]
        assert json.loads(body) == {"id": "a5", "symbol": "a5", "g": "a", "v": 5}
        publish(peer, "a", 0)  # 1 comes onto the page, 4 leaves
        assert [received(peer) for _ in range(2)] == [("oof", "match", 4), ("p", None, 1)]
        publish(peer, "a", 9)
        assert peer.hears_nothing()


def test_what_leaves_is_followed_by_what_comes_instead(server: RunningServer) -> None:
    """Deletion, expiry, and an update that takes a record elsewhere or out of the filter."""
    with server.log_on() as peer:
        for n in range(8):
            publish(peer, "b", n, "quotes")
        page = follow(peer, "b", "top_n=3,skip_n=2,oof", "quotes")
        assert values(page) == [2, 3, 4]
        peer.send({"c": "sow_delete", "t": "quotes", "f": "/id = 'b2'"})
        assert [received(peer) for _ in range(2)] == [("oof", "deleted", 2), ("p", None, 5)]
        publish(peer, "b", 3, "quotes", e=1)
        assert received(peer) == ("p", None, 3)
        assert [received(peer) for _ in range(2)] == [("oof", "expired", 3), ("p", None, 6)]
        publish(peer, "b", 5, "quotes", v=99)
        assert [received(peer) for _ in range(2)] == [("oof", "match", 99), ("p", None, 7)]
        body = b'{"id":"b4","symbol":"b4","g":"elsewhere","v":4}'
        peer.publish("quotes", body)
        assert [received(peer) for _ in range(2)] == [("oof", "match", 4), ("p", None, 99)]
        peer.send({"c": "sow_delete", "t": "quotes", "f": "/id = 'b0'"})  # before the page
        assert received(peer) == ("oof", "match", 6)
        assert peer.hears_nothing()


def test_updates_on_the_page(server: RunningServer) -> None:
    """They are published, wherever on the page they take the record; others are not heard of."""
    with server.log_on() as peer:
        for n in range(6):
            publish(peer, "c", n)
        follow(peer, "c", "top_n=3,skip_n=0")
        publish(peer, "c", 0, x="mark")
        header, body = peer.receive()
        assert (header["c"], header["x"], json.loads(body)["v"]) == ("p", "mark", 0)
        publish(peer, "c", 0, v=2)
        assert received(peer) == ("p", None, 2)
        publish(peer, "c", 5)
        assert peer.hears_nothing()


def test_without_oof_only_what_comes_is_told(server: RunningServer) -> None:
    """As with any subscription."""
    with server.log_on() as peer:
        for n in (1, 2, 3):
            publish(peer, "d", n)
        follow(peer, "d", "top_n=2,skip_n=0")
        publish(peer, "d", 0)
        assert received(peer) == ("p", None, 0)
        assert peer.hears_nothing()
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 'd0'"})
        assert received(peer) == ("p", None, 2)


def test_the_numbers_may_stand_in_the_header(server: RunningServer) -> None:
    """And the ack of type stats tells how many records there are behind the page."""
    with server.log_on() as peer:
        for n in range(5):
            publish(peer, "e", n)
        header = {"c": "sow_and_subscribe", "cid": "1", "t": "orders", "f": "/g = 'e'"}
        keys = {"orderby": "/v DESC", "top_n": 2, "skip_n": 1, "bs": 10, "a": "completed,stats"}
        for reader in ("first", "second, which shares what was found"):
            peer.send(header | keys | {"sub_id": reader})
            assert values(receive_group(peer)) == [3, 2]
            assert peer.receive_header()["a"] == "completed"
            stats = peer.receive_header()
            assert (stats["matches"], stats["records_returned"]) == (5, 2)
            assert stats["topic_matches"] >= 5


def test_without_an_order_records_are_sorted_by_key(server: RunningServer) -> None:
    """By the SOW key as a number."""
    with server.log_on() as peer:
        for n in range(9):
            publish(peer, "f", n)
        keys = [record["k"] for record, _ in query(peer, "orders", f="/g = 'f'").records]
        page = follow(peer, "f", "top_n=4,skip_n=3", orderby="")
        assert [record["k"] for record, _ in page.records] == sorted(keys, key=int)[3:7]


def test_the_page_is_moved(server: RunningServer) -> None:
    """A replacement sends what is new on the page, and tells what is not on it any more."""
    with server.log_on() as peer:
        for n in range(10):
            publish(peer, "g", n)
        assert values(follow(peer, "g", "top_n=4,skip_n=0,oof")) == [0, 1, 2, 3]
        assert values(follow(peer, "g", "top_n=4,skip_n=2,oof,replace")) == [4, 5]
        assert {received(peer) for _ in range(2)} == {("oof", "match", 0), ("oof", "match", 1)}
        publish(peer, "g", 1, v=-1)
        publish(peer, "g", 2, v=2)
        assert received(peer) == ("p", None, 2)
        # another order and another filter: a page of other results
        keys = {"f": "/g = 'g' AND /v > 0", "orderby": "/v DESC"}
        assert values(follow(peer, "g", "top_n=4,skip_n=3,oof,replace", **keys)) == [6]
        assert received(peer) == ("oof", "match", 2)
        assert peer.hears_nothing()


def test_a_page_takes_the_place_of_a_whole_topic(server: RunningServer) -> None:
    """The client keeps what is on the page and is told to forget the rest."""
    with server.log_on() as peer:
        for n in range(6):
            publish(peer, "h", n)
        follow(peer, "h", "oof")
        assert follow(peer, "h", "top_n=3,skip_n=2,oof,replace").records == []
        assert {received(peer) for _ in range(3)} == {("oof", "match", n) for n in (0, 1, 5)}
        publish(peer, "h", 0, v=2.5)
        assert [received(peer) for _ in range(2)] == [("p", None, 2.5), ("oof", "match", 2)]


def test_deltas_on_a_page(server: RunningServer) -> None:
    """What comes onto the page comes whole; on the page, what differs."""
    with server.log_on() as peer:
        for n in range(4):
            publish(peer, "i", n)
        follow(peer, "i", "top_n=2,skip_n=0,oof,no_empties", c="sow_and_delta_subscribe")
        publish(peer, "i", 0, v=0.5)
        assert json.loads(peer.receive()[1]) == {"id": "i0", "v": 0.5}
        publish(peer, "i", 0, v=0.5)
        publish(peer, "i", 2, v=0)
        assert json.loads(peer.receive()[1]) == {"id": "i2", "symbol": "i2", "g": "i", "v": 0}
        assert received(peer) == ("oof", "match", 1)


def test_conflation_on_a_page(server: RunningServer) -> None:
    """Oof has the data last received; what comes and goes in one interval is not told."""
    with server.log_on() as peer:
        for n in range(4):
            publish(peer, "j", n)
        options = "top_n=2,skip_n=0,oof,conflation=200ms,conflation_key=[/id]"
        assert values(follow(peer, "j", options)) == [0, 1]
        with peer.at_once():
            publish(peer, "j", 9, v=-1)  # 1 leaves ...
            publish(peer, "j", 9, v=9)  # ... and is back
            publish(peer, "j", 0, v=0.2)
            publish(peer, "j", 0, v=0.4)
            publish(peer, "j", 3, v=0.5)
        got = {received(peer) for _ in range(3)}
        assert got == {("oof", "match", 1), ("p", None, 0.4), ("p", None, 0.5)}
        with peer.at_once():
            publish(peer, "j", 0, v=0.45)
            publish(peer, "j", 0, v=7)
        assert {received(peer) for _ in range(2)} == {("oof", "match", 0.4), ("p", None, 1)}
        assert peer.hears_nothing()


def test_several_readers_of_the_same_records(server: RunningServer) -> None:
    """Each has its page, of one connection too; the ids tell them apart."""
    with server.log_on() as peer, server.log_on("other") as other:
        for n in range(6):
            publish(peer, "k", n)
        for sub_id, skip in (("low", 0), ("high", 3)):
            options = f"top_n=3,skip_n={skip},oof"
            follow(peer, "k", options, cid=sub_id, sub_id=sub_id)
        follow(other, "k", "top_n=3,skip_n=0,oof")
        publish(peer, "k", 5, v=-1)
        got = [(peer.receive()[0], received_by) for received_by in range(4)]
        assert sorted((header["sids"], header["c"]) for header, _ in got) == [
            ("high", "oof"),
            ("high", "p"),
            ("low", "oof"),
            ("low", "p"),
        ]
        assert [received(other) for _ in range(2)] == [("p", None, -1), ("oof", "match", 2)]
        peer.ask({"c": "unsubscribe", "sub_id": "low", "a": "processed"})
        publish(peer, "k", 5, v=-2)
        assert received(other) == ("p", None, -2)
        assert peer.hears_nothing()


@pytest.mark.parametrize("topic", ["quotes-C", "/desk/paged", "dotted.name"])
def test_other_topics_with_pages(server: RunningServer, topic: str) -> None:
    """A conflated topic, a logical topic of a Pattern, a name with a dot in it."""
    source = "quotes" if topic == "quotes-C" else topic
    with server.log_on() as peer:
        if topic == "quotes-C":
            peer.subscribe(topic, "watch", f="/g = 'l'")
        for n in range(3):
            publish(peer, "l", n, source)
            if topic == "quotes-C":
                peer.receive()
        peer.send({"c": "unsubscribe", "sub_id": "watch"})
        assert values(follow(peer, "l", "top_n=1,skip_n=1,oof", topic)) == [1]
        publish(peer, "l", 0, source, v=8)
        got = [peer.receive() for _ in range(2)]
        assert [(header["t"], header["c"]) for header, _ in got] == [(topic, "oof"), (topic, "p")]


def test_select_list_timestamp_and_no_sowkey(server: RunningServer) -> None:
    """All messages of the subscription have the form that was asked for."""
    with server.log_on() as peer:
        for n in range(3):
            publish(peer, "m", n)
        options = "top_n=1,skip_n=0,oof,select=[-/,+/v],timestamp,no_sowkey"
        ((header, body),) = follow(peer, "m", options).records
        assert ("k" in header, "ts" in header, json.loads(body)) == (False, True, {"v": 0})
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 'm0'"})
        for expected in ("oof", 0), ("p", 1):
            header, body = peer.receive()
            assert (header["c"], json.loads(body)) == (expected[0], {"v": expected[1]})
            assert ("k" in header, "ts" in header) == (False, True)


def test_sow_keys_are_paged_through(server: RunningServer) -> None:
    """The page is cut from the records that they name."""
    with server.log_on() as peer:
        for n in range(4):
            publish(peer, "n", n)
        found = query(peer, "orders", f="/g = 'n'", orderby="/v").records
        keys = ",".join(header["k"] for header, _ in found[1:])
        assert values(follow(peer, "n", "top_n=1,skip_n=1,oof", sow_keys=keys)) == [2]
        publish(peer, "n", 0, v=1.5)
        publish(peer, "n", 3, v=1.7)
        assert [received(peer) for _ in range(2)] == [("p", None, 1.7), ("oof", "match", 2)]


PAGED = {"o": "top_n=5,skip_n=0", "orderby": "/v"}


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"t": "^orders$"}, "invalid option"),
        ({"t": "unkept"}, "invalid option"),
        ({"t": "unkept", "o": "", "top_n": 5, "skip_n": 0}, "invalid option"),
        ({"o": "skip_n=5"}, "invalid option"),
        ({"o": "top_n=-1,skip_n=5"}, "invalid option"),
        ({"o": "top_n=5,skip_n=many"}, "invalid option"),
        ({"orderby": "/v SIDEWAYS"}, "invalid orderby"),
        ({"f": "UNIX_TIMESTAMP() > /v"}, "bad filter"),
        ({"o": "top_n=5,skip_n=0,conflation=1s,conflation_key=[/v]"}, "invalid option"),
        ({"c": "subscribe"}, "invalid option"),
        ({"c": "delta_subscribe"}, "invalid option"),
        ({"c": "subscribe", "o": "", "top_n": 5}, "invalid option"),
        ({"c": "subscribe", "o": "", "skip_n": 5}, "invalid option"),
    ],
)
def test_what_cannot_be_paged_through(
    server: RunningServer, keys: dict[str, Any], reason: str
) -> None:
    """It is refused, and leaves no subscription behind."""
    with server.log_on() as peer:
        header = {"c": "sow_and_subscribe", "cid": "s", "t": "orders", "a": "processed"}
        ack = peer.ask(header | PAGED | keys)
        assert (ack["status"], ack["reason"]) == ("failure", reason), ack
        publish(peer, "z", 1)
        assert peer.hears_nothing()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"o": "replace,oof"}, "invalid option"),
        ({"o": "replace,top_n=5"}, "invalid option"),
        ({"orderby": ""}, "invalid orderby"),
        ({"t": "quotes"}, "invalid topic"),
        ({"c": "subscribe", "o": "replace"}, "invalid option"),
    ],
)
def test_what_cannot_take_the_place_of_a_page(
    server: RunningServer, keys: dict[str, Any], reason: str
) -> None:
    """All of what makes a page has to be said again, and the topic is the same; else it stays."""
    with server.log_on() as peer:
        publish(peer, "o", 1)
        follow(peer, "o", "top_n=5,skip_n=0")
        header = {"c": "sow_and_subscribe", "cid": "s", "t": "orders", "a": "processed"}
        paged = {"o": "replace,top_n=5,skip_n=0", "orderby": "/v"}
        ack = peer.ask(header | paged | keys)
        assert (ack["status"], ack["reason"]) == ("failure", reason), ack
        publish(peer, "o", 1)
        assert received(peer) == ("p", None, 1)
