"""Bookmark subscriptions: replay from the transaction log, and what is published meanwhile."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.support.raw import QUICK_ACKS, RawPeer, frame
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


def publish(peer: RawPeer, topic: str, numbers: range) -> None:
    """Publish numbered messages, and wait until they are safe."""
    for number in numbers:
        peer.send({"c": "publish", "t": topic}, b'{"id":%d}' % number)
    assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})["a"] == "persisted"


def receive(peer: RawPeer, count: int) -> list[tuple[int, str]]:
    """The next messages: their numbers and bookmarks."""
    got = []
    for _ in range(count):
        header, body = peer.receive()
        assert header["c"] == "p", header
        got.append((json.loads(body)["id"], header["bm"]))
    return got


def replayed(
    server: RunningServer, topic: str, bookmark: str, **keys: Any
) -> list[tuple[int, str]]:
    """What a subscription with a bookmark gets up to its completed ack."""
    with server.log_on(f"reader-{time.monotonic_ns()}") as peer:
        peer.send(
            {"c": "subscribe", "cid": "r", "sub_id": "r", "t": topic, "bm": bookmark}
            | {"a": "processed,completed"}
            | keys
        )
        ack = peer.receive_header()
        assert (ack["a"], ack["status"]) == ("processed", "success"), ack
        got: list[tuple[int, str]] = []
        while True:
            header, body = peer.receive()
            if header["c"] == "ack":
                assert (header["a"], header["sub_id"]) == ("completed", "r")
                return got
            got.append((json.loads(body)["id"], header["bm"]))


def numbers(got: list[tuple[int, str]]) -> list[int]:
    """The messages' numbers."""
    return [number for number, _ in got]


@pytest.fixture(scope="module")
def history(server: RunningServer) -> list[tuple[int, str]]:
    """Ten messages of the topic log-h, as they were replayed from the beginning."""
    with server.log_on("historian") as peer:
        publish(peer, "log-h", range(10))
    return replayed(server, "log-h", "0")


def test_the_beginning_the_end_and_places_between(
    server: RunningServer, history: list[tuple[int, str]]
) -> None:
    """EPOCH, NOW, a bookmark, a list, an unknown one, a moment."""
    marks = [bookmark for _, bookmark in history]
    assert numbers(history) == list(range(10))
    assert len(set(marks)) == 10
    cases = {
        "0": range(10),
        "0|1|": range(0),
        marks[3]: range(4, 10),
        f"{marks[7]},{marks[5]}": range(6, 10),
        f"12|34|,{marks[8]}": range(9, 10),
        "12|34|": range(0),
        "20200101T000000Z": range(10),
        "20990101T000000": range(0),
    }
    for bookmark, expected in cases.items():
        assert numbers(replayed(server, "log-h", bookmark)) == list(expected), bookmark


def test_ranges_end(server: RunningServer, history: list[tuple[int, str]]) -> None:
    """With and without the messages that they name; nothing comes after the end."""
    marks = [bookmark for _, bookmark in history]
    cases = {
        f"[{marks[2]}:{marks[5]}]": range(2, 6),
        f"({marks[2]}:{marks[5]})": range(3, 5),
        f"[0:{marks[1]}]": range(2),
        "[20200101T000000:20200102T000000)": range(0),
    }
    for bookmark, expected in cases.items():
        assert numbers(replayed(server, "log-h", bookmark)) == list(expected), bookmark


def test_what_to_do_when_no_bookmark_is_found(
    server: RunningServer, history: list[tuple[int, str]]
) -> None:
    """Begin at the beginning, at the end, or not at all."""
    assert replayed(server, "log-h", "1|2|", o="bookmark_not_found=epoch") == history
    assert replayed(server, "log-h", "1|2|", o="bookmark_not_found=now") == []
    with server.log_on("finder") as peer:
        ack = peer.subscribe("log-h", "x", bm="1|2|", o="bookmark_not_found=fail")
        assert (ack["status"], ack["reason"]) == ("failure", "bookmark not found")
        for keys, reason in (
            ({"bm": "yesterday"}, "invalid bookmark"),
            ({"bm": "0", "o": "conflation=1s"}, "invalid option"),
            ({"bm": "0", "o": "conflation=1s,conflation_key=[id"}, "invalid option"),
            ({"bm": "0", "o": "live,fully_durable"}, "invalid option"),
            ({"bm": "0", "o": "live,rate=5"}, "invalid option"),
            ({"bm": "0", "o": "rate=fast"}, "invalid option"),
            ({"bm": "0|1|", "top_n": 2}, "invalid option"),
        ):
            assert peer.subscribe("log-h", "x", **keys)["reason"] == reason, keys


def test_filters_select_lists_timestamps_and_counts(
    server: RunningServer, history: list[tuple[int, str]]
) -> None:
    """A replay presents messages as any subscription does."""
    assert numbers(replayed(server, "log-h", "0", f="/id >= 8")) == [8, 9]
    assert replayed(server, "log-h", "0", top_n=3) == history[:3]
    with server.log_on("form") as peer:
        options = "timestamp,send_empties,select=[-/,+/id]"
        peer.subscribe("log-h", "s", bm="0", o=options, f="/id = 4")
        header, body = peer.receive()
        assert (json.loads(body), header["sids"]) == ({"id": 4}, "s")
        assert len(header["ts"]) == len("20261120T192011.518031Z")


def test_a_regular_expression_stands_for_recorded_topics(server: RunningServer) -> None:
    """In the order of the log, before and after the replay has caught up."""
    with server.log_on("patterns") as peer, server.log_on("patterns-2") as reader:
        publish(peer, "log-x1", range(1))
        publish(peer, "not-log-x1", range(5, 6))
        publish(peer, "log-x2", range(1, 2))
        reader.subscribe("^.*log-x", "r", bm="0")
        assert numbers(receive(reader, 2)) == [0, 1]
        publish(peer, "not-log-x1", range(6, 7))
        publish(peer, "log-x3", range(2, 3))
        assert numbers(receive(reader, 1)) == [2]


def test_records_are_replayed_as_they_were_delivered(server: RunningServer) -> None:
    """A delta is the merged message, with the SOW key; deletions are no messages."""
    with server.log_on("recorder") as peer:
        peer.subscribe("orders", "live", o="bookmark")
        peer.send({"c": "publish", "t": "orders"}, b'{"id":1,"v":1}')
        peer.send({"c": "delta_publish", "t": "orders", "x": "mark"}, b'{"id":1,"w":2}')
        live = [peer.receive() for _ in range(2)]
        peer.send({"c": "sow_delete", "t": "orders", "f": "1=1"})
        peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
        peer.subscribe("orders", "old", bm="0")
        again = [peer.receive() for _ in range(2)]
    assert json.loads(live[1][1]) == {"id": 1, "v": 1, "w": 2}
    for header, _ in live + again:
        header.pop("sids")
    assert again == live


def test_nothing_is_lost_or_comes_twice_between_replay_and_live(server: RunningServer) -> None:
    """Subscribers that begin while messages are published get every one of them, in order."""
    total = 4000

    def run() -> None:
        with server.log_on("stream") as peer:
            for start in range(0, total, 50):
                chunk = (
                    frame({"c": "publish", "t": "log-seam", "s": n + 1}, b'{"id":%d}' % n)
                    for n in range(start, start + 50)
                )
                peer.socket.sendall(b"".join(chunk))
                time.sleep(0.001)
            peer.ask({"c": "flush", "cid": "f", "a": "persisted"})

    publisher = threading.Thread(target=run)
    publisher.start()
    peers = []
    for number in range(8):
        peer = server.log_on(f"seam-{number}")
        peer.subscribe("log-seam", "s", bm="0")
        peers.append(peer)
        time.sleep(0.01)
    for peer in peers:
        assert numbers(receive(peer, total)) == list(range(total))
        peer.socket.close()
    publisher.join()


def test_a_range_can_end_in_the_future(server: RunningServer) -> None:
    """What comes until then is delivered, then the replay is complete."""
    with server.log_on("future") as peer, server.log_on("future-2") as reader:
        end = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() + 3))
        reader.subscribe("log-f", "r", bm=f"[0:{end})", a="processed,completed")
        publish(peer, "log-f", range(3))
        assert numbers(receive(reader, 3)) == [0, 1, 2]
        assert reader.receive_header()["a"] == "completed"
        publish(peer, "log-f", range(3, 4))
        with pytest.raises(TimeoutError):
            reader.receive(0.2)


def test_pause_and_resume(server: RunningServer, history: list[tuple[int, str]]) -> None:
    """A replay goes on where it was paused; it can begin paused."""
    with server.log_on("pauser") as peer:
        for sub_id in ("a", "b"):
            assert peer.subscribe("log-h", sub_id, bm="0", o="pause")["status"] == "success"
        with pytest.raises(TimeoutError):
            peer.receive(0.2)
        for sub_id in ("a", "b"):
            peer.send({"c": "subscribe", "cid": "c", "sub_id": sub_id, "o": "resume"})
        got = [peer.receive() for _ in range(20)]
        for sub_id in ("a", "b"):
            mine = [json.loads(body)["id"] for header, body in got if header["sids"] == sub_id]
            assert mine == list(range(10))
        ack = peer.ask({"c": "subscribe", "sub_id": "x", "o": "resume", "a": "processed"})
        assert ack["reason"] == "invalid subscription id"


def test_a_rate_holds_messages_back(server: RunningServer, history: list[tuple[int, str]]) -> None:
    """Ten messages at fifty a second take a fifth of a second, and come all the same."""
    assert replayed(server, "log-h", "0", o="rate=50") == history
    assert replayed(server, "log-h", "0", o="rate=1KB") == history
    assert replayed(server, "log-h", "0", o="rate=0.001X,rate_max_gap=10ms") == history


def test_a_bookmark_subscriber_hears_how_far_the_log_is_safe(server: RunningServer) -> None:
    """Also when nothing matches its filter."""
    with server.log_on("safe") as peer, server.log_on("safe-2") as reader:
        reader.subscribe("log-s", "r", bm="0|1|", f="/id = 99", a="processed,persisted")
        publish(peer, "log-s", range(1))
        ack = reader.receive_header()
        assert (ack["a"], ack["sub_id"]) == ("persisted", "r")
        assert ack["bm"].count("|") == 2


def places(ack: dict[str, Any]) -> str:
    """Where a subscription can go on, as an ack tells."""
    options: str = ack["opts"]
    assert options.startswith("places=[")
    return options.removeprefix("places=[").removesuffix("]")


def test_acks_tell_the_place_in_the_log(peer: RawPeer, server: RunningServer) -> None:
    """Also before any message has come; whoever resumes there gets what comes behind it, once."""
    publish(peer, "log-p", range(1))
    peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
    with server.log_on("reader", a="processed", o=QUICK_ACKS) as reader:
        acks = "processed,persisted"
        begin = places(reader.subscribe("log-p", "r", bm="0|1|", f="/id = 2", a=acks, o="places"))
        publish(peer, "log-p", range(1, 4))
        header, _ = reader.receive()
        while header["c"] == "ack":
            header, _ = reader.receive()
        assert header["c"] == "p"
        end = begin
        while end == begin:
            end = places(reader.receive_header())
    with server.log_on("again", a="processed") as reader:
        reader.subscribe("log-p", "r", bm=f"0,{begin}")  # beside a place, nothing else counts
        assert numbers(receive(reader, 3)) == [1, 2, 3]
    with server.log_on("late", a="processed") as reader:
        ack = reader.subscribe("log-p", "r", bm=f"{end},{header['bm']}")
        assert "opts" not in ack, "who has not asked is told nothing"
        publish(peer, "log-p", range(4, 5))
        later = numbers(receive(reader, 1))
        while later[-1] < 4:
            later += numbers(receive(reader, 1))
        assert later[-1] == 4
        assert later[0] > 2, "what has been sent does not come again"


def test_a_slow_reader_gets_everything(server: RunningServer) -> None:
    """The log is read at its pace, and nothing is kept for it in memory."""
    body = b'{"id":%d,"fill":"' + b"x" * 20_000 + b'"}'
    with server.log_on("bulk") as peer, server.log_on("slow") as reader:
        for number in range(500):
            peer.send({"c": "publish", "t": "log-slow"}, body % number)
        peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
        reader.subscribe("log-slow", "r", bm="0")
        time.sleep(0.2)
        assert numbers(receive(reader, 500)) == list(range(500))
