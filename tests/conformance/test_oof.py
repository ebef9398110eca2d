"""Out-of-focus messages: which records leave a subscription, and why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS

server = module_server(TOPICS)


def publish(peer: RawPeer, topic: str, message: dict[str, Any], **keys: Any) -> None:
    """Publish a JSON message."""
    peer.publish(topic, json.dumps(message).encode(), **keys)


def test_an_update_that_matches_no_more(server: RunningServer) -> None:
    """Reason match, with the record as it is now, its key and the correlation id of the update."""
    with server.log_on() as peer:
        peer.subscribe("orders", "s", f="/id = 1 AND /open = 'yes'", o="oof")
        publish(peer, "orders", {"id": 1, "open": "yes"})
        key = peer.receive()[0]["k"]
        publish(peer, "orders", {"id": 1, "open": "no"}, x="closing")
        header, body = peer.receive()
        publish(peer, "orders", {"id": 1, "open": "no", "again": 1})
        assert peer.hears_nothing()
    assert (header["c"], header["t"], header["reason"]) == ("oof", "orders", "match")
    assert (header["k"], header["sids"], header["x"]) == (key, "s", "closing")
    assert json.loads(body) == {"id": 1, "open": "no"}
    assert header["l"] == len(body)


def test_a_record_that_is_deleted(server: RunningServer) -> None:
    """Reason deleted, with the record as it was."""
    with server.log_on() as peer:
        peer.subscribe("orders", "s", f="/id = 2", o="oof")
        peer.subscribe("orders", "without", f="/id = 2")
        publish(peer, "orders", {"id": 2, "n": 1}, x="mine")
        assert peer.receive()[0]["sids"] == "s,without"
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 2"})
        header, body = peer.receive()
        assert peer.hears_nothing()
    assert (header["c"], header["reason"], header["sids"]) == ("oof", "deleted", "s")
    assert (header["x"], json.loads(body)) == ("mine", {"id": 2, "n": 1})


def test_a_record_that_expires(server: RunningServer) -> None:
    """Reason expired, with the record as it was; an update renews its life."""
    with server.log_on() as peer:
        peer.subscribe("quotes", "s", o="oof")
        with peer.at_once():
            publish(peer, "quotes", {"symbol": "A", "n": 1}, e=1)
            publish(peer, "quotes", {"symbol": "B", "n": 1}, e=1)
            publish(peer, "quotes", {"symbol": "A", "n": 2}, e=0)
            publish(peer, "quotes", {"symbol": "C", "n": 1})
        for _ in range(4):
            assert peer.receive()[0]["c"] == "p"
        header, body = peer.receive()
        assert peer.hears_nothing()
    assert (header["c"], header["reason"], header["t"]) == ("oof", "expired", "quotes")
    assert json.loads(body) == {"symbol": "B", "n": 1}


def test_each_subscription_has_a_focus_of_its_own(server: RunningServer) -> None:
    """One connection gets the message for some of its subscriptions and oof for others."""
    with server.log_on() as peer:
        peer.subscribe("orders", "low", f="/id = 3 AND /n < 5", o="oof")
        peer.subscribe("orders", "high", f="/id = 3 AND /n >= 5", o="oof")
        peer.subscribe("orders", "all", f="/id = 3", o="oof")
        publish(peer, "orders", {"id": 3, "n": 1})
        assert peer.receive()[0]["sids"] == "low,all"
        publish(peer, "orders", {"id": 3, "n": 7})
        got = {(h["c"], h["sids"]) for h, _ in (peer.receive(), peer.receive())}
    assert got == {("oof", "low"), ("p", "high,all")}


def test_a_delta_publish_gives_the_merged_record(server: RunningServer) -> None:
    """The body of an oof is whole."""
    with server.log_on() as peer:
        peer.subscribe("orders", "s", f="/id = 4 AND /open = 1", o="oof")
        publish(peer, "orders", {"id": 4, "open": 1, "kept": "text"})
        publish(peer, "orders", {"id": 4, "open": 0}, c="delta_publish")
        assert peer.receive()[0]["c"] == "p"
        header, body = peer.receive()
    assert header["c"] == "oof"
    assert json.loads(body) == {"id": 4, "open": 0, "kept": "text"}


def test_select_list_and_no_sowkey_hold_for_oof(server: RunningServer) -> None:
    """It has the form of the subscription's other messages."""
    with server.log_on() as peer:
        options = "oof,select=[-/,+/n],no_sowkey,timestamp"
        peer.subscribe("orders", "s", f="/id = 5", o=options)
        publish(peer, "orders", {"id": 5, "n": 1})
        peer.receive()
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 5"})
        header, body = peer.receive()
    assert ("k" in header, "ts" in header, json.loads(body)) == (False, True, {"n": 1})


COMMANDS = ("subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("conflation", ["", ",conflation=100ms"])
def test_every_command_tracks_focus(server: RunningServer, command: str, conflation: str) -> None:
    """Reasons match, deleted and expired, with or without conflation."""
    group = f"{command}{conflation}"
    with server.log_on() as peer:
        options = f"oof{conflation}"
        header = {"c": command, "cid": "1", "sub_id": "s", "t": "quotes", "o": options}
        peer.send(header | {"f": f"/g = '{group}' AND /n < 5"})
        if command.startswith("sow"):
            assert [peer.receive()[0]["c"] for _ in range(2)] == ["group_begin", "group_end"]
        for n in range(3):
            symbol = f"{group}{n}"
            publish(peer, "quotes", {"symbol": symbol, "g": group, "n": n}, e=n // 2)
            assert peer.receive()[0]["c"] == "p"
        publish(peer, "quotes", {"symbol": f"{group}0", "g": group, "n": 9})
        last = 0 if conflation else 9
        assert _leaves(peer) == ("match", last)
        peer.send({"c": "sow_delete", "t": "quotes", "f": f"/symbol = '{group}1'"})
        assert _leaves(peer) == ("deleted", 1)
        assert _leaves(peer) == ("expired", 2)
        publish(peer, "quotes", {"symbol": f"{group}0", "g": group, "n": 4})
        header, body = peer.receive()
        assert (header["c"], json.loads(body)["symbol"]) == ("p", f"{group}0")


def _leaves(peer: RawPeer) -> tuple[str, int]:
    """The reason and the number of the record that has left next."""
    header, body = peer.receive()
    assert (header["c"], header["t"], header["sids"]) == ("oof", "quotes", "s")
    return header["reason"], json.loads(body)["n"]


def test_conflation_does_not_tell_of_what_never_came(server: RunningServer) -> None:
    """A record that a plain subscription was never sent leaves in silence."""
    with server.log_on() as peer:
        publish(peer, "orders", {"id": 650, "n": 1})
        peer.subscribe("orders", "s", f="/id = 650 AND /n < 5", o="oof,conflation=100ms")
        publish(peer, "orders", {"id": 650, "n": 9})
        assert peer.hears_nothing()


def test_conflation_sends_what_the_client_knows(server: RunningServer) -> None:
    """A record that leaves is reported with the state last received, one never sent not at all."""
    with server.log_on() as peer:
        peer.subscribe("orders", "s", f="/id > 600 AND /n < 5", o="oof,conflation=200ms")
        publish(peer, "orders", {"id": 601, "n": 1})
        publish(peer, "orders", {"id": 601, "n": 2})
        publish(peer, "orders", {"id": 602, "n": 1})
        publish(peer, "orders", {"id": 602, "n": 9})
        header, body = peer.receive()
        assert (header["c"], json.loads(body)) == ("p", {"id": 601, "n": 2})
        publish(peer, "orders", {"id": 601, "n": 3})
        publish(peer, "orders", {"id": 601, "n": 9})
        header, body = peer.receive()
        assert (header["c"], header["reason"]) == ("oof", "match")
        assert json.loads(body) == {"id": 601, "n": 2}
        publish(peer, "orders", {"id": 601, "n": 4})
        publish(peer, "orders", {"id": 601, "n": 9})
        publish(peer, "orders", {"id": 601, "n": 1})
        assert json.loads(peer.receive()[1]) == {"id": 601, "n": 1}


def test_conflation_knows_what_the_query_sent(server: RunningServer) -> None:
    """Results of the query count as received."""
    with server.log_on() as peer:
        publish(peer, "orders", {"id": 700, "n": 1})
        command = {"c": "sow_and_subscribe", "cid": "1", "t": "orders", "f": "/id = 700"}
        peer.send(command | {"o": "oof,conflation=200ms,conflation_key=[/id]"})
        for _ in range(3):
            peer.receive()
        publish(peer, "orders", {"id": 700, "n": 2})
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 700"})
        header, body = peer.receive()
    assert (header["c"], header["reason"]) == ("oof", "deleted")
    assert json.loads(body) == {"id": 700, "n": 1}
