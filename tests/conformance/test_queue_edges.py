"""Queues where they meet other commands, other topics, and clients that come late or come back."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.queues import bookmarks, consume, done, elements, numbers, put, take
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.sow import query, receive_group
from tests.support.waiting import wait_until

QUEUES: dict[str, dict[str, str | int]] = {
    "many-1": {},
    "many-2": {},
    "narrowed": {},
    "both-1": {},
    "both-2": {"MaxPerSubscriptionBacklog": 1},
    "counted": {},
    "left": {},
    "strict": {"Leasing": "strict"},
    "sublet": {},
    "ended-1": {},
    "ended-2": {},
    "replayed": {},
    "kept": {},
}

TOPICS = """
<Topic>
  <Name>many-records</Name><MessageType>json</MessageType><Key>/n</Key>
  <Durability>transient</Durability>
</Topic>
<Topic>
  <Name>kept-records</Name><MessageType>json</MessageType><Key>/n</Key>
  <Durability>transient</Durability>
</Topic>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server; each test has queues of its own."""
    text = elements(QUEUES, TOPICS) + "<SOWStatsInterval>200ms</SOWStatsInterval>"
    with running_server(tmp_path_factory.mktemp("server"), elements=text) as running:
        yield running


def test_a_query_over_several_queues(server: RunningServer, peer: RawPeer) -> None:
    """And topics with records, as one group in the order of the configuration; it takes nothing."""
    put(server, "in-many-1", [1, 2])
    put(server, "in-many-2", [3, 4])
    put(server, "many-records", [5])
    consume(peer, "many-2", 1)
    take(peer, 1)
    with server.log_on("other") as other:
        for keys, expected in (
            ({}, [("many-1", 1), ("many-1", 2), ("many-2", 4), ("many-records", 5)]),
            ({"filter": "/n > 1 AND /n < 5"}, [("many-1", 2), ("many-2", 4)]),
            ({"top_n": 3}, [("many-1", 1), ("many-1", 2), ("many-2", 4)]),
            ({"top_n": 1, "o": "skip_n=2"}, [("many-2", 4)]),
            (
                {"orderby": "/n DESC"},
                [("many-1", 2), ("many-1", 1), ("many-2", 4), ("many-records", 5)],
            ),
        ):
            group = query(other, "^many-", **keys)
            found = [(header["t"], json.loads(body)["n"]) for header, body in group.records]
            assert found == expected, keys
        assert query(other, "^many-").messages == query(other, "^many-").messages


def test_a_query_and_consuming_several_queues(server: RunningServer, peer: RawPeer) -> None:
    """The backlog is one, and the least of all."""
    put(server, "in-both-1", [1])
    put(server, "in-both-2", [2, 3])
    command = {"c": "sow_and_subscribe", "cid": "s", "sub_id": "s", "t": "^both-"}
    ack = peer.ask(command | {"o": "max_backlog=5", "a": "processed"})
    assert (ack["status"], ack["opts"]) == ("success", "max_backlog=1")
    assert [json.loads(body)["n"] for _, body in receive_group(peer).records] == [1, 2, 3]
    worked: list[int] = []
    for _ in range(3):
        (message,) = take(peer, 1)
        worked += numbers([message])
        assert done(peer, message[0]["t"], bm=message[0]["bm"]) == 1
    assert sorted(worked) == [1, 2, 3]
    assert peer.hears_nothing()


def test_a_query_and_consuming_is_replaced(server: RunningServer, peer: RawPeer) -> None:
    """What it has, it keeps; what is shown anew is what it did not ask for before."""
    put(server, "in-narrowed", range(6))
    command = {
        "c": "sow_and_subscribe",
        "cid": "s",
        "sub_id": "s",
        "t": "narrowed",
        "a": "processed",
    }
    assert peer.ask(command | {"o": "max_backlog=2", "filter": "/n < 4"})["status"] == "success"
    assert [json.loads(body)["n"] for _, body in receive_group(peer).records] == [0, 1, 2, 3]
    held = take(peer, 2)
    assert numbers(held) == [0, 1]
    ack = peer.ask(command | {"o": "replace,max_backlog=2", "filter": "/n > 1"})
    assert ack["opts"] == "max_backlog=2"
    assert [json.loads(body)["n"] for _, body in receive_group(peer).records] == [4, 5]
    assert peer.hears_nothing()
    assert done(peer, "narrowed", bm=bookmarks(held)) == 2
    assert numbers(take(peer, 2)) == [2, 3]


def statistics(peer: RawPeer, topic: str) -> int:
    """The number of records that the next statistics of a topic tell."""
    while True:
        _, body = peer.receive()
        stats = json.loads(body)["SOWStats"]
        if stats["topic"] == topic:
            return int(stats["record_count"])


def test_statistics_count_what_is_available(server: RunningServer, peer: RawPeer) -> None:
    """As a query would show it: neither what somebody has nor what has gone."""
    put(server, "in-counted", range(5))
    with server.log_on("watcher") as watcher:
        watcher.subscribe("/AMPS/SOWStats", "stats")
        while statistics(watcher, "counted") != 5:
            pass
        consume(peer, "counted", 2)
        messages = take(peer, 2)
        while statistics(watcher, "counted") != 3:
            pass
        done(peer, "counted", bm=bookmarks(messages[:1]))
        take(peer, 1)
        while statistics(watcher, "counted") != 2:
            pass


def test_what_is_unsubscribed_with_all_comes_back(server: RunningServer, peer: RawPeer) -> None:
    """Of every queue, in the order of the log."""
    put(server, "in-ended-1", range(3))
    put(server, "in-ended-2", range(3))
    consume(peer, "ended-1", 2, sub_id="1")
    messages = take(peer, 2)
    consume(peer, "ended-2", 3, sub_id="2")
    messages += take(peer, 3)
    last = [header["bm"] for header, _ in messages if header["t"] == "ended-2"][-1]
    assert done(peer, "ended-2", bm=last) == 1
    assert peer.ask({"c": "unsubscribe", "cid": "u", "sub_id": "all", "a": "processed"})
    assert peer.hears_nothing()
    with server.log_on("other") as other:
        consume(other, "^ended-", 10)
        found = [(header["t"], *numbers([(header, body)])) for header, body in take(other, 5)]
        assert sorted(found) == [("ended-1", n) for n in range(3)] + [
            ("ended-2", n) for n in range(2)
        ]


def test_expressions_and_bookmarks_take_nothing(server: RunningServer, peer: RawPeer) -> None:
    """What is not certainly meant for a queue leaves its messages alone."""
    put(server, "in-kept", range(2))
    put(server, "kept-records", range(2))
    delete = {"c": "sow_delete", "cid": "d", "t": "^kept", "filter": "/n = 1", "a": "stats"}
    assert peer.ask(delete)["records_deleted"] == 1
    command = {"cid": "s", "sub_id": "s", "t": "kept", "a": "processed"}
    refused = peer.ask(command | {"c": "sow_and_subscribe", "bm": "0"})
    assert (refused["status"], refused["reason"]) == ("failure", "invalid bookmark")
    ack = peer.ask(command | {"c": "subscribe", "bm": "0", "t": "^kept", "a": "completed"})
    assert ack["status"] == "success", "and no topic of the log has such a name"
    assert query(peer, "kept").messages == [{"n": 0}, {"n": 1}]
    now = {"c": "sow_and_subscribe", "bm": "0|1|", "sub_id": "now"}
    assert peer.ask(command | now)["status"] == "success"


NO_QUEUES = [
    pytest.param({"c": "subscribe", "t": "plain"}, id="a topic"),
    pytest.param({"c": "subscribe", "t": "in-replayed"}, id="a topic of the log"),
    pytest.param({"c": "subscribe", "t": "many-records"}, id="records"),
    pytest.param({"c": "subscribe", "t": "in-replayed", "bm": "0"}, id="a replay"),
    pytest.param({"c": "subscribe", "t": "replayed", "bm": "0"}, id="a replay of a queue"),
    pytest.param({"c": "sow_and_subscribe", "t": "many-records"}, id="a query"),
    pytest.param(
        {
            "c": "sow_and_subscribe",
            "t": "replayed",
            "o": "projection=[/n],grouping=[/n]",
        },
        id="groups of a queue",
    ),
    pytest.param(
        {"c": "sow_and_subscribe", "t": "replayed", "top_n": 3, "o": "skip_n=0"},
        id="a page of a queue",
    ),
    pytest.param({"c": "delta_subscribe", "t": "many-records"}, id="deltas"),
]


@pytest.mark.parametrize("command", NO_QUEUES)
def test_a_backlog_is_of_no_effect_where_nothing_is_leased(
    peer: RawPeer, command: dict[str, Any]
) -> None:
    """It is no reason to refuse a command, and the ack tells of none."""
    options = ",".join(filter(None, ("max_backlog=5", command.get("o"))))
    keys = {"cid": "s", "sub_id": "s", "a": "processed"}
    ack = peer.ask(keys | command | {"o": options})
    assert (ack["status"], ack.get("opts")) == ("success", None), ack


@pytest.mark.parametrize("queue", ["strict", "sublet"])
def test_who_comes_back_acknowledges_late(server: RunningServer, queue: str) -> None:
    """In a session of the same name: what nobody else has meanwhile; of `sublet`, that as well."""
    put(server, f"in-{queue}", range(4))
    first = server.log_on("worker")
    consume(first, queue, 2)
    had = take(first, 2)
    with server.log_on("worker") as peer, server.log_on("other") as other:  # the first is closed
        assert done(peer, queue, bm=had[0][0]["bm"], o="cancel") == 0
        assert done(peer, queue, bm=had[0][0]["bm"]) == 1
        consume(other, queue, 2)
        assert numbers(take(other, 2)) == [1, 2]
        is_sublet = queue == "sublet"
        assert done(peer, queue, bm=had[1][0]["bm"], o="cancel") == is_sublet
        if is_sublet:
            assert numbers(take(other, 1)) == [1]
        assert done(peer, queue, bm=had[1][0]["bm"]) == is_sublet
        if not is_sublet:
            assert done(other, queue, bm=had[1][0]["bm"]) == 1
        assert numbers(take(other, 1)) == [3]
    first.socket.close()


def test_a_lease_of_a_new_session_is_its_own(server: RunningServer) -> None:
    """A client that comes back gets what it had, and acknowledges it by the same bookmark."""
    put(server, "in-left", range(2))
    with server.log_on("again") as first:
        consume(first, "left", 2)
        had = take(first, 2)
    with server.log_on("again") as peer:
        consume(peer, "left", 2)
        assert bookmarks(take(peer, 2)) == bookmarks(had)
        assert done(peer, "left", bm=bookmarks(had)) == 2


def early(server: RunningServer, count: int) -> bool:
    """Whether so many acknowledgements are kept for messages that have not come."""
    import signal

    server.process.send_signal(signal.SIGQUIT)
    return server.waits_for(
        lambda log: (
            "queue left (json)" in log
            and (f"{count} acknowledgements came before" in log) == (count > 0)
        )
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("depth", [None, 1000])
def test_what_left_before_a_restart_is_not_expected(
    tmp_path: Path, how: signal.Signals, depth: int | None
) -> None:
    """Acknowledgements of it mean nothing, and are not kept; those of what comes are."""
    options = {} if depth is None else {"TargetQueueDepth": depth}
    text = elements({"left": options})
    with running_server(tmp_path, elements=text) as server, server.log_on("worker") as peer:
        put(server, "in-left", range(3))
        with server.log_on("numbered") as numbered:
            for number in range(1, 4):
                numbered.publish("in-left", b'{"n":%d}' % number, s=str(number))
            numbered.flush()
        consume(peer, "left")
        messages = take(peer, 6)
        command = {"c": "sow_delete", "cid": "d", "t": "left", "bm": bookmarks(messages)}
        assert peer.ask(command | {"a": "persisted"})["status"] == "success"
        cache = tmp_path / "journal" / "test-instance.queues.ack"
        stored = cache.stat().st_mtime_ns
        wait_until(lambda: cache.stat().st_mtime_ns > stored)
        server.stop(how)
    with running_server(tmp_path, elements=text) as server, server.log_on("worker") as peer:
        client = messages[-1][0]["bm"].split("|")[0]
        ack = peer.ask(command | {"bm": f"{bookmarks(messages)},{client}|4|", "a": "stats"})
        assert (ack["topic_matches"], ack["matches"], ack["records_deleted"]) == (7, 1, 0)
        with server.log_on("numbered") as numbered:
            for number in range(4, 6):
                numbered.publish("in-left", b'{"n":%d}' % number, s=str(number))
            numbered.flush()
        consume(peer, "left")
        assert numbers(take(peer, 1)) == [5]
