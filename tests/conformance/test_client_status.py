"""/AMPS/ClientStatus: what clients do, in each message type's field names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import TOPICS


def next_event(peer: RawPeer) -> dict[str, Any]:
    """The next event, for a peer that speaks JSON."""
    header, body = peer.receive()
    assert header["t"] == "/AMPS/ClientStatus"
    event: dict[str, Any] = json.loads(body)["ClientStatus"]
    return event


def test_the_life_of_a_client(server: RunningServer) -> None:
    """Connect, logon, subscribe, unsubscribe, disconnect: each is an event with its details."""
    with server.log_on("watcher") as watcher:
        watcher.subscribe("/AMPS/ClientStatus", "w", f="/ClientStatus/client_name != 'watcher'")
        with server.log_on("life") as peer:
            peer.subscribe("orders", "s1", f="/qty > 50", o="no_empties")
            peer.subscribe("more", "s2")
            peer.ask({"c": "unsubscribe", "sub_id": "s1", "a": "processed"})
            events = [next_event(watcher) for _ in range(5)]
        events += [next_event(watcher) for _ in range(2)]
    assert [event["event"] for event in events] == [
        "connect",
        "logon",
        "subscribe",
        "subscribe",
        "unsubscribe",
        "unsubscribe",
        "disconnect",
    ]
    assert {event["client_name"] for event in events[1:]} == {"life"}
    assert len({event["connection_name"] for event in events}) == 1
    assert events[0]["client_address"].startswith("127.0.0.1:")
    subscribed = events[2]
    assert (subscribed["topic"], subscribed["filter"]) == ("orders", "/qty > 50")
    assert (subscribed["sub_id"], subscribed["options"]) == ("s1", "no_empties")
    assert subscribed["auth_id"] is None
    assert (events[5]["sub_id"], events[5]["topic"]) == ("s2", "more")
    assert events[6]["reason"] == "connection closed"


def test_fix_and_xml_have_names_of_their_own(server: RunningServer) -> None:
    """FIX tags and XML elements as AMPS documents them."""
    with server.log_on("f", "fix") as fix, server.log_on("x", "xml") as xml:
        fix.subscribe("/AMPS/ClientStatus", "1", f="/20066 = 'logon' AND /20067 = 'named'")
        xml.subscribe("/AMPS/ClientStatus", "1", f="/ClientStatus/ClientName = 'named'")
        with server.log_on("named"):
            tags = dict(field.split(b"=", 1) for field in fix.receive()[1].split(b"\x01") if field)
            assert (tags[b"20067"], tags[b"20066"]) == (b"named", b"logon")
            assert {b"20065", b"20071", b"20080"} <= tags.keys()
            root = ElementTree.fromstring(xml.receive()[1])
            assert (root.tag, root.findtext("Event")) == ("ClientStatus", "logon")


def test_a_refused_logon_is_an_event(server: RunningServer) -> None:
    """A client that never logged on is told apart by its connection."""
    with server.log_on("watcher") as watcher:
        watcher.subscribe("/AMPS/ClientStatus", "w", f="/ClientStatus/event = 'logon_failure'")
        with server.connect() as peer:
            peer.send({"c": "flush"})
            assert "logon is required" in next_event(watcher)["reason"]


def test_nobody_else_publishes_there(server: RunningServer) -> None:
    """The topics of the server are its own."""
    with server.log_on() as peer:
        ack = peer.ask({"c": "publish", "t": "/AMPS/ClientStatus", "a": "processed"}, b"{}")
        assert ack["reason"] == "invalid topic"


def test_queries_and_deletions_are_events(tmp_path: Path) -> None:
    """With their topic, filter and ids; those that are refused are none."""
    with running_server(tmp_path, elements=TOPICS) as server, server.log_on("watcher") as watcher:
        watcher.subscribe("/AMPS/ClientStatus", "w", f="/ClientStatus/event LIKE '^sow'")
        with server.log_on("asker") as peer:
            keys = {"t": "orders", "f": "/qty > 50", "query_id": "q", "x": "mark", "a": "completed"}
            assert peer.ask({"c": "sow", "o": "none", "f": "/qty >"} | keys)["c"] == "group_begin"
            peer.send({"c": "sow", "t": "orders", "f": "/qty >"})
            peer.send({"c": "sow_delete", "t": "orders"})
            peer.send({"c": "sow_delete"} | keys)
            peer.send({"c": "sow", "t": "orders", "o": "projection=[/n],grouping=[/n]"})
            peer.send({"c": "sow_and_subscribe", "t": "orders", "cid": "s"})
            events = [next_event(watcher) for _ in range(4)]
    assert [event["event"] for event in events] == ["sow", "sow_delete", "sow", "sow_and_subscribe"]
    for event in events[:2]:
        assert {name: event[name] for name in ("topic", "filter", "query_id")} == {
            "topic": "orders",
            "filter": "/qty > 50",
            "query_id": "q",
        }
        assert (event["client_name"], event["correlation_id"]) == ("asker", "mark")
    assert events[0]["options"] == "none"
    assert events[2]["options"] == "projection=[/n],grouping=[/n]"
