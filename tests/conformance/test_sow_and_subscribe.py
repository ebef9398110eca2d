"""sow_and_subscribe and sow_and_delta_subscribe on topics with records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS, Group, query, receive_group

server = module_server(TOPICS)


def follow(peer: RawPeer, topic: str, sub_id: str = "s", **keys: Any) -> Group:
    """Query and subscribe, and give what the query returns."""
    header = {"c": "sow_and_subscribe", "cid": sub_id, "sub_id": sub_id, "t": topic}
    ack = peer.ask(header | {"a": "processed"} | keys)
    assert (ack["a"], ack["status"], ack["sub_id"]) == ("processed", "success", sub_id), ack
    return receive_group(peer)


def publish(peer: RawPeer, topic: str, message: dict[str, Any], **keys: Any) -> None:
    """Publish a JSON message."""
    peer.publish(topic, json.dumps(message).encode(), **keys)


def received(peer: RawPeer) -> tuple[str, str, Any]:
    """What comes next: command, subscription ids and body."""
    header, body = peer.receive()
    return header["c"], header["sids"], json.loads(body)


def test_the_query_comes_first_and_then_every_change(server: RunningServer) -> None:
    """Records that match, then the publishes that follow; both carry the same SOW key."""
    with server.log_on() as peer:
        publish(peer, "orders", {"id": "q1", "n": 1}, x="abc")
        group = follow(peer, "orders", f="/id = 'q1'", query_id="Q")
        publish(peer, "orders", {"id": "q1", "n": 2}, x="def")
        publish(peer, "orders", {"id": "q2", "n": 2})
        header, body = peer.receive()
        assert peer.hears_nothing()
    assert group.messages == [{"id": "q1", "n": 1}]
    assert (header["c"], header["t"], header["sids"], header["x"]) == ("p", "orders", "s", "def")
    assert json.loads(body) == {"id": "q1", "n": 2}
    assert header["k"] == group.records[0][0]["k"]
    assert header["l"] == len(body)


def test_the_acks_of_a_query_with_subscription(server: RunningServer) -> None:
    """All carry both ids."""
    with server.log_on() as peer:
        command = {"c": "sow_and_subscribe", "cid": "1", "sub_id": "s", "query_id": "Q"}
        peer.send(command | {"t": "orders", "f": "/id='-'", "a": "stats,completed,processed"})
        acks = [peer.receive_header()]
        receive_group(peer)
        acks += [peer.receive_header(), peer.receive_header()]
    assert [ack["a"] for ack in acks] == ["processed", "completed", "stats"]
    assert {(ack["sub_id"], ack["query_id"], ack["status"]) for ack in acks} == {
        ("s", "Q", "success")
    }


def test_top_n_limits_the_query_only(server: RunningServer) -> None:
    """The subscription is for all records that match."""
    with server.log_on() as peer:
        for n in range(3):
            publish(peer, "orders", {"id": f"t{n}", "n": n})
        group = follow(peer, "orders", f="/id LIKE '^t'", top_n=1, orderby="/n DESC")
        assert group.messages == [{"id": "t2", "n": 2}]
        publish(peer, "orders", {"id": "t0", "n": 7})
        assert received(peer) == ("p", "s", {"id": "t0", "n": 7})


def test_sow_keys_restrict_query_and_subscription(server: RunningServer) -> None:
    """A follower of one record hears of no other."""
    with server.log_on() as peer:
        for n in range(2):
            publish(peer, "orders", {"id": f"k{n}", "n": 0})
        key = query(peer, "orders", f="/id = 'k1'").records[0][0]["k"]
        assert follow(peer, "orders", sow_keys=key, o="oof").messages == [{"id": "k1", "n": 0}]
        for n in range(2):
            publish(peer, "orders", {"id": f"k{n}", "n": 1})
        assert received(peer) == ("p", "s", {"id": "k1", "n": 1})
        assert peer.hears_nothing()


def test_options_of_the_subscription_hold_for_the_query_as_well(server: RunningServer) -> None:
    """Select list, timestamp and no_sowkey."""
    with server.log_on() as peer:
        publish(peer, "orders", {"id": "o1", "n": 1})
        options = "no_sowkey,timestamp,select=[-/,+/n]"
        ((header, body),) = follow(peer, "orders", f="/id = 'o1'", o=options).records
        assert ("k" in header, "ts" in header, body) == (False, True, b'{"n":1}')
        publish(peer, "orders", {"id": "o1", "n": 2})
        header, body = peer.receive()
        assert ("k" in header, "ts" in header, body) == (False, True, b'{"n":2}')


def test_a_regular_expression_follows_topics_that_appear_later(server: RunningServer) -> None:
    """The query covers the records that there are, the subscription all topics."""
    with server.log_on() as peer:
        publish(peer, "/desk/new", {"id": 1})
        group = follow(peer, "^/desk/")
        assert [(header["t"], body) for header, body in group.records] == [
            ("/desk/new", b'{"id": 1}')
        ]
        publish(peer, "/desk/newer", {"id": 1})
        assert peer.receive()[0]["t"] == "/desk/newer"


def test_a_plain_subscription_gets_sow_keys_too(server: RunningServer) -> None:
    """Unless it does not want them."""
    with server.log_on() as peer:
        peer.subscribe("orders", "with", f="/id = 'p1'")
        peer.subscribe("orders", "without", f="/id = 'p1'", o="no_sowkey")
        publish(peer, "orders", {"id": "p1"})
        headers = {header["sids"]: header for header, _ in (peer.receive(), peer.receive())}
    assert "k" in headers["with"]
    assert "k" not in headers["without"]


def test_one_message_for_all_subscriptions_of_a_connection(server: RunningServer) -> None:
    """With the ids of those that match."""
    with server.log_on() as peer:
        for sub_id, text in (("1", "/n > 0"), ("2", "/n > 1"), ("3", "/n > 2"), ("4", "1=1")):
            peer.subscribe("orders", sub_id, f=f"/id = 'm1' AND {text}")
        for n, sub_ids in ((1, "1,4"), (3, "1,2,3,4"), (2, "1,2,4")):
            publish(peer, "orders", {"id": "m1", "n": n})
            assert received(peer) == ("p", sub_ids, {"id": "m1", "n": n})
        assert peer.hears_nothing()


def test_a_replacement_sends_what_is_new_and_tells_what_is_gone(server: RunningServer) -> None:
    """Records that both filters match are not sent again."""
    with server.log_on() as peer:
        for n in range(6):
            publish(peer, "orders", {"id": f"r{n}", "n": n})
        base = "/id LIKE '^r' AND"
        follow(peer, "orders", f=f"{base} /n < 4", o="oof")
        group = follow(peer, "orders", f=f"{base} /n > 1", o="oof,replace")
        assert sorted(message["n"] for message in group.messages) == [4, 5]
        leavers = [peer.receive() for _ in range(2)]
        assert sorted(json.loads(body)["n"] for _, body in leavers) == [0, 1]
        assert {(h["c"], h["reason"], h["sids"]) for h, _ in leavers} == {("oof", "match", "s")}
        publish(peer, "orders", {"id": "r0", "n": 0})
        publish(peer, "orders", {"id": "r5", "n": 5})
        assert received(peer) == ("p", "s", {"id": "r5", "n": 5})


def test_a_replacement_of_a_plain_subscription_queries_everything(server: RunningServer) -> None:
    """It had not been sent any records."""
    with server.log_on() as peer:
        publish(peer, "orders", {"id": "w1"})
        peer.subscribe("orders", "s", f="/id = 'w1'")
        assert len(follow(peer, "orders", f="/id = 'w1'", o="replace").records) == 1


def test_ending_the_subscription_ends_the_messages(server: RunningServer) -> None:
    """The query had ended before."""
    with server.log_on() as peer:
        follow(peer, "orders", f="/id = 'u1'")
        peer.ask({"c": "unsubscribe", "sub_id": "s", "a": "processed"})
        publish(peer, "orders", {"id": "u1"})
        assert peer.hears_nothing()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"o": "skip_n=5"}, "invalid option"),
        ({"o": "conflation=1s,conflation_key=[/other],oof"}, "invalid option"),
        ({"bs": 0}, "invalid batch size"),
        ({"f": "/id ="}, "bad filter"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    server: RunningServer, keys: dict[str, Any], reason: str
) -> None:
    """Without leaving a subscription behind."""
    with server.log_on() as peer:
        header = {"c": "sow_and_subscribe", "cid": "1", "sub_id": "s", "t": "orders"}
        ack = peer.ask(header | {"a": "processed"} | keys)
        assert (ack["status"], ack["reason"]) == ("failure", reason)
        publish(peer, "orders", {"id": "x"})
        assert peer.hears_nothing()
