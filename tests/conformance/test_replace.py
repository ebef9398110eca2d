"""Replacing a subscription: another filter, topic or other options, from one moment to the next."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server, running_server
from tests.support.sow import TOPICS, Group, receive_group

server = module_server(TOPICS)


def publish(peer: RawPeer, message: dict[str, Any], topic: str = "orders") -> None:
    """Publish a JSON message."""
    peer.publish(topic, json.dumps(message).encode())


def follow(peer: RawPeer, command: str = "sow_and_subscribe", **keys: Any) -> Group:
    """Query and subscribe, and give what the query returns."""
    header = {"c": command, "cid": "s", "sub_id": "s", "t": "orders", "a": "processed"}
    ack = peer.ask(header | keys)
    assert ack["status"] == "success", ack
    return receive_group(peer)


def received(peer: RawPeer) -> tuple[str, str, Any]:
    """What comes next: command, topic and body."""
    header, body = peer.receive()
    return header["c"], header["t"], json.loads(body)


def test_another_topic(server: RunningServer) -> None:
    """All records of the new topic come, those of the old one are out of focus."""
    with server.log_on() as peer:
        publish(peer, {"id": "t1", "symbol": "t1"})
        publish(peer, {"id": "t1", "symbol": "t1"}, "quotes")
        same = {"f": "/symbol = 't1'"}
        assert len(follow(peer, **same, o="oof").records) == 1
        group = follow(peer, t="quotes", **same, o="oof,replace")
        assert [header["t"] for header, _ in group.records] == ["quotes"]
        assert received(peer)[:2] == ("oof", "orders")
        publish(peer, {"id": "t1", "symbol": "t1", "n": 1})
        publish(peer, {"id": "t1", "symbol": "t1", "n": 2}, "quotes")
        assert received(peer)[1:] == ("quotes", {"id": "t1", "symbol": "t1", "n": 2})


def test_from_one_topic_to_several_and_back(server: RunningServer) -> None:
    """Records that stay in scope are not sent again."""
    with server.log_on() as peer:
        for topic in ("/desk/one", "/desk/two"):
            publish(peer, {"id": "m1"}, topic)
        follow(peer, t="/desk/one", o="oof")
        group = follow(peer, t="^/desk/(one|two)$", o="oof,replace")
        assert [header["t"] for header, _ in group.records] == ["/desk/two"]
        assert follow(peer, t="/desk/two", o="oof,replace").records == []
        assert received(peer)[:2] == ("oof", "/desk/one")
        assert peer.hears_nothing()


def test_oof_from_now_on(server: RunningServer) -> None:
    """What left before stays untold; what leaves from now on, and by this, is told."""
    with server.log_on() as peer:
        for n in range(3):
            publish(peer, {"id": f"o{n}", "g": "o", "n": n})
        follow(peer, f="/g = 'o' AND /n < 9")
        publish(peer, {"id": "o0", "g": "o", "n": 10})
        follow(peer, f="/g = 'o' AND /n < 2", o="replace,oof")
        assert received(peer)[::2] == ("oof", {"id": "o2", "g": "o", "n": 2})
        publish(peer, {"id": "o1", "g": "o", "n": 3})
        assert received(peer)[::2] == ("oof", {"id": "o1", "g": "o", "n": 3})
        follow(peer, f="/g = 'o' AND /n > 5", o="replace")
        publish(peer, {"id": "o0", "g": "o", "n": 1})
        assert peer.hears_nothing()


def test_other_options_hold_for_what_follows(server: RunningServer) -> None:
    """Records are not sent again in the new form."""
    with server.log_on() as peer:
        publish(peer, {"id": "p1", "n": 1})
        follow(peer, f="/id = 'p1'")
        group = follow(peer, f="/id = 'p1'", o="replace,select=[-/,+/n],no_sowkey,timestamp")
        assert group.records == []
        publish(peer, {"id": "p1", "n": 2})
        header, body = peer.receive()
        assert ("k" in header, "ts" in header, json.loads(body)) == (False, True, {"n": 2})


def test_from_whole_records_to_deltas(server: RunningServer) -> None:
    """What was sent whole is what the first delta is made from."""
    with server.log_on() as peer:
        publish(peer, {"id": "d1", "n": 1, "m": 1})
        follow(peer, f="/id = 'd1'")
        assert follow(peer, "sow_and_delta_subscribe", f="/id = 'd1'", o="replace").records == []
        publish(peer, {"id": "d1", "n": 2, "m": 1})
        assert received(peer)[2] == {"id": "d1", "n": 2}
        peer.subscribe("orders", "s", f="/id = 'd1'", o="replace")
        publish(peer, {"id": "d1", "n": 3, "m": 1})
        assert received(peer)[2] == {"id": "d1", "n": 3, "m": 1}


def test_keys_can_be_replaced(server: RunningServer) -> None:
    """Another set of records, named by their SOW keys."""
    with server.log_on() as peer:
        for n in range(3):
            publish(peer, {"id": f"k{n}", "g": "k", "n": n})
        found = follow(peer, f="/g = 'k'", cid="all", sub_id="all").records
        keys = {json.loads(body)["n"]: header["k"] for header, body in found}
        peer.ask({"c": "unsubscribe", "sub_id": "all", "a": "processed"})
        follow(peer, sow_keys=f"{keys[0]},{keys[1]}", o="oof")
        group = follow(peer, sow_keys=f"{keys[1]},{keys[2]}", o="oof,replace")
        assert [message["n"] for message in group.messages] == [2]
        assert received(peer)[::2] == ("oof", {"id": "k0", "g": "k", "n": 0})


def test_a_refused_replacement_leaves_everything_as_it_was(server: RunningServer) -> None:
    """The subscription goes on."""
    with server.log_on() as peer:
        publish(peer, {"id": "r1"})
        follow(peer, f="/id = 'r1'")
        for keys in ({"f": "/id ="}, {"t": "["}, {"o": "replace,unknown"}, {"o": "replace,rate=5"}):
            header = {"c": "sow_and_subscribe", "cid": "s", "t": "orders", "o": "replace"}
            assert peer.ask(header | {"a": "processed"} | keys)["status"] == "failure"
        publish(peer, {"id": "r1", "n": 1})
        assert received(peer)[2] == {"id": "r1", "n": 1}


SWITCHES = """
<Actions>
  <Action>
    <On><Module>amps-action-on-startup</Module></On>
    <Do><Module>amps-action-do-disable-entitlement</Module></Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-signal</Module><Options><Signal>SIGUSR2</Signal></Options></On>
    <Do><Module>amps-action-do-enable-entitlement</Module></Do>
  </Action>
</Actions>
<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
"""


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_a_topic_that_the_user_may_not_read(tmp_path: Path, command: str) -> None:
    """A replacement with it succeeds, and nothing comes; a new subscription is refused."""
    with running_server(tmp_path, elements=TOPICS + SWITCHES) as server, server.log_on() as peer:
        peer.subscribe("quotes", "s")
        publish(peer, {"symbol": "A"}, "quotes")
        assert received(peer)[0] == "p"
        peer.publish("orders", b'{"id":1}')
        peer.flush()
        server.process.send_signal(signal.SIGUSR2)
        assert server.logs("entitlement switched on")
        header = {"c": command, "cid": "s", "sub_id": "s", "t": "orders", "a": "processed"}
        assert peer.ask(header | {"o": "replace"})["status"] == "success"
        if command == "sow_and_subscribe":
            assert receive_group(peer).records == []
        assert peer.ask(header | {"sub_id": "new"})["reason"] == "not entitled"
        assert peer.hears_nothing()
