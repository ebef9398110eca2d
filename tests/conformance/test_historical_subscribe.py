"""sow_and_subscribe as of a moment that is past: the records of then, and all changes since."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from tests.support.moments import now
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, module_server
from tests.support.sow import query

ELEMENTS = """
<SOW>
  <Topic>
    <Name>past</Name><MessageType>json</MessageType><Key>/id</Key><FileName>past.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>coarse</Name><MessageType>json</MessageType><Key>/id</Key><FileName>coarse.sow</FileName>
    <History><Window>1h</Window><Granularity>1h</Granularity></History>
  </Topic>
  <Topic>
    <Name>unlogged</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>unlogged.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>present</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>present.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(past|coarse|present)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


server = module_server(ELEMENTS)


def publish(peer: RawPeer, topic: str, id_: int, value: int) -> None:
    """Publish a state of a record, and wait until it is safe."""
    peer.send({"c": "publish", "t": topic}, b'{"id":%d,"v":%d}' % (id_, value))
    assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})["a"] == "persisted"


def historical(
    server: RunningServer, topic: str, bookmark: str, expected: int, **keys: Any
) -> tuple[list[int], list[int]]:
    """The values of the records of a moment, sorted, and those of the messages since."""
    with server.log_on(f"historian-{time.monotonic_ns()}") as peer:
        peer.send(
            {"c": "sow_and_subscribe", "cid": "h", "t": topic, "bm": bookmark, "bs": 1}
            | {"a": "processed,completed"}
            | keys
        )
        assert peer.receive_header()["status"] == "success"
        assert peer.receive_header()["c"] == "group_begin"
        records = []
        while (message := peer.receive())[0]["c"] == "sow":
            records.append(json.loads(message[1].partition(b"}")[2])["v"])
        assert message[0]["c"] == "group_end"
        assert peer.receive_header()["a"] == "completed"
        since = []
        for _ in range(expected):
            header, body = peer.receive()
            assert (header["c"], header["sids"]) == ("p", "h")
            assert "bm" in header
            assert "k" in header
            since.append(json.loads(body)["v"])
        with pytest.raises(TimeoutError):
            peer.receive(0.1)
    return sorted(records), since


@pytest.fixture(scope="module")
def moments(server: RunningServer) -> list[str]:
    """Moments before, between and after five states of two records, the first of which goes."""
    found = [now()]
    with server.log_on("publisher") as peer:
        for value in range(5):
            for topic in ("past", "coarse", "unlogged", "present"):
                publish(peer, topic, value % 2, value)
            found.append(now())
        peer.send({"c": "sow_delete", "t": "past", "f": "/id = 0"})
    return found


def test_the_state_of_a_moment_and_what_followed(server: RunningServer, moments: list[str]) -> None:
    """By time, by the bookmark of a message, and from the beginning."""
    assert historical(server, "past", moments[0], 5) == ([], [0, 1, 2, 3, 4])
    assert historical(server, "past", moments[1], 4) == ([0], [1, 2, 3, 4])
    assert historical(server, "past", moments[3], 2) == ([1, 2], [3, 4])
    assert historical(server, "past", moments[5], 0) == ([3, 4], [])
    assert historical(server, "past", "0", 5) == ([], [0, 1, 2, 3, 4])
    found = historical(server, "past", moments[2], 3, f="/v > 0", top_n=1, o="oof")
    assert found == ([1], [2, 3, 4])
    with server.log_on("marks") as peer:
        peer.subscribe("past", "all", bm="0")
        marks = [peer.receive()[0]["bm"] for _ in range(4)]
    assert historical(server, "past", marks[1], 3) == ([0, 1], [2, 3, 4])
    assert historical(server, "past", marks[2], 1, f="/id = 1") == ([1], [3])
    assert historical(server, "^pas", f"({moments[0]}:{moments[2]}]", 2) == ([], [0, 1])


def test_a_coarse_history_begins_earlier(server: RunningServer, moments: list[str]) -> None:
    """The state kept for a record is that of its first message; what is missing is replayed."""
    assert historical(server, "coarse", moments[3], 4) == ([0, 1], [1, 2, 3, 4])
    assert historical(server, "coarse", moments[5], 0) == ([3, 4], [])


def test_changes_come_after_the_replay(server: RunningServer, moments: list[str]) -> None:
    """As AMPS publishes them."""
    with server.log_on("follower") as peer, server.log_on("changer") as publisher:
        peer.send({"c": "sow_and_subscribe", "cid": "h", "t": "past", "bm": moments[3], "bs": 10})
        while peer.receive()[0]["c"] != "group_end":
            pass
        assert [json.loads(peer.receive()[1])["v"] for _ in range(2)] == [3, 4]
        publish(publisher, "past", 7, 7)
        assert json.loads(peer.receive()[1])["v"] == 7
        publish(publisher, "past", 7, 8)
        assert json.loads(peer.receive()[1])["v"] == 8
        publisher.send({"c": "sow_delete", "t": "past", "f": "/id = 7"})


def test_what_cannot_be_given_is_refused(server: RunningServer, moments: list[str]) -> None:
    """No log, deltas, unknown bookmarks; without a history the present is what there is."""
    for topic, command, bookmark, options, reason in (
        ("unlogged", "sow_and_subscribe", moments[1], "", "invalid bookmark"),
        ("past", "sow_and_delta_subscribe", moments[1], "", "invalid command"),
        ("past", "sow_and_subscribe", "yesterday", "", "invalid bookmark"),
        ("past", "sow_and_subscribe", "1|1|", "bookmark_not_found=fail", "bookmark not found"),
        ("past", "sow_and_subscribe", "0", "skip_n=1", "invalid option"),
        ("past", "sow_and_subscribe", "0", "top_n=1,skip_n=1,live", "invalid option"),
        ("past", "sow_and_subscribe", "0", "top_n=1,skip_n=1,conflation_key=[]", "invalid option"),
        ("^past$", "sow_and_subscribe", "0", "top_n=1,skip_n=1", "invalid option"),
        ("past", "sow", "1|1|", "", "bookmark not found"),
        ("past", "sow", "yesterday", "", "invalid bookmark"),
        ("past", "sow", "[0:0|1|]", "", "invalid bookmark"),
        ("unlogged", "sow", "1|1|", "", "invalid bookmark"),
    ):
        with server.log_on(f"refused-{command}-{reason}") as peer:
            header = {"c": command, "cid": "h", "t": topic, "bm": bookmark, "o": options}
            ack = peer.ask(header | {"a": "processed"})
            assert (ack["status"], ack["reason"]) == ("failure", reason)
    with server.log_on("present") as peer:
        peer.send({"c": "sow_and_subscribe", "cid": "h", "t": "present", "bm": moments[1]})
        assert peer.receive_header()["c"] == "group_begin"
        assert [peer.receive()[0]["c"] for _ in range(3)] == ["sow", "sow", "group_end"]


def test_messages_that_came_together_are_told_apart_by_their_bookmarks(
    server: RunningServer, moments: list[str]
) -> None:
    """A query gives the state that one of them left, whether a subscription follows or not."""
    with server.log_on("burst") as peer:
        peer.socket.sendall(
            b"".join(
                frame({"c": "p", "t": "past"}, b'{"id":8,"v":%d}' % value) for value in range(4)
            )
        )
        peer.flush()
        peer.subscribe("past", "marks", bm=moments[-1], f="/id = 8")
        marks = [peer.receive()[0]["bm"] for _ in range(4)]
        peer.send({"c": "unsubscribe", "sub_id": "marks"})
        peer.flush()
        for value, mark in enumerate(marks):
            found = query(peer, "past", bm=mark, f="/id = 8")
            assert found.messages == [{"id": 8, "v": value}]
            options = "projection=[SUM(/v) AS /s],grouping=[/id]"
            assert query(peer, "past", bm=mark, f="/id = 8", o=options).messages == [{"s": value}]
            later = list(range(value + 1, 4))
            assert historical(server, "past", mark, 3 - value, f="/id = 8") == ([value], later)
        peer.send({"c": "sow_delete", "t": "past", "f": "/id = 8"})
        peer.flush()


@pytest.fixture(scope="module")
def pages(server: RunningServer, moments: list[str]) -> tuple[str, random.Random]:
    """A moment at which there were some records of their own value 0, and many changes since."""
    source = random.Random(3)
    with server.log_on("pages") as peer:
        for step in range(200):
            if step == 40:
                peer.flush()
                middle = now()
            number = 100 + source.randrange(30)
            if source.random() < 0.2:
                peer.send({"c": "sow_delete", "t": "past", "f": f"/id = {number}"})
            elif source.random() < 0.3:
                peer.send({"c": "delta_publish", "t": "past"}, b'{"id":%d,"w":%d}' % (number, step))
            else:
                body = b'{"id":%d,"v":%d}' % (number, source.randrange(20))
                peer.send({"c": "publish", "t": "past"}, body)
        peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
    return middle, source


@pytest.mark.parametrize(
    ("filter_", "order", "top_n", "skip_n", "more"),
    [
        ("/id >= 100", "/v,/id", 5, 0, ""),
        ("/id >= 100", "/v DESC", 4, 3, ""),
        ("/id >= 100 AND /v > 9", "/id", 3, 2, ""),
        ("/id >= 100 AND /v IS NULL", "", 100, 0, ""),
        ("/id >= 100", "/w,/id DESC", 7, 5, ",conflation=100ms"),
        ("/id >= 100", "/v,/id", 0, 0, ""),
    ],
)
def test_a_page_of_the_past_becomes_that_of_the_present(
    server: RunningServer,
    pages: tuple[str, random.Random],
    filter_: str,
    order: str,
    top_n: int,
    skip_n: int,
    more: str,
) -> None:
    """It begins with the records of then; what comes and goes since leads to those of now."""
    middle, source = pages
    options = f"top_n={top_n},skip_n={skip_n}"
    terms = {"f": filter_, "orderby": order}
    asked = {"t": "past", "cid": "h", "bm": middle, "o": f"oof,{options}{more}", "bs": 1} | terms
    with server.log_on("reader") as peer, server.log_on("changer") as changer:
        then = query(changer, "past", bm=middle, o=options if order else None, **terms)
        peer.send({"c": "sow_and_subscribe"} | asked)
        page: dict[str, bytes] = {}
        assert peer.receive()[0]["c"] == "group_begin"
        while (message := peer.receive())[0]["c"] == "sow":
            keys, _, record = message[1].partition(b"}")
            page[json.loads(keys + b"}")["k"]] = record
        assert sorted(page.values()) == sorted(then.bodies)
        for _ in range(3):
            body = b'{"id":%d,"v":%d}' % (100 + source.randrange(30), source.randrange(20))
            changer.send({"c": "publish", "t": "past"}, body)
        changer.flush()
        present = query(changer, "past", o=options if order else None, **terms).bodies
        while sorted(page.values()) != sorted(present):
            header, body = peer.receive()
            if header["c"] == "oof":
                assert page.pop(header["k"]) is not None
            else:
                page[header["k"]] = body


def test_a_page_of_the_past_stays_one(server: RunningServer, moments: list[str]) -> None:
    """Nothing takes its place, nor does it take that of anything else; its end ends it."""
    with server.log_on() as peer:
        asked = {"c": "sow_and_subscribe", "t": "past", "a": "processed", "o": "top_n=0,skip_n=0"}
        past = asked | {"bm": moments[1]}
        assert peer.ask(past | {"cid": "h"})["status"] == "success"
        assert [peer.receive()[0]["c"] for _ in range(2)] == ["group_begin", "group_end"]
        replacing = {"cid": "h", "o": "replace,top_n=0,skip_n=0"}
        for command in (past, asked, asked | {"c": "subscribe"}):
            assert peer.ask(command | replacing)["reason"] == "invalid option"
        peer.send({"c": "unsubscribe", "sub_id": "h"})
        peer.flush()
        assert peer.ask(past | {"cid": "h"})["status"] == "success"
