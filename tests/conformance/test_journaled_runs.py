"""Publishes sent together are recorded together, and mean what they mean alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.test_journal import ELEMENTS
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, module_server
from tests.support.sow import query

TOPICS = ("events", "orders", "quotes")
NUMBERS = [*range(1, 21), 5, 6, *range(21, 31), 21, *range(40, 60)]
"""With some that come twice."""
NEW = [*range(1, 31), *range(40, 60)]
COPY = """
  <ConflatedTopic>
    <Name>copy</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Interval>100ms</Interval>
  </ConflatedTopic>
</SOW>
"""


server = module_server(ELEMENTS.replace("</SOW>", COPY))


def receive(peer: RawPeer, count: int) -> list[dict[str, Any]]:
    """The headers of so many frames."""
    return [peer.receive()[0] for _ in range(count)]


def body(number: int) -> bytes:
    """Bodies of several lengths, of a few records."""
    return json.dumps({"id": number % 7, "n": number, "pad": "x" * (number % 5)}).encode()


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("options", ["", "bookmark", "timestamp"])
def test_a_run_is_recorded_delivered_and_acknowledged_in_order(
    server: RunningServer, topic: str, options: str
) -> None:
    """Duplicates within it are refused, and split the acks."""
    name = f"runner-{topic}-{options}"
    with server.log_on(f"subscriber-{name}") as subscriber, server.connect() as peer:
        keys = {"o": options} if options else {}
        subscriber.subscribe(topic, "s", **keys)
        subscriber.subscribe(topic, "filtered", f="/n = 44", **keys)
        logon = {"c": "logon", "cid": "1", "client_name": name, "mt": "json", "a": "processed"}
        assert peer.ask(logon | {"o": "ack_conflation=1ms"})["status"] == "success"
        command = {"c": "publish", "t": topic, "a": "processed,persisted"}
        frames = [frame(command | {"s": number}, body(number)) for number in NUMBERS]
        peer.socket.sendall(b"".join(frames))
        acks: list[dict[str, Any]] = []
        while not acks or acks[-1].get("s") != 59 or acks[-1]["a"] != "persisted":
            acks.append(peer.receive_header())
        processed = [ack for ack in acks if ack["a"] == "processed"]
        assert [ack["s"] for ack in processed if ack["status"] == "success"] == NEW
        refused = [(ack["s"], ack["reason"]) for ack in processed if ack["status"] == "failure"]
        assert refused == [(5, "duplicate"), (6, "duplicate"), (21, "duplicate")]
        persisted = [(ack["s"], ack["status"]) for ack in acks if ack["a"] == "persisted"]
        failed = [number for number, status in persisted if status == "failure"]
        assert failed == [5, 6, 21]
        safe = [number for number, status in persisted if status == "success"]
        assert safe == sorted(safe)
        assert persisted.index((5, "failure")) > persisted.index((20, "success"))
        got = [subscriber.receive() for _ in NEW]
        assert [json.loads(content)["n"] for _, content in got] == NEW
        both = [header for header, content in got if json.loads(content)["n"] == 44]
        assert sorted(both[0]["sids"].split(",")) == ["filtered", "s"]
        if options == "bookmark":
            assert [header["bm"].split("|")[1] for header, _ in got] == [str(n) for n in NEW]
    check_replay(server, topic, name)


def check_replay(server: RunningServer, topic: str, name: str) -> None:
    """The log has all of a publisher's messages, once and in order; the records are the last."""
    with server.connect() as peer:
        last = peer.log_on(name)
        assert last["s"] == 59
        mine = last["bm"].split("|")[0]
    with server.log_on(f"reader-{name}") as peer:
        peer.send({"c": "subscribe", "sub_id": "r", "t": topic, "bm": "0", "a": "completed"})
        numbers: list[int] = []
        while (answer := peer.receive())[0]["c"] != "ack":
            client, sequence, _ = answer[0]["bm"].split("|")
            if client == mine:
                assert answer[1] == body(int(sequence))
                numbers.append(int(sequence))
        assert numbers == NEW
        if topic != "events":
            records = {record["id"]: record["n"] for record in query(peer, topic).messages}
            assert records == {number % 7: number for number in NEW}


def test_a_run_without_numbers(server: RunningServer) -> None:
    """Every message has a bookmark of its own, with and without a subscriber who asks for it."""
    with server.log_on("numberless") as peer:
        peer.socket.sendall(frame({"c": "publish", "t": "events/n"}, b'{"n":1}') * 30)
        peer.send({"c": "flush", "cid": "f", "a": "persisted"})
        peer.receive_header()
        peer.subscribe("events/n", "s", o="bookmark")
        peer.socket.sendall(frame({"c": "publish", "t": "events/n"}, b'{"n":2}') * 30)
        live = [peer.receive()[0]["bm"] for _ in range(30)]
        command = {"c": "subscribe", "sub_id": "r", "t": "events/n", "bm": "0", "a": "completed"}
        peer.send(command)
        replayed = [header["bm"] for header in receive(peer, 60)]
        assert replayed[30:] == live
        assert len(set(replayed)) == 60


def test_a_run_over_topics_is_acknowledged_up_to_its_last(server: RunningServer) -> None:
    """Topics that are recorded, stored aside and not stored, mixed in one piece."""
    with server.connect() as peer:
        logon = {"c": "logon", "cid": "1", "client_name": "mixed", "mt": "json", "a": "processed"}
        assert peer.ask(logon | {"o": "ack_conflation=1ms"})["status"] == "success"
        topics = [topic for topic in ("events", "aside", "nowhere", "orders") for _ in range(20)]
        pieces = [
            frame({"c": "publish", "t": topic, "s": number, "a": "persisted"}, body(number))
            for number, topic in enumerate(topics, 1)
        ]
        peer.socket.sendall(b"".join(pieces))
        last = 0
        while last < len(topics):
            ack = peer.receive_header()
            assert (ack["a"], ack["status"]) == ("persisted", "success")
            assert ack["s"] > last
            last = ack["s"]


@pytest.mark.parametrize(
    ("topic", "keys"),
    [
        ("orders", {"o": "bookmark,conflation=100ms"}),
        ("orders", {"c": "delta_subscribe", "o": "bookmark,conflation=100ms"}),
        ("copy", {"o": "bookmark"}),
        ("copy", {"o": "bookmark,conflation=100ms"}),
        ("events", {"o": "bookmark,conflation=100ms,conflation_key=[/id]"}),
    ],
)
def test_conflated_messages_of_a_run_keep_their_bookmarks(
    server: RunningServer, topic: str, keys: dict[str, str]
) -> None:
    """Each has that of its own message, not that of the run's last."""
    with server.log_on("conflated") as subscriber, server.log_on("conflating") as peer:
        subscriber.subscribe(topic, "s", f="/id > 1000", **keys)
        command = {"c": "publish", "t": "orders" if topic == "copy" else topic}
        bodies = [b'{"id":%d}' % (1001 + position) for position in range(4)]
        peer.socket.sendall(b"".join(frame(command, body) for body in bodies))
        got = [subscriber.receive() for _ in bodies]
        assert [content for _, content in got] == bodies
        numbers = [int(header["bm"].split("|")[1]) for header, _ in got]
        assert [number - numbers[0] for number in numbers] == [0, 1, 2, 3]
