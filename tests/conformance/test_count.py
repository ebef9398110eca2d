"""subscribe with the option count: how much a replay would send."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.security.entitled import entitled_server
from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer
from tests.support.waiting import wait_until

LOG = """
<SOW>
  <Topic>
    <Name>keyed</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^(a|b|keyed|masked|fresh)$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Tuning><TransactionLog><TopicIndex>enabled</TopicIndex></TransactionLog></Tuning>
"""
DOCUMENTS = {
    "root": {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]},
    "ann": {
        "logon": True,
        "topic": [
            {"topic": "^a$", "read": "/id < 50"},
            {"topic": "^masked$", "read": True, "select": "-/secret"},
            {"topic": "^b$", "read": False},
        ],
    },
}
A_FEW = 300
COUNTED = {"o": "count", "a": "completed"}
MANY = 16_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A log of two files: mostly of b, some of a between them, and of others."""
    directory = tmp_path_factory.mktemp("counting")
    with entitled_server(directory, DOCUMENTS, elements=LOG) as running:
        with running.log_on("filler", user_id="root") as peer:
            many = frame({"c": "publish", "t": "b"}, b'{"fill":"%s"}' % (b"x" * 600))
            for number in range(A_FEW):
                peer.socket.sendall(many * (MANY // A_FEW))
                peer.send({"c": "publish", "t": "a"}, b'{"id":%d}' % number)
            for number in range(20):
                peer.send({"c": "publish", "t": "keyed"}, b'{"id":%d}' % (number % 3))
            peer.send({"c": "sow_delete", "t": "keyed", "filter": "/id = 1"})
            peer.send({"c": "publish", "t": "masked"}, b'{"id":1,"secret":"hush, hush"}')
            peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
        index = directory / "journal" / "test-instance.0000000000.topic.index"
        wait_until(index.exists, "the first journal is full")
        yield running


class Told(NamedTuple):
    """What a count has come to."""

    rows: int
    size: int
    begin: str
    end: str
    parts: list[tuple[str, int]]
    is_whole: bool


def count(
    server: RunningServer, topic: str, bookmark: str = "0", user: str = "root", **keys: Any
) -> Told:
    """Ask for a count; it is one ack."""
    with server.log_on("counter", user_id=user) as peer:
        ack = asked(peer, topic, bookmark, **keys)
    assert ack["status"] == "success", ack
    options = ack["opts"]

    def value(name: str) -> str:
        match = re.search(rf"(?:^|,){name}=(\[[^\]]*\]|[^,]*)", options)
        assert match is not None, options
        return match[1].strip("[]")

    parts = [part.rpartition(":") for part in value("parts").split(",")]
    return Told(
        int(ack["matches"]),
        int(value("bytes")),
        value("begin"),
        value("places"),
        [(place, int(rows)) for place, _, rows in parts],
        not options.endswith(",more"),
    )


def test_messages_of_a_moment_ago_are_counted(server: RunningServer) -> None:
    """Those of the commands before it, whether they are on stable storage yet or not."""
    with server.log_on("publisher", user_id="root") as peer:
        for number in range(1, 21):
            with peer.at_once():
                peer.publish("fresh", b'{"id":1}')
                peer.send({"c": "subscribe", "cid": "c", "t": "fresh", "bm": "0"} | COUNTED)
            assert int(peer.receive_header()["matches"]) == number


def asked(peer: RawPeer, topic: str, bookmark: str, **keys: Any) -> dict[str, Any]:
    """Ask for a count, and give the ack."""
    keys["o"] = ",".join(filter(None, ("count", keys.get("o"))))
    header = {"c": "subscribe", "cid": "c", "t": topic, "bm": bookmark, "a": "completed"}
    ack: dict[str, Any] = peer.ask(header | keys)
    return ack


def replayed(
    server: RunningServer, topic: str, bookmark: str, user: str = "root", **keys: Any
) -> list[bytes]:
    """The messages of a part of the log."""
    with server.log_on("reader", user_id=user) as peer:
        header = {"c": "subscribe", "cid": "r", "sub_id": "r", "t": topic, "bm": bookmark}
        peer.send(header | {"a": "completed"} | keys)
        bodies = []
        while (message := peer.receive())[0]["c"] == "p":
            bodies.append(message[1])
    return bodies


CASES: list[dict[str, Any]] = [
    {"topic": "a"},
    {"topic": "b"},
    {"topic": "keyed"},
    {"topic": "^[ab]$"},
    {"topic": "a", "f": "/id > 100"},
    {"topic": "^(a|keyed)$", "f": "/id = 2"},
    {"topic": "a", "f": "/id < 0"},
    {"topic": "a", "user": "ann"},
    {"topic": "a", "user": "ann", "f": "/id > 20"},
    {"topic": "masked"},
    {"topic": "masked", "user": "ann"},
    {"topic": "masked", "user": "ann", "f": "/secret LIKE 'hush'"},
    {"topic": "^(a|b|masked)$", "user": "ann"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_what_a_replay_sends(server: RunningServer, case: dict[str, Any]) -> None:
    """As many, and as long; also where the user may see some of it only."""
    case = dict(case)
    topic = case.pop("topic")
    told = count(server, topic, "[0:0|1|]", **case)
    bodies = replayed(server, topic, "[0:0|1|]", **case)
    assert (told.rows, told.size) == (len(bodies), sum(map(len, bodies)))
    assert told.is_whole
    assert replayed(server, topic, f"({told.begin}:{told.end}]", **case) == bodies
    assert count(server, topic, f"({told.end}:0|1|]", **case).rows == 0


@pytest.mark.parametrize("topic", ["a", "^[ab]$"])
@pytest.mark.parametrize("limit", [{"top_n": 7}, {"o": "count_bytes=100"}, {"f": "/id >= 0"}])
def test_parts_that_follow_on_one_another_are_all_of_it(
    server: RunningServer, topic: str, limit: dict[str, Any]
) -> None:
    """Each ends at the message that makes it as large as was asked for; four of them do."""
    wanted = {name: text for name, text in limit.items() if name == "f"}
    whole = replayed(server, topic, "[0:0|1|]", **wanted)
    end, bodies = "0", []
    for _ in range(4):
        told = count(server, topic, f"({end}:0|1|]", **limit)
        some = replayed(server, topic, f"({told.begin}:{told.end}]", **wanted)
        if "top_n" in limit:
            assert told.rows == 7
        if "o" in limit:
            assert told.size - len(some[-1]) < 100 <= told.size
        assert (told.rows, told.size) == (len(some), sum(map(len, some)))
        bodies += some
        end = told.end
    assert bodies == whole[: len(bodies)]


@pytest.mark.parametrize("topic", ["b", "^[ab]$"])
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_it_is_divided_into_parts_of_about_as_many(
    server: RunningServer, topic: str, parts: int
) -> None:
    told = count(server, topic, "[0:0|1|]", o=f"count_parts={parts}")
    assert len(told.parts) == parts
    assert sum(rows for _, rows in told.parts) == told.rows
    begin = told.begin
    for end, rows in told.parts:
        assert rows == pytest.approx(told.rows / parts, rel=0.15)
        assert len(replayed(server, topic, f"({begin}:{end}]")) == rows
        begin = end
    assert begin == told.end


def test_few_are_not_divided(server: RunningServer) -> None:
    told = count(server, "a", "[0:0|1|]", o="count_parts=4")
    assert [rows for _, rows in told.parts] == [A_FEW]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"t": "nowhere"}, "only messages of a transaction log can be counted"),
        ({"bm": None}, "only messages of a transaction log can be counted"),
        ({"t": "b", "user": "ann"}, "not entitled"),
        ({"bm": "7|7|", "o": "bookmark_not_found=fail"}, "bookmark not found"),
        ({"o": "live"}, "option live cannot be used here: it is no option of subscribe"),
        ({"o": "count_bytes=0"}, "expected a whole number from 1"),
        ({"o": "count_parts=1001"}, "expected no more than 1000"),
        ({"f": "/id ="}, "bad filter"),
    ],
    ids=str,
)
def test_what_cannot_be_counted(server: RunningServer, header: dict[str, Any], reason: str) -> None:
    keys = {"t": "a", "bm": "0"} | header
    with server.log_on("counter", user_id=keys.pop("user", "root")) as peer:
        keys = {name: value for name, value in keys.items() if value is not None}
        options = ",".join(filter(None, ("count", keys.get("o"))))
        ack = peer.ask(
            {"c": "subscribe", "cid": "c", "a": "processed,completed"} | keys | {"o": options}
        )
        assert ack["status"] == "failure"
        assert reason in json.dumps(ack)
        assert asked(peer, "a", "0")["status"] == "success"


def test_what_has_been_removed_of_the_log_is_not_counted(
    server: RunningServer, tmp_path: Path
) -> None:
    """A place before the first entry that there is ends there."""
    told = count(server, "a", "[0:0|1|]")
    log = told.begin.partition("|")[0]
    assert count(server, "a", f"({log}|1|:{log}|2|]").rows == 0
    assert replayed(server, "a", f"({log}|1|:{log}|2|]") == []
    assert count(server, "a", f"({log}|1|:0|1|]").rows == A_FEW
