"""At level trace the log has everything that clients are sent, with the headers that were sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import TOPICS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server that logs everything."""
    directory = tmp_path_factory.mktemp("server")
    with running_server(directory, elements=TOPICS, level="trace") as running:
        yield running


def line(client: str, header: dict[str, Any], body: bytes) -> str:
    """What the log has to say about a frame that a client has got."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
    if header["c"] == "ack":
        return f"trace: 17-0002 client[{client}] ack sent: {text}"
    command = "publish" if header["c"] == "p" else header["c"]
    return f"trace: 17-0001 client[{client}] {command} sent: {text}{body.decode()}"


def take(peer: RawPeer, commands: str) -> list[tuple[dict[str, Any], bytes]]:
    """The next frames, which have to be of these commands."""
    frames = [peer.receive() for _ in commands.split()]
    assert [header["c"] for header, _ in frames] == commands.split()
    return frames


def test_answers_to_queries(server: RunningServer) -> None:
    """Every ack, the results, and what is around them."""
    with server.log_on("asker") as peer:
        peer.publish("orders", b'{"id":"}","n":1}')
        peer.send({"c": "sow", "cid": "q}", "t": "orders", "a": "processed,completed,stats"})
        frames = take(peer, "ack group_begin sow group_end ack ack")
        peer.send(
            {"c": "sow_and_subscribe", "cid": "s", "t": "orders", "o": "oof", "a": "completed"}
        )
        frames += take(peer, "group_begin sow group_end ack")
        peer.publish("orders", b'{"id":"}","n":2}')
        peer.send({"c": "sow_delete", "t": "orders", "f": "1=1"})
        frames += take(peer, "p oof")
    for header, body in frames:
        assert server.logs(line("asker", header, body)), header


def test_messages_and_their_acks(server: RunningServer) -> None:
    """Of topics without records, in runs, with sequence numbers; in the order of sending."""
    with server.log_on("subscriber") as peer, server.log_on("publisher") as publisher:
        peer.subscribe("plain", "1")
        for number in range(1, 4):
            publisher.publish("plain", b"%d" % number, s=number, a="processed", x="}")
        frames = take(peer, "p p p")
        acks = take(publisher, "ack ack ack")
        publisher.send({"c": "heartbeat", "o": "start,1"})
        heartbeats = take(publisher, "heartbeat")
    lines = [line("subscriber", *one) for one in frames]
    lines += [line("publisher", *one) for one in [*acks, *heartbeats]]
    for text in lines:
        assert server.logs(text), text
    log = server.log()
    places = [log.index(text) for text in lines[:3]]
    assert places == sorted(places)


def test_failures(server: RunningServer) -> None:
    """What a client is told of a refusal, with its detail."""
    with server.log_on("refused") as peer:
        ack = peer.ask({"c": "sow", "cid": "1", "t": "orders", "f": "/a =", "a": "processed"})
    assert server.logs(line("refused", ack, b""))
