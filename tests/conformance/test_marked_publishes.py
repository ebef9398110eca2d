"""Publishes that say something of each message: many in a row do what each does alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server

server = module_server(
    elements="""
    <SOW>
      <Topic>
        <Name>keyed</Name><Pattern>^keyed-</Pattern><MessageType>json</MessageType><Key>/id</Key>
        <Durability>transient</Durability><Expiration>1h</Expiration>
      </Topic>
      <Topic>
        <Name>given</Name><Pattern>^given-</Pattern><MessageType>json</MessageType>
        <Durability>transient</Durability>
      </Topic>
    </SOW>
    <TransactionLog>
      <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
      <Topic><Name>^(keyed|given|log-.*)$</Name><MessageType>json</MessageType></Topic>
    </TransactionLog>
    """
)

Seen = list[tuple[Any, ...]]


def published(server: RunningServer, kind: str, way: str) -> tuple[Seen, Seen]:
    """Publish what is said of messages; gives what the log has, and what was refused."""
    topic = f"{kind}-{way}"
    separators = (", ", ": ") if way == "spaced" else (",", ":")  # those are read one by one
    data = b""
    for number in range(1, 200):
        header: dict[str, Any] = {"c": "p", "t": topic, "a": "persisted"}
        if number % 3:
            header["x"] = f"mark {number}"
        if number % 5:
            header["e"] = number
        if kind == "given":
            header["k"] = f"key-{number % 50}"
        # Some come twice.
        header["s"] = number if number % 40 else number - 3
        content = json.dumps(header, separators=separators).encode() + b'{"id":%d}' % (number % 30)
        if number == 77 and kind == "keyed":
            content = content[: content.index(b'{"id"')] + b"no JSON"
        data += len(content).to_bytes(4, "big") + content
    refused: Seen = []
    with server.log_on(f"publisher-{topic}") as peer:
        peer.socket.sendall(data)
        peer.send({"c": "flush", "cid": "f", "a": "persisted"})
        while (ack := peer.receive_header()).get("cid") != "f":
            if ack["status"] != "success":
                refused.append((ack["a"], ack.get("s"), ack["reason"]))
    with server.log_on("reader") as peer:
        return logged(peer, topic), refused


def logged(peer: RawPeer, topic: str) -> Seen:
    options = {"o": "deletions", "a": "completed"}
    peer.send({"c": "subscribe", "cid": "r", "sub_id": "r", "t": topic, "bm": "0"} | options)
    found: Seen = []
    while (message := peer.receive())[0]["c"] != "ack":
        header, body = message
        number = header["bm"].split("|")[1]
        key = header.get("k") if topic.startswith("given") else None  # others depend on the topic
        found.append((number, header.get("x"), key, header.get("e"), body))
    return found


@pytest.mark.parametrize("kind", ["keyed", "given", "log"])
def test_many_in_a_row(server: RunningServer, kind: str) -> None:
    """Marks, keys, lifetimes and refusals, in a topic of each kind."""
    one_by_one, together = (published(server, kind, way) for way in ("spaced", "compact"))
    assert together == one_by_one
    messages, refused = together
    assert len(messages) + len(refused) == 199
    assert [number for _, number, reason in refused if reason == "duplicate"] == [37, 77, 117, 157]
    assert ("2", "mark 2") in [(number, mark) for number, mark, *_ in messages]
