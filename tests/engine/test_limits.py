"""What one client may make the server do has limits, and going beyond one costs nobody else."""

from __future__ import annotations

import gc
import json
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from server.util import limits
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.long_form import spread
from tests.support.raw import frame

PART = b"x" * 200_000


def logged(core: Core, message_id: str) -> list[str]:
    """What has been logged with an id: the problem or the detail of each entry."""
    return [
        str(fields.get("problem") or fields.get("detail"))
        for entry_id, fields in core.log.entries
        if entry_id == message_id
    ]


def begin_frame(peer: CorePeer, length: int) -> None:
    """Send the length of a frame."""
    peer.send_bytes(struct.pack(">I", length))


def only_ack(peer: CorePeer) -> dict[str, Any]:
    """The one frame that has been received."""
    ((header, _),) = peer.take_frames()
    return header


def test_a_frame_before_the_logon_is_small() -> None:
    """More than the limit is not kept; the peer is told which limit that is, and disconnected."""
    core = Core()
    peer, other = core.connect(), core.log_on()
    begin_frame(peer, 100_000_000)
    parts = 0
    while not peer.hung_up:
        peer.send_bytes(PART)
        parts += 1
    assert parts <= limits.MAX_FRAME_SIZE_BEFORE_LOGON // len(PART) + 1
    ack = only_ack(peer)
    assert (ack["status"], ack["reason"]) == ("failure", "limit exceeded")
    assert str(limits.MAX_FRAME_SIZE_BEFORE_LOGON) in logged(core, "18-0002")[0]
    assert core.engine.pre_logon_limits.unfinished_bytes == 0
    assert not other.hung_up


def test_a_large_message_may_follow_the_logon_at_once() -> None:
    """The limit counts what has come before the logon, not what is announced behind it."""
    core = Core()
    peer = core.connect()
    publish = frame({"c": "publish", "t": "t", "cid": "1", "a": "processed"}, b"x" * 3_000_000)
    logon = frame({"c": "logon", "cid": "0", "client_name": "c", "mt": "json", "a": "processed"})
    stream = logon + publish
    for start in range(0, len(stream), 256_000):
        peer.send_bytes(stream[start : start + 256_000])
    assert [header["status"] for header, _ in peer.take_frames()] == ["success", "success"]


def test_unfinished_frames_have_a_limit_together() -> None:
    """Who goes beyond it is disconnected; those who have logged on do not count."""
    core = Core()
    large = core.log_on()
    begin_frame(large, 100_000_000)
    for _ in range(400):
        large.send_bytes(PART)
    peers = [core.connect() for _ in range(100)]
    for peer in peers:
        begin_frame(peer, 1_000_000)
        for _ in range(4):
            if not peer.hung_up:
                peer.send_bytes(PART)
        assert (
            core.engine.pre_logon_limits.unfinished_bytes
            <= limits.MAX_UNFINISHED_BYTES_BEFORE_LOGON
        )
    assert not peers[0].hung_up
    assert peers[-1].hung_up
    assert not large.hung_up
    for peer in peers:
        peer.leave()
    assert core.engine.pre_logon_limits.unfinished_bytes == 0


def test_a_partial_frame_goes_with_its_connection() -> None:
    """At once, and not when garbage is collected."""
    core = Core()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        peers = [core.log_on(str(number)) for number in range(10)]
        for peer in peers:
            begin_frame(peer, 100_000_000)
            peer.send_bytes(b'{"c":"publish"}')
            for _ in range(20):
                peer.send_bytes(bytes(100_000))
        during = tracemalloc.get_traced_memory()[0]
        for peer in peers:
            peer.leave()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert during - before > 19_000_000
    assert after - before < 2_000_000


@pytest.mark.parametrize("start", ['"bm":"', '"f":"}', '"f":"\\\\}'])
def test_a_header_far_beyond_the_limit_is_refused(start: str) -> None:
    """Wherever it has its first brace; the command behind it is obeyed."""
    core = Core()
    peer = core.log_on()
    begin = b'{"c":"subscribe","cid":"7","a":"processed",' + start.encode()
    content = begin + b"1|1|," * 4_000_000 + b'"}'
    begin_frame(peer, len(content))
    for at in range(0, len(content), 250_000):
        peer.send_bytes(content[at : at + 250_000])
    ack = only_ack(peer)
    assert (ack["cid"], ack["status"], ack["reason"]) == ("7", "failure", "limit exceeded")
    peer.send({"c": "flush", "cid": "8", "a": "completed"})
    assert only_ack(peer)["cid"] == "8"


def test_a_frame_in_tiny_parts_takes_little_more_than_its_bytes() -> None:
    """However it is cut by the network."""
    core = Core()
    peer = core.log_on()
    begin_frame(peer, 1_000_000)
    tracemalloc.start()
    try:
        for _ in range(100_000):
            peer.send_bytes(b"xy")
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used < 1_000_000


def test_who_does_not_log_on_is_turned_away() -> None:
    """After some seconds; who has logged on may be silent."""
    core = Core()
    silent, half, client = core.connect(), core.connect(), core.log_on()
    begin_frame(half, 100)
    core.clock.advance(limits.LOGON_TIMEOUT_S - 1)
    assert not silent.hung_up
    core.clock.advance(2)
    assert silent.hung_up
    assert half.hung_up
    assert not client.hung_up
    assert "no logon within 10 seconds" in logged(core, "18-0002")
    assert only_ack(silent)["reason"] == "limit exceeded"


def test_connections_before_the_logon_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has waited for longest goes, so that nobody keeps others from logging on."""
    monkeypatch.setattr(limits, "MAX_CONNECTIONS_BEFORE_LOGON", 3)
    core = Core()
    client = core.log_on("early")
    visitors = [core.connect() for _ in range(5)]
    late = core.log_on("late")
    assert [visitor.hung_up for visitor in visitors] == [True, True, True, False, False]
    assert only_ack(visitors[0])["reason"] == "limit exceeded"
    assert "not logged on are over the limit of 3" in logged(core, "18-0002")[0]
    visitors[3].leave()
    visitors.append(core.connect())
    assert not visitors[4].hung_up
    for peer in client, late:
        peer.take_frames()
        peer.send({"c": "heartbeat", "cid": "1", "a": "processed"})
        assert only_ack(peer)["status"] == "success"


def test_the_first_command_counts_as_a_logon_where_that_is_allowed() -> None:
    """Its connection is not turned away later."""
    core = Core(require_logon=False, message_type="json")
    peer = core.connect()
    peer.send({"c": "subscribe", "t": "t", "sub_id": "1"})
    core.clock.advance(limits.LOGON_TIMEOUT_S * 2)
    assert not peer.hung_up


@pytest.mark.parametrize("brace", ["", "}"], ids=["plain", "with a brace in a string"])
@pytest.mark.parametrize("at_its_end", [False, True])
def test_a_header_has_a_limit(brace: str, at_its_end: bool) -> None:
    """The command is refused, wherever it says how to be answered, and the connection goes on."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    keys = brace + ",".join(map(str, range(200_000)))
    assert len(keys) > limits.MAX_HEADER_SIZE
    whom = {"cid": "7", "a": "processed"}
    command = {"c": "sow_delete", "t": "records"}
    peer.send(
        command | {"sow_keys": keys} | whom if at_its_end else command | whom | {"sow_keys": keys}
    )
    ack = only_ack(peer)
    assert (ack["cid"], ack["status"], ack["reason"]) == ("7", "failure", "limit exceeded")
    assert str(limits.MAX_HEADER_SIZE) in logged(core, "02-0001")[0]
    peer.send({"c": "heartbeat", "cid": "8", "a": "processed"})
    assert only_ack(peer)["cid"] == "8"


def test_a_logon_has_a_smaller_one() -> None:
    """A token fits, more does not."""
    core = Core()
    for size, fits in ((50_000, True), (70_000, False)):
        peer = core.connect()
        logon = {"c": "logon", "cid": "1", "client_name": "c", "mt": "json", "a": "processed"}
        peer.send({**logon, "pw": "x" * size})
        assert (only_ack(peer)["status"] == "success") is fits
        assert peer.hung_up is not fits


def test_queries_under_way_have_a_limit() -> None:
    """The commands behind them wait unread, and are all obeyed in the end."""
    count = limits.MAX_QUERIES + 7
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer, other = core.log_on("many"), core.log_on("other")
    for number in range(2000):
        other.send({"c": "p", "t": "records"}, json.dumps({"id": number}).encode())
    query = {"c": "sow", "t": "records", "a": "completed", "bs": 1000, "orderby": "/id"}
    peer.send_bytes(b"".join(frame({**query, "cid": str(n)}) for n in range(count)))
    session = core.engine.find_client("many")
    most = len(session.queries) if session else 0
    assert most == limits.MAX_QUERIES
    assert peer.is_paused
    other.send({"c": "heartbeat", "cid": "1", "a": "processed"})
    assert only_ack(other)["cid"] == "1"
    ended: list[str] = []
    while len(ended) < count:
        core.clock.advance(0.005)
        assert session is not None
        assert len(session.queries) <= limits.MAX_QUERIES
        ended += [header["cid"] for header, _ in peer.take_frames() if header["c"] == "ack"]
    assert ended == [str(number) for number in range(count)]
    core.clock.advance(0.005)
    assert not peer.is_paused


def test_subscriptions_of_a_connection_have_a_limit() -> None:
    """One more is refused, unless it takes the place of another."""
    core = Core()
    peer = core.log_on()
    peer.take_frames()
    most = limits.MAX_SUBSCRIPTIONS
    subscribe = {"c": "subscribe", "t": "t", "a": "processed"}
    peer.send_bytes(b"".join(frame(subscribe | {"sub_id": str(one)}) for one in range(most + 1)))
    answers = [header["status"] for header, _ in peer.take_frames()]
    assert answers == ["success"] * most + ["failure"]
    again = {"c": "subscribe", "sub_id": "3", "t": "u", "o": "replace", "a": "processed"}
    peer.send(again)
    assert only_ack(peer)["status"] == "success"


def test_what_subscriptions_take_has_a_limit_and_an_owner() -> None:
    """Each counts as its client's as long as it is there; one that is too much is refused."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer, other = core.log_on("greedy"), core.log_on("other")
    texts = ", ".join(f"'some text {number}'" for number in range(3000))
    subscribe = {"c": "subscribe", "t": "t", "a": "processed"}
    refused: dict[str, Any] = {}
    count = 0
    while not refused:
        peer.take_frames()
        peer.send(subscribe | {"sub_id": str(count), "f": f"/a IN ({texts}, {count})"})
        ack = only_ack(peer)
        refused = ack if ack["status"] == "failure" else {}
        count += 1
        assert peer.held <= limits.MAX_CLIENT_MEMORY
    assert refused["reason"] == "limit exceeded"
    assert str(limits.MAX_CLIENT_MEMORY) in refused["detail"]
    assert 5 < count < 100
    peer.send({"c": "sow", "t": "records", "a": "processed", "f": f"/a IN ({texts})"})
    assert only_ack(peer)["reason"] == "limit exceeded"
    peer.send(subscribe | {"sub_id": "0", "o": "replace", "f": f"/b IN ({texts})"})
    assert only_ack(peer)["status"] == "success"
    other.take_frames()
    other.send(subscribe | {"sub_id": "1", "f": f"/a IN ({texts})"})
    assert only_ack(other)["status"] == "success"
    for number in range(count):
        peer.send({"c": "unsubscribe", "sub_id": str(number)})
        core.clock.advance(0)
    assert peer.held == 0


@pytest.mark.parametrize("command", ["sow", "sow_and_subscribe"])
def test_what_queries_take_is_their_clients(command: str) -> None:
    """Until they have ended."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    for number in range(3000):
        peer.send({"c": "p", "t": "records"}, json.dumps({"id": number}).encode())
    keys = ",".join(map(str, range(1000)))
    core.clock.work_per_look = 0.001  # a slice is over after a look
    for condition in {"f": "/id >= 0 OR /id IN ('a', 'b')"}, {"sow_keys": keys}:
        before = peer.held
        peer.send({"c": command, "t": "records", "sub_id": "1", "query_id": "1", **condition})
        assert peer.held - before > len(str(condition))
        core.clock.advance(0)
        peer.send({"c": "unsubscribe", "sub_id": "1"})
        core.clock.advance(0)
        assert peer.held == before


@pytest.mark.parametrize(
    "filter_",
    [
        " OR ".join(f"/field{number} = {number}" for number in range(1001)),
        " OR ".join(["1=1"] * 3000),
        f"/a IN ({', '.join(f'/b{number}' for number in range(3000))})",
        f"GREATEST({', '.join(['SOW_KEY()'] * 3000)}) = 1",
        f"/a = '{'x' * limits.MAX_FILTER_LENGTH}'",
        f"/a = '{'x' * 900_000}'",
        f"/a IN (1{',2' * limits.MAX_FILTER_VALUES})",
        f"/a IN (1, -1.5{',2' * limits.MAX_FILTER_VALUES})",
    ],
)
@pytest.mark.parametrize(
    "command", spread(["subscribe", "sow_delete", "sow", "sow_and_subscribe"], 2)
)
def test_filters_have_a_limit(command: str, filter_: str) -> None:
    """One that is too large is refused by name, and the connection goes on."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    peer.take_frames()
    header = {"c": command, "t": "records", "cid": "1", "a": "processed"}
    peer.send(header | {"f": filter_})
    ack = only_ack(peer)
    assert (ack["status"], ack["reason"]) == ("failure", "bad filter")
    limit = limits.MAX_FILTER_TERMS
    if "'x" in filter_:
        limit = limits.MAX_FILTER_LENGTH
    elif " IN (1," in filter_:
        limit = limits.MAX_FILTER_VALUES
    assert f"more than {limit}" in ack["detail"]
    values = ",".join(map(str, range(12_000)))  # of 64 KB
    peer.send(header | {"f": f"/a IN ({values})"})
    core.clock.advance(0)
    assert {ack["status"] for ack, _ in peer.take_frames() if ack["c"] == "ack"} == {"success"}


@pytest.mark.parametrize(
    ("filter_", "problem"),
    [
        ("(" * 32_000, "nested deeper than"),
        ("/a = " + "-" * 60_000, "nested deeper than"),
        (" OR ".join(["/a = 1"] * 5_000), f"more than {limits.MAX_FILTER_TERMS}"),
        ("/a " * 20_000, "expected an operator"),
    ],
)
def test_what_follows_the_fault_of_a_filter_is_not_read(filter_: str, problem: str) -> None:
    """A filter of the greatest length that is refused early costs no more than its beginning."""
    core = Core()
    peer = core.log_on()
    peer.take_frames()
    peer.send({"c": "subscribe", "t": "t", "a": "processed", "f": f"{filter_} 'no closing quote"})
    ack = only_ack(peer)
    assert ack["reason"] == "bad filter"
    assert ack["detail"].startswith(problem)


@pytest.mark.parametrize(
    ("command", "name", "most"),
    [
        ("sow", "sow_keys", limits.MAX_SOW_KEYS),
        ("sow_and_subscribe", "sow_keys", limits.MAX_SUBSCRIPTION_SOW_KEYS),
        ("sow_delete", "sow_keys", limits.MAX_SOW_KEYS),
        ("unsubscribe", "sub_id", limits.MAX_SUBSCRIPTION_IDS),
        ("unsubscribe", "query_id", limits.MAX_SUBSCRIPTION_IDS),
        ("sow", "orderby", limits.MAX_ORDER_TERMS),
        ("sow", "a", limits.MAX_ACK_TYPES),
    ],
)
def test_lists_in_a_command_have_a_limit(command: str, name: str, most: int) -> None:
    """One more entry is refused, with the name of the header and the limit."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    peer.take_frames()
    for count, status in (most, "success"), (most + 1, "failure"):
        header = {"c": command, "t": "records", "cid": "1", "a": "processed"}
        entries = {"orderby": "/a", "a": "processed"}.get(name, "7")
        peer.send(header | {name: ",".join([entries] * count)})
        core.clock.advance(0)
        acks = [ack for ack, _ in peer.take_frames() if ack["c"] == "ack"]
        assert [ack["status"] for ack in acks] == [status]
    assert acks[0]["reason"] == "limit exceeded"
    assert f"more than {most}" in acks[0]["detail"]


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ("select=[{}]", limits.MAX_SELECTED_FIELDS),
        ("projection=[{}],grouping=[/id]", limits.MAX_COMPUTED_FIELDS),
        ("projection=[/id],grouping=[{}]", limits.MAX_COMPUTED_FIELDS),
        ("conflation=1s,conflation_key=[{}]", limits.MAX_CONFLATION_KEYS),
    ],
)
def test_lists_in_options_have_a_limit(options: str, most: int) -> None:
    """One more field is refused, with the name of the option and the limit."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    peer.take_frames()
    sign = "+" if options.startswith("select") else ""
    for count, status in (most, "success"), (most + 1, "failure"):
        fields = ",".join(f"{sign}/f{number}" for number in range(count))
        header = {"c": "sow_and_subscribe", "t": "records", "cid": str(count), "a": "processed"}
        peer.send(header | {"o": options.format(fields)})
        core.clock.advance(0)
        acks = [ack for ack, _ in peer.take_frames() if ack["c"] == "ack"]
        assert [ack["status"] for ack in acks] == [status]
    assert acks[0]["reason"] == "limit exceeded"
    assert f"more than {most}" in acks[0]["detail"]


def test_a_projection_may_have_64_kb() -> None:
    """As in AMPS, which names no other limit of it."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    peer.take_frames()
    fields = ",".join(f"SUM(/v{number}) AS /s{number}" for number in range(2500))
    header = {"c": "sow", "t": "records", "cid": "1", "a": "processed"}
    peer.send(header | {"o": f"projection=[/id,{fields}],grouping=[/id]"})
    core.clock.advance(0)
    acks = [ack for ack, _ in peer.take_frames() if ack["c"] == "ack"]
    assert [ack["status"] for ack in acks] == ["success"]


def test_options_have_a_limit() -> None:
    """They hold select lists and projections."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    peer = core.log_on()
    peer.take_frames()
    select = ",".join(f"+/a_long_name_of_field_{number}" for number in range(4_000))
    assert len(select) > 100_000
    peer.send({"c": "sow", "t": "records", "a": "processed", "o": f"select=[{select}]"})
    assert [ack["status"] for ack, _ in peer.take_frames() if ack["c"] == "ack"] == ["success"]
    select += "," + select
    peer.send({"c": "sow", "t": "records", "a": "processed", "o": f"select=[{select}]"})
    ack = only_ack(peer)
    assert (ack["status"], ack["reason"]) == ("failure", "limit exceeded")


@pytest.mark.parametrize(
    "filter_",
    [
        pytest.param(lambda n: f"/a = {n}", id="one comparison"),
        pytest.param(lambda n: " OR ".join(f"/f{i}_{n} = 1" for i in range(200)), id="many fields"),
        pytest.param(lambda n: " OR ".join(f"/v LIKE 'a.{n}_{i}'" for i in range(200)), id="LIKE"),
        pytest.param(lambda n: f"/a IN ({','.join(f'{i}{n}' for i in range(2000))})", id="IN"),
        pytest.param(lambda n: f"/a = '{'x' * 5000}{n}'", id="a long text"),
    ],
)
def test_what_a_filter_takes_is_about_what_is_counted_for_it(
    filter_: Callable[[int], str],
) -> None:
    """Its client answers neither for much less than there is, nor for many times as much."""
    core = Core()
    peer, publisher = core.log_on("peer"), core.log_on("publisher")
    count = 8

    def subscribe(topic: str, numbers: range) -> None:
        for number in numbers:
            text = filter_(number)
            peer.send({"c": "subscribe", "t": topic, "sub_id": str(number), "f": text})
        publisher.send({"c": "publish", "t": topic}, b'{"v":"text","a":5}')
        gc.collect()

    subscribe("warm", range(1000, 1002))
    held = peer.held
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    subscribe("measured", range(count))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.6 < (peer.held - held) / (after - before) < 4


def test_a_connection_may_have_so_many_different_select_lists() -> None:
    """Each makes messages of its own; equal ones share them, and a replacement needs no room."""
    most = limits.MAX_SELECT_LISTS
    core = Core()
    peer = core.log_on("peer")
    peer.take_frames()

    def status(number: int, options: str) -> str:
        header = {"c": "subscribe", "t": "t", "sub_id": str(number), "opts": options}
        peer.send({**header, "cid": "1", "a": "processed"})
        return str(only_ack(peer)["status"])

    answers = [status(n, f"select=[-/,+/f{n}]") for n in range(most + 1)]
    assert answers == ["success"] * most + ["failure"]
    assert status(most + 1, "select=[-/,+/f1]") == "success"
    assert status(most + 2, "timestamp") == "success"
    assert status(2, f"replace,select=[-/,+/f{most + 3}]") == "success"
    assert status(most + 4, f"select=[-/,+/f{most + 4}]") == "failure"
