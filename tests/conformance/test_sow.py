"""sow: what a query returns, and how."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, running_server
from tests.support.sow import TOPICS, query, receive_group, split_records

BIG = """
<SOW>
  <Topic><Name>big</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>big.sow</FileName></Topic>
</SOW>
"""
FILL = [{"id": n, "side": "BS"[n % 2], "qty": 10 * n} for n in range(1, 8)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with records in its topics."""
    with running_server(tmp_path_factory.mktemp("server"), elements=TOPICS) as running:
        with running.log_on("filler") as peer:
            for order in FILL:
                peer.publish("orders", json.dumps(order).encode(), x=f"c{order['id']}")
            for desk, number in (("a", 1), ("b", 1), ("b", 2), ("special", 1)):
                peer.publish(f"/desk/{desk}", b'{"id":%d}' % number)
            peer.flush()
        yield running


def ids(server: RunningServer, **keys: Any) -> list[int]:
    """The ids of the orders that a query returns."""
    with server.log_on("asker") as peer:
        return [message["id"] for message in query(peer, "orders", **keys).messages]


def test_records_come_between_group_begin_and_group_end(server: RunningServer) -> None:
    """Each with its SOW key, its length and the correlation id of its publisher, body verbatim."""
    with server.log_on() as peer:
        group = query(peer, "orders", query_id="my query", f="/id = 3")
    ((header, body),) = group.records
    assert group.query_id == "my query"
    assert body == json.dumps(FILL[2]).encode()
    assert header["l"] == len(body)
    assert header["x"] == "c3"
    assert header["k"].isdigit()
    assert group.frames[0]["t"] == "orders"


def test_a_query_without_query_id_is_known_by_its_command_id(server: RunningServer) -> None:
    """So that the client can tell its results."""
    with server.log_on() as peer:
        assert query(peer, "orders", cid="77").query_id == "77"


def test_the_acks_of_a_query(server: RunningServer) -> None:
    """processed before the results, completed and stats after them, with the counts."""
    with server.log_on() as peer:
        acks = "received,processed,completed,stats"
        peer.send({"c": "sow", "cid": "1", "t": "orders", "f": "/qty > 30", "a": acks, "top_n": 2})
        assert [peer.receive_header()["a"] for _ in range(2)] == ["received", "processed"]
        assert len(receive_group(peer).records) == 2
        completed, stats = peer.receive_header(), peer.receive_header()
    assert (completed["a"], completed["status"]) == ("completed", "success")
    assert stats["a"] == "stats"
    assert (stats["topic_matches"], stats["matches"], stats["records_returned"]) == (7, 4, 2)


@pytest.mark.parametrize(
    ("size", "frames"), [(1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (10_000, [7])]
)
def test_records_are_sent_in_batches(server: RunningServer, size: int, frames: list[int]) -> None:
    """As many in a frame as the client asked for, fewer in the last one."""
    with server.log_on() as peer:
        group = query(peer, "orders", bs=size)
    assert [frame["bs"] for frame in group.frames] == frames
    assert sorted(message["id"] for message in group.messages) == list(range(1, 8))


def test_one_record_is_a_batch_by_default(server: RunningServer) -> None:
    """Without a batch size each record has its frame."""
    with server.log_on() as peer:
        assert [frame["bs"] for frame in query(peer, "orders").frames] == [1] * 7


def test_results_can_be_ordered_limited_and_skipped(server: RunningServer) -> None:
    """top_n and skip_n are options or header keys; the order has any number of fields."""
    assert ids(server, orderby="/qty DESC") == [7, 6, 5, 4, 3, 2, 1]
    assert ids(server, orderby="/side, /id DESC") == [6, 4, 2, 7, 5, 3, 1]
    assert ids(server, orderby="/id", top_n=2) == [1, 2]
    assert ids(server, orderby="/id", o="top_n=2,skip_n=3") == [4, 5]
    assert ids(server, orderby="/id", o="top_n=2", skip_n=6) == [7]
    assert ids(server, orderby="/id", top_n=0) == []


def test_a_query_can_be_restricted_to_sow_keys(server: RunningServer) -> None:
    """Keys that no record has are passed over."""
    with server.log_on() as peer:
        keys = {
            json.loads(body)["id"]: header["k"] for header, body in query(peer, "orders").records
        }
        wanted = f"{keys[2]}, 12345,{keys[5]}"
        assert sorted(m["id"] for m in query(peer, "orders", sow_keys=wanted).messages) == [2, 5]
        found = query(peer, "orders", sow_keys=wanted, f="/qty > 30").messages
    assert [message["id"] for message in found] == [5]


def test_options_that_change_the_form_of_records(server: RunningServer) -> None:
    """A select list, the time of the publish, and no SOW key."""
    with server.log_on() as peer:
        options = "select=[-/,+/id],timestamp,no_sowkey"
        ((header, body),) = query(peer, "orders", f="/id = 1", o=options).records
    assert json.loads(body) == {"id": 1}
    assert header["l"] == len(body)
    assert re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z", header["ts"])
    assert "k" not in header


@pytest.mark.parametrize(
    "options", ["none", "oof", "replace", "send_keys", "send_empties", "non_regex_topic"]
)
def test_options_without_effect_on_a_query_are_accepted(
    server: RunningServer, options: str
) -> None:
    """The reference lists them for sow, too."""
    assert len(ids(server, o=options)) == 7


def test_a_regular_expression_queries_topics_in_the_order_of_the_configuration(
    server: RunningServer,
) -> None:
    """All in one group; every record says which topic it is from."""
    with server.log_on() as peer:
        group = query(peer, "^/desk/|^orders", f="/id = 1", bs=10)
    topics = [header["t"] for header, _ in group.records]
    assert topics[:2] == ["orders", "/desk/special"]
    assert sorted(topics[2:]) == ["/desk/a", "/desk/b"]


def test_top_n_counts_over_all_topics_of_a_query(server: RunningServer) -> None:
    """A page of several topics goes on from one to the next."""
    with server.log_on() as peer:
        group = query(peer, "^/desk/|^orders", f="/id = 1", o="top_n=2,skip_n=1")
    topics = [header["t"] for header, _ in group.records]
    assert (topics[0], len(topics)) == ("/desk/special", 2)


def test_a_logical_topic_of_a_pattern_has_its_own_records(server: RunningServer) -> None:
    """Topics in one file are told apart; a definition before the pattern goes its own way."""
    with server.log_on() as peer:
        assert query(peer, "/desk/a").messages == [{"id": 1}]
        assert len(query(peer, "/desk/b").messages) == 2
        assert query(peer, "/desk/special").messages == [{"id": 1}]
        assert query(peer, "/desk/unheard-of").messages == []


def test_a_regular_expression_that_matches_no_topic_gives_an_empty_group(
    server: RunningServer,
) -> None:
    """There may be one some day."""
    with server.log_on() as peer:
        assert query(peer, "^nothing$").records == []


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"t": "adhoc"}, "invalid topic"),
        ({"t": ""}, "invalid topic"),
        ({"t": "orders("}, "bad regex topic"),
        ({"f": "/id ="}, "bad filter"),
        ({"bs": 0}, "invalid batch size"),
        ({"bs": -1}, "invalid batch size"),
        ({"orderby": "/id SIDEWAYS"}, "invalid orderby"),
        ({"o": "skip_n=3"}, "invalid option"),
        ({"o": "top_n=few"}, "invalid option"),
        ({"o": "conflation=1s"}, "invalid option"),
        ({"o": "what"}, "invalid option"),
        ({"top_n": -1}, "invalid option"),
    ],
)
def test_what_cannot_be_queried_is_refused(
    server: RunningServer, keys: dict[str, Any], reason: str
) -> None:
    """With a reason that clients know, a detail for people, and no results."""
    with server.log_on() as peer:
        ack = peer.ask({"c": "sow", "cid": "1", "t": "orders", "a": "processed"} | keys)
        assert (ack["status"], ack["reason"]) == ("failure", reason)
        assert ack["detail"]
        peer.flush()


@pytest.mark.parametrize("acks", ["stats", "completed", "received,stats,completed"])
def test_a_refusal_is_told_to_whoever_waits_for_the_end(server: RunningServer, acks: str) -> None:
    """Not only to those who ask for a `processed` ack."""
    with server.log_on() as peer:
        for command in ({"c": "sow", "f": "/id ="}, {"c": "sow_delete"}):
            peer.send(command | {"cid": "1", "t": "orders", "a": acks})
            for ack in ("received", "completed", "stats"):
                if ack in acks:
                    header = peer.receive_header()
                    status = "success" if ack == "received" else "failure"
                    assert (header["a"], header["status"]) == (ack, status)


@pytest.mark.parametrize(
    ("order", "place"),
    [
        ("/id SIDEWAYS", "character 5: /id HERE --> SIDEWAYS"),
        ("/id,", "character 5: /id, HERE -->"),
        ("/id DESC ASC", "character 10: /id DESC HERE --> ASC"),
        ("id", "character 1: HERE --> id"),
        ("/id, /side + 1", "character 12: /id, /side HERE --> + 1"),
    ],
)
def test_the_place_of_a_mistake_in_an_order_is_said(
    server: RunningServer, order: str, place: str
) -> None:
    with server.log_on() as peer:
        ack = peer.ask({"c": "sow", "cid": "1", "t": "orders", "orderby": order, "a": "processed"})
        assert ack["reason"] == "invalid orderby"
        assert place in ack["detail"]


def test_publishing_goes_on_while_a_large_query_is_ordered(tmp_path: Path) -> None:
    """Others publish, are told of it, and get acks, long before the query has ended; it gives the
    records of its beginning, in order."""
    count = 100_000
    bodies = (b'{"id":%d,"n":%d}' % (number, number * 7919 % count) for number in range(count))
    frames = [frame({"c": "publish", "t": "big"}, body) for body in bodies]
    events: list[str] = []
    found: list[int] = []

    def read(reader: RawPeer) -> None:
        while (received := reader.receive())[0]["c"] == "sow":
            found.extend(json.loads(body)["n"] for _, body in split_records(*received))
        events.append(received[0]["c"])

    with (
        running_server(tmp_path, elements=BIG) as server,
        server.log_on("loader") as loader,
        server.log_on("reader") as reader,
    ):
        for start in range(0, count, 1000):
            loader.socket.sendall(b"".join(frames[start : start + 1000]))
            loader.flush()
        loader.subscribe("big", "w")
        reader.send({"c": "sow", "cid": "q", "t": "big", "orderby": "/n DESC", "bs": 1000})
        assert reader.receive_header()["c"] == "group_begin"
        reading = threading.Thread(target=read, args=[reader])
        reading.start()
        for number in range(20):
            loader.publish("big", b'{"id":%d,"n":-1}' % (number * 5_000))
            assert loader.receive()[0]["c"] == "p"
            loader.flush()
            events.append("published")
        reading.join()
    assert events.index("group_end") >= 5
    assert found == list(range(count - 1, -1, -1))


def test_a_large_query_does_not_hold_up_others(server: RunningServer) -> None:
    """While results are on their way, another client's commands are served; all records arrive."""
    with server.log_on("loader") as loader, server.log_on("reader") as reader:
        for n in range(30_000):
            loader.publish("notes", b'{"n":%d}' % n, k=f"key{n}")
        loader.flush()
        ack = reader.ask({"c": "sow", "cid": "1", "t": "notes", "bs": 100, "a": "processed"})
        assert ack["status"] == "success"
        loader.publish("notes", b'{"n":-1}', k="key29999")
        loader.publish("notes", b'{"n":-2}', k="new")
        loader.flush()
        numbers = [message["n"] for message in receive_group(reader).messages]
    assert sorted(numbers) == list(range(30_000))


def test_results_of_queries_arrive_in_the_order_of_the_commands(server: RunningServer) -> None:
    """Whatever follows a query, arrives after its results."""
    with server.log_on() as peer:
        for number in range(5):
            peer.send({"c": "sow", "cid": str(number), "t": "^.*$", "bs": 7})
            peer.send({"c": "flush", "cid": f"f{number}", "a": "completed"})
        for number in range(5):
            assert receive_group(peer).query_id == str(number)
            assert peer.receive_header()["cid"] == f"f{number}"


def test_an_unsubscribe_ends_a_query(server: RunningServer) -> None:
    """By the query's id; what it had not sent, is not sent."""
    with server.log_on() as peer:
        peer.send({"c": "sow", "cid": "1", "query_id": "gone", "t": "^.*$"})
        peer.send({"c": "unsubscribe", "cid": "2", "query_id": "gone", "a": "processed"})
        while (header := peer.receive()[0])["c"] != "ack":
            assert header["query_id"] == "gone"
        assert header["cid"] == "2"


def test_a_client_that_leaves_takes_its_query_along(server: RunningServer) -> None:
    """The server goes on as if nothing had happened."""
    leaver = RawPeer(server.port)
    leaver.log_on()
    leaver.send({"c": "sow", "cid": "1", "t": "^.*$"})
    leaver.socket.close()
    assert len(ids(server)) == 7


def test_queries_do_without_pandas(server: RunningServer) -> None:
    """Arrow imports it with its first array, where it is installed: most of the time of a start."""
    pytest.importorskip("pandas")
    assert ids(server, filter="/side = 'B'") == [2, 4, 6]
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "pyarrow" in maps
    assert "pandas" not in maps
