"""Bookmark subscriptions at the end of the log: together, live, falling behind."""

from __future__ import annotations

import json
import random
import threading
import time

import pytest

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, module_server

ELEMENTS = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory>
  <JournalSize>10MB</JournalSize>
  <Topic><Name>^(orders|log-.*)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


server = module_server(ELEMENTS)


def publish(peer: RawPeer, topic: str, numbers: range, *, wait: bool = True) -> None:
    """Publish numbered messages, and wait until they are safe."""
    frames = [frame({"c": "publish", "t": topic}, b'{"id":%d}' % number) for number in numbers]
    peer.socket.sendall(b"".join(frames))
    if wait:
        assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})["a"] == "persisted"


def receive(peer: RawPeer, count: int) -> list[tuple[str, int]]:
    """The next messages: ids of subscriptions, and numbers."""
    got = []
    for _ in range(count):
        header, body = peer.receive()
        assert header["c"] == "p", header
        assert header["bm"].count("|") == 2
        got.append((header["sids"], json.loads(body)["id"]))
    return got


def numbers(got: list[tuple[str, int]]) -> list[int]:
    """The numbers of messages."""
    return [number for _, number in got]


@pytest.mark.parametrize("options", ["", "live", "fully_durable"])
def test_all_get_everything_in_order_however_they_read(server: RunningServer, options: str) -> None:
    """Readers that start at any time, read in bursts, pause and come back miss nothing."""
    topic = f"log-all-{options}"
    total, readers = 4000, 6
    body = b'{"id":%d,"fill":"' + b"x" * 2000 + b'"}'
    chance = random.Random(options)

    def run() -> None:
        with server.log_on(f"all-{options}") as peer:
            for start in range(0, total, 50):
                chunk = (
                    frame({"c": "publish", "t": topic}, body % n) for n in range(start, start + 50)
                )
                peer.socket.sendall(b"".join(chunk))
                time.sleep(0.002)
            peer.ask({"c": "flush", "cid": "f", "a": "persisted"})

    failures: list[str] = []

    def read(number: int) -> None:
        with server.log_on(f"all-{options}-{number}") as peer:
            assert peer.subscribe(topic, "r", bm="0", o=options)["status"] == "success"
            naps = sorted(chance.sample(range(total), 5 if number % 2 else 0))
            for expected in range(total):
                if naps and expected == naps[0]:
                    naps.pop(0)
                    time.sleep(0.1)
                _, got = peer.receive()
                if not got.startswith(b'{"id":%d,' % expected):
                    failures.append(f"reader {number} got {got[:20]!r} for {expected}")
                    return

    publisher = threading.Thread(target=run)
    publisher.start()
    threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in (publisher, *threads):
        thread.join()
    assert failures == []


def test_those_who_have_caught_up_are_told_what_their_filters_match(server: RunningServer) -> None:
    """Each by its own topics, filter and form, whether it comes early or late."""
    with server.log_on("tail-publisher") as publisher, server.log_on("tail") as peer:
        forms = {
            "odd": ("log-t1", {"f": "/id % 2 = 1"}),
            "regex": ("^log-t", {}),
            "cut": ("log-t1", {"o": "select=[-/id]"}),
            "stamped": ("log-t2", {"o": "timestamp"}),
        }
        for sub_id, (topic, keys) in forms.items():
            ack = peer.subscribe(topic, sub_id, bm="0|1|", a="processed", **keys)
            assert ack["status"] == "success"
        for number in (1, 2):
            publish(publisher, "log-t1", range(number, number + 1))
            publish(publisher, "log-t2", range(number + 10, number + 11))
        got: dict[str, list[str]] = {}
        stamps = 0
        for _ in range(8):
            header, body = peer.receive()
            got.setdefault(header["sids"], []).append(body.decode())
            stamps += "ts" in header
        assert got == {
            "odd,regex": ['{"id":1}'],
            "regex": ['{"id":11}', '{"id":2}', '{"id":12}'],
            "cut": ["{}", "{}"],
            "stamped": ['{"id":11}', '{"id":12}'],
        }
        assert stamps == 2
        peer.send({"c": "unsubscribe", "sub_id": "regex"})
        publish(publisher, "log-t1", range(3, 4))
        assert sorted(receive(peer, 1)) == [("odd", 3)]


def test_live_and_fully_durable_are_modes_of_their_own(server: RunningServer) -> None:
    """For topics in the log only; what is live cannot be paused."""
    with (
        server.log_on("live-publisher") as publisher,
        server.log_on("live") as live,
        server.log_on("safe") as safe,
    ):
        for sub_id, topic in (("a", "log-live"), ("o", "orders"), ("x", "^log-l")):
            ack = live.subscribe(topic, sub_id, bm="0", o="live", a="processed,completed")
            assert ack["status"] == "success"
            assert live.receive_header()["a"] == "completed"
        safe.subscribe("log-live", "s", bm="0", o="fully_durable")
        publish(publisher, "log-live", range(1))
        publish(publisher, "orders", range(5, 6))
        publish(publisher, "not-log-live", range(9, 10))
        assert receive(live, 2) == [("a,x", 0), ("o", 5)]
        assert receive(safe, 1) == [("s", 0)]
        for option in ("pause", "resume"):
            ack = live.ask({"c": "subscribe", "sub_id": "a", "o": option, "a": "processed"})
            assert ack["reason"] == "invalid option", option
        live.send({"c": "unsubscribe", "sub_id": "a"})
        publish(publisher, "log-live", range(1, 2))
        assert receive(live, 1) == [("x", 1)]
