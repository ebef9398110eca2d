"""A header field with an empty text says nothing: some clients send every field they know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import TOPICS, query, receive_group

server = module_server(TOPICS)


TEXTS = ("f", "filter", "o", "opts", "orderby", "x", "bm", "k", "sow_keys", "user_id", "ts", "lp")
NUMBERS = ("bs", "top_n", "skip_n", "e", "s", "l")
FLAGS = ("send_oof", "send_keys", "send_empty", "data_only", "send_matching_ids")
EMPTY = dict.fromkeys((*TEXTS, *NUMBERS, *FLAGS, "sub_id", "query_id"), "")


def records_in(peer: RawPeer, command: str, **keys: Any) -> list[Any]:
    """What a command finds that queries."""
    ack = peer.ask({"c": command, "cid": "q", "t": "orders", "a": "processed"} | keys)
    assert (ack["status"], ack["cid"]) == ("success", "q"), ack
    return receive_group(peer).messages


def test_a_logon(server: RunningServer) -> None:
    """Without a name the connection has the one that the server made."""
    with server.connect() as peer:
        names = dict.fromkeys(("client_name", "user_id", "pw", "version", "v", "o", "x"), "")
        ack = peer.ask({"c": "logon", "cid": "1", "mt": "json", "a": "processed"} | names)
        assert (ack["status"], ack["client_name"].split("-")[0]) == ("success", "test")


@pytest.mark.parametrize("command", ["sow", "sow_and_subscribe", "sow_and_delta_subscribe"])
def test_queries(server: RunningServer, command: str) -> None:
    """No filter, no order, no limit, results in frames of one."""
    with server.log_on() as peer:
        peer.send({"c": "publish", "t": "orders"} | EMPTY, b'{"id":"empty"}')
        everything = records_in(peer, command)
        assert {"id": "empty"} in everything
        peer.ask({"c": "unsubscribe", "sub_id": "all", "a": "processed"})
        assert records_in(peer, command, **EMPTY) == everything


@pytest.mark.parametrize("command", ["subscribe", "delta_subscribe"])
def test_subscriptions_and_publishes(server: RunningServer, command: str) -> None:
    """Messages come with the command's id; acks with it, too."""
    topic = f"empty-{command}"
    with server.log_on() as peer:
        ack = peer.ask({"c": command, "cid": "q", "t": topic, "a": "processed"} | EMPTY)
        assert ack["status"] == "success"
        for publish in ("publish", "delta_publish"):
            peer.send({"c": publish, "t": topic, "cid": "", "a": ""} | EMPTY, b"{}")
            header, body = peer.receive()
            assert (header["sids"], body) == ("q", b"{}")
            assert not {"x", "k", "s"} & header.keys()


def test_a_deletion_without_a_filter_deletes_nothing(server: RunningServer) -> None:
    """An empty filter is not one that everything matches."""
    with server.log_on() as peer:
        peer.publish("orders", b'{"id":"kept"}')
        command = {"c": "sow_delete", "t": "orders", "cid": "d", "a": ",processed,,stats"}
        ack = peer.ask(command | EMPTY)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid command")
        assert query(peer, "orders", f="/id = 'kept'").messages == [{"id": "kept"}]


@pytest.mark.parametrize("acks", ["", ",", " , "])
def test_no_acks(server: RunningServer, acks: str) -> None:
    """A list of nothing asks for nothing."""
    with server.log_on() as peer:
        peer.send({"c": "subscribe", "cid": "q", "t": "none", "a": acks})
        peer.send({"c": "flush", "cid": "f", "a": acks})
        peer.flush()


@pytest.mark.parametrize(
    "options",
    ["oof,skip_n=0,", ",oof", "oof,,send_keys,", ", oof , ", "skip_n=0"],
)
@pytest.mark.parametrize("topic", ["orders", "no-records"])
def test_options_with_commas_to_spare(server: RunningServer, options: str, topic: str) -> None:
    """Lists are joined carelessly; to skip no records is the same as not to say so."""
    if topic == "no-records":
        options = options.replace("oof", "none")
    with server.log_on() as peer:
        command = {"c": "sow_and_subscribe", "cid": "q", "t": topic, "o": options, "bs": "10"}
        command |= {"a": "processed", "top_n": "", "skip_n": "0"}
        assert peer.ask(command)["status"] == "success"
        receive_group(peer)
        peer.publish(topic, json.dumps({"id": "commas"}).encode())
        assert peer.receive()[0]["sids"] == "q"


def test_batches_are_as_large_as_they_may_be(server: RunningServer) -> None:
    """More is asked for than there can be: the client is served, and the log says so once."""
    with server.log_on("greedy") as peer:
        for _ in range(3):
            records_in(peer, "sow", bs=20_000)
        peer.flush()
    said = "client[greedy] requested a batch size of 20000 records; limited to 10000"
    assert server.logs(said)
    assert server.logs(said, 1)
