"""Filters that take long are bounded: their owner is told, and the others do not wait for them.

`SLOW` takes more steps than any search may on a text of many letters, and finds nothing; work is
counted in turns.
"""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

from server.expressions import BUILTINS
from server.expressions.regex.bounded_search import SearchAttempt
from server.expressions.regex.budget import LONG_SEARCHES
from server.message_types.registry import MessageTypes
from server.topics.subscriptions.matching.filter_layout import Filter
from server.topics.subscriptions.matching.filter_set import FilterSet
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.content_filters import content_filter
from tests.support.sow import split_records

LETTERS = "a" * 5_000 + "b"
RECORDS = 12


def slow(number: int) -> str:
    """A term that takes very long; each number makes another one."""
    return f"/v LIKE '(a+)+[x-z]{{{number + 1}}}$'"


def slow_terms(count: int) -> str:
    """A filter that takes so many times as long."""
    return " OR ".join(map(slow, range(count)))


@pytest.fixture
def core() -> Core:
    """An engine that has some large records."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on("filler")
    for number in range(RECORDS):
        body = json.dumps({"id": number, "v": LETTERS}).encode()
        peer.send({"c": "publish", "t": "records"}, body)
    return core


def acks(peer: CorePeer, ack: str) -> list[dict[str, Any]]:
    """The acks of a type that have been received since the last time."""
    return [header for header, _ in peer.take_frames() if header.get("a") == ack]


def logged(core: Core, message_id: str) -> int:
    """How many entries there are with an id."""
    return sum(entry == message_id for entry, _ in core.log.entries)


def test_a_query_tests_costly_records_one_by_one(core: Core) -> None:
    """Others have their turn after each, and the query ends with what it found."""
    peer, quiet = core.log_on("busy"), core.log_on("quiet")
    peer.send(
        {
            "c": "sow",
            "t": "records",
            "cid": "q",
            "a": "completed,stats",
            "f": f"({slow(0)}) IS NULL",
        }
    )
    quiet.take_frames()
    turns = 0
    while not (stats := acks(peer, "stats")):
        quiet.send({"c": "heartbeat", "cid": str(turns), "a": "processed"})
        assert len(quiet.take_frames()) == 1
        core.clock.turn()
        turns += 1
    assert turns >= RECORDS - LONG_SEARCHES
    assert stats[0]["matches"] == RECORDS


@pytest.mark.parametrize("command", ["sow", "sow_and_subscribe"])
@pytest.mark.parametrize("by_key", [False, True])
def test_a_query_that_takes_too_long_for_one_record_ends(
    core: Core, command: str, by_key: bool
) -> None:
    """With a reason, as does the subscription that comes with it."""
    peer = core.log_on("busy")
    peer.take_frames()
    keys: dict[str, str] = {}
    if by_key:
        peer.send({"c": "sow", "t": "records", "bs": 100})
        records = [
            record
            for frame_header, content in peer.take_frames()
            if frame_header["c"] == "sow"
            for record, _ in split_records(frame_header, content)
        ]
        keys = {"sow_keys": ",".join(record["k"] for record in records[:3])}
    header = {"c": command, "t": "records", "cid": "q", "sub_id": "s", "a": "processed,completed"}
    peer.send(header | {"f": slow_terms(20)} | keys)
    core.clock.advance(0)
    received = [header for header, _ in peer.take_frames()]
    assert [(ack["status"], ack.get("reason")) for ack in received if ack["c"] == "ack"] == [
        ("success", None),
        ("failure", "bad filter"),
    ]
    assert "regular expressions" in received[-1]["detail"]
    assert logged(core, "16-0006") == 1
    peer.send({"c": "publish", "t": "records"}, b'{"id": 1, "v": "axx"}')
    peer.send({"c": "sow", "t": "records", "cid": "r", "a": "completed", "top_n": 1})
    core.clock.advance(0)
    after = [header for header, _ in peer.take_frames()]
    assert [header["c"] for header in after].count("p") == 0
    assert after[-1]["status"] == "success"


def test_a_deletion_that_takes_too_long_for_one_record_is_refused(core: Core) -> None:
    """Nothing is deleted then. One that takes long for each is done, while others have turns."""
    peer, quiet = core.log_on("busy"), core.log_on("quiet")
    peer.take_frames()
    deletion = {"c": "sow_delete", "t": "records", "cid": "d", "a": "processed,stats"}
    peer.send(deletion | {"f": slow_terms(20)})
    core.clock.advance(0)
    (refused,) = acks(peer, "processed")
    assert (refused["status"], refused["reason"]) == ("failure", "bad filter")
    peer.send(deletion | {"f": f"({slow(0)}) IS NULL"})
    quiet.take_frames()
    while not (stats := acks(peer, "stats")):
        quiet.send({"c": "heartbeat", "cid": "1", "a": "processed"})
        assert len(quiet.take_frames()) == 1
        core.clock.turn()
    assert stats[0]["records_deleted"] == RECORDS


@pytest.mark.parametrize("topic", ["records", "elsewhere"])
@pytest.mark.parametrize("filters", [[slow_terms(300)], [slow(n) for n in range(50)]])
def test_subscriptions_whose_filters_take_too_long_end(
    core: Core, topic: str, filters: list[str]
) -> None:
    """Whoever publishes goes on, and so do the other subscriptions."""
    busy, quiet, publisher = core.log_on("busy"), core.log_on("quiet"), core.log_on("publisher")
    for number, filter_ in enumerate(filters):
        busy.send({"c": "subscribe", "t": topic, "sub_id": str(number), "f": filter_})
    quiet.send({"c": "subscribe", "t": topic, "sub_id": "1", "f": "/v LIKE 'a+b'"})
    for peer in busy, quiet:
        peer.take_frames()
    publishes = 2 * LONG_SEARCHES
    body = json.dumps({"id": 1, "v": LETTERS}).encode()
    for _ in range(publishes):
        publisher.send({"c": "publish", "t": topic}, body)
        core.clock.advance(0)
    assert [header["c"] for header, _ in quiet.take_frames()] == ["p"] * publishes
    ended = [header for header, _ in busy.take_frames() if header["c"] == "ack"]
    assert {header["sub_id"] for header in ended} == set(map(str, range(len(filters))))
    assert {header["reason"] for header in ended} == {"subscription ended"}
    assert logged(core, "14-0005") == len(filters)
    assert logged(core, "14-0004") == 0


def test_whose_filters_take_too_long_has_none_tried_any_more(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one message there are few long searches, however many filters want one."""
    busy, quiet, publisher = core.log_on("busy"), core.log_on("quiet"), core.log_on("publisher")
    for number in range(200):
        header = {"c": "subscribe", "t": "elsewhere", "sub_id": str(number), "f": slow(number)}
        busy.send(header)
    busy.send({"c": "subscribe", "t": "elsewhere", "sub_id": "quick", "f": "/v > 'a'"})
    quiet.send({"c": "subscribe", "t": "elsewhere", "sub_id": "1", "f": "/v LIKE 'a+b'"})
    for peer in busy, quiet:
        peer.take_frames()
    texts: list[int] = []
    look_at_clock = SearchAttempt.check_time_limit

    def count(attempt: SearchAttempt) -> None:
        texts.append(len(attempt.octets))
        look_at_clock(attempt)

    monkeypatch.setattr(SearchAttempt, "check_time_limit", count)
    publisher.send({"c": "publish", "t": "elsewhere"}, json.dumps({"v": LETTERS}).encode())
    core.clock.advance(0)
    assert len(texts) < 50
    assert [header["c"] for header, _ in quiet.take_frames()] == ["p"]
    received = busy.take_frames()
    assert [header["sids"] for header, _ in received if header["c"] == "p"] == ["quick"]
    ended = [header["sub_id"] for header, _ in received if header["c"] == "ack"]
    assert 200 - LONG_SEARCHES - 1 <= len(ended) < 200


def test_subscriptions_with_one_filter_end_in_slices(core: Core) -> None:
    """Thousands may have it: some end in each turn, and the client is told of each."""
    busy, publisher = core.log_on("busy"), core.log_on("publisher")
    for number in range(200):
        header = {"c": "subscribe", "t": "elsewhere", "sub_id": str(number), "f": slow_terms(20)}
        busy.send(header)
    busy.take_frames()
    publisher.send({"c": "publish", "t": "elsewhere"}, json.dumps({"v": LETTERS}).encode())
    ended = 0
    while ended < 200:
        core.clock.turn()
        core.engine.flush()
        some = len(acks(busy, "processed"))
        assert 0 < some <= 50
        ended += some
    assert logged(core, "14-0005") == 200


def test_a_filter_that_seldom_takes_long_stays() -> None:
    """What it does in long searches is forgotten by and by."""
    failed: list[Filter] = []
    filters = FilterSet(MessageTypes().get("json"), BUILTINS, lambda one, _: failed.append(one))
    filters.add(content_filter(slow(0)))
    costly = json.dumps({"v": LETTERS}).encode()
    for _ in range(2 * LONG_SEARCHES):
        filters.match(costly)
        for _ in range(200):
            filters.match(b'{"v": "abc"}')
    assert not failed


def test_compiled_filters_go_with_their_last_user() -> None:
    """Without waiting for others to come."""
    filters = FilterSet(MessageTypes().get("json"), BUILTINS, lambda *_: None)
    kept = filters.add(content_filter("/a > 0"))
    gone = filters.add(content_filter("/b > 1 OR /b LIKE 'x.y'"))
    filters.match(b"{}")
    assert kept.test is not None
    assert gone.test is not None
    tests = [weakref.ref(kept.test), weakref.ref(gone.test)]
    gc.disable()
    try:
        filters.remove(gone)
        del gone
        filters.match(b"{}")
        assert [test() is not None for test in tests] == [True, False]
    finally:
        gc.enable()
    assert filters.match(b'{"a": 1}') == (kept,)
