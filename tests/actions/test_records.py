"""Triggers and steps on topics with records."""

from __future__ import annotations

import asyncio

import pytest

from tests.actions.support import Bench, Use, echo, on_publish, put, with_records
from tests.engine.support import CorePeer

ORDERS: dict[str, str | list[str]] = {"Topic": "orders", "MessageType": "json"}


def test_messages_to_a_topic_with_records_are_publishes() -> None:
    bench, peer = with_records()
    bench.add(on_publish("orders", Filter="/s = 'a'"), echo("{{AMPS_DATA}} {{AMPS_CLIENT_NAME}}"))

    def publish() -> None:
        put(peer, 1, "a")
        put(peer, 1, "b")
        peer.send({"c": "delta_publish", "t": "orders"}, b'{"id":1,"s":"a"}')

    bench.run(publish)
    assert bench.echoes() == ['{"id":1,"s":"a"} p'] * 2


def test_deliveries_of_records_are_told() -> None:
    bench, peer = with_records()
    bench.add(
        ("amps-action-on-deliver-message", ORDERS), echo("{{AMPS_CLIENT_NAME}} {{AMPS_DATA}}")
    )
    reader = bench.core.log_on("reader")
    reader.send({"c": "subscribe", "t": "orders", "sub_id": "1", "o": "oof", "f": "/s = 'a'"})

    def publish() -> None:
        put(peer, 1, "a")
        put(peer, 1, "b")  # out of focus: no delivery of a message

    bench.run(publish)
    assert bench.echoes() == ['reader {"id":1,"s":"a"}']


OOF: list[tuple[dict[str, str | list[str]], list[str]]] = [
    ({"Filter": "/s = 'a'"}, ["b<a", "a<a"]),
    ({"Filter": "/s = 'a'", "Type": "match"}, ["b<a"]),
    ({"Filter": "/s = 'a'", "Type": "Delete"}, ["a<a"]),
    ({"Filter": "/s = 'a'", "Type": "expire"}, []),
    ({}, ["a<a"]),
    ({"MessageType": "js"}, ["a<a"]),
    ({"Topic": "^ord"}, ["a<a"]),
]


@pytest.mark.parametrize(("more", "expected"), OOF)
def test_records_out_of_focus(more: dict[str, str | list[str]], expected: list[str]) -> None:
    bench, peer = with_records()
    extract: Use = (
        "amps-action-do-extract-values",
        {"MessageType": "json", "Data": "{{AMPS_DATA}}", "Value": "NOW=/s"},
    )
    before: Use = (
        "amps-action-do-extract-values",
        {"MessageType": "json", "Data": "{{AMPS_PREVIOUS_DATA}}", "Value": "THEN=/s"},
    )
    bench.add(
        ("amps-action-on-oof-message", ORDERS | more), extract, before, echo("{{NOW}}<{{THEN}}")
    )

    def publish() -> None:
        for state in ("a", "b", "a"):
            put(peer, 1, state)
        peer.send({"c": "sow_delete", "t": "orders", "f": "/id = 1"})

    bench.run(publish)
    assert bench.echoes() == expected


def test_deleted_records() -> None:
    bench, peer = with_records()
    on: Use = ("amps-action-on-sow-delete-message", ORDERS)
    bench.add(on, echo("{{AMPS_TOPIC}} {{AMPS_DATA}} {{AMPS_DATA_LENGTH}} {{AMPS_CORRELATION_ID}}"))

    def publish() -> None:
        peer.send({"c": "publish", "t": "orders", "x": "c"}, b'{"id":1}')
        peer.send({"c": "sow_delete", "t": "orders", "f": "1=1"})

    bench.run(publish)
    assert bench.echoes() == ['orders {"id":1} 8 c']


@pytest.mark.parametrize(
    ("reasons", "runs"), [(None, True), ("max_cancels,time_limit", True), ("max_cancels", False)]
)
def test_expired_records(reasons: str | None, runs: bool) -> None:
    bench, peer = with_records(expiration=2_000_000_000)
    given = ORDERS if reasons is None else {**ORDERS, "Reason": reasons}
    bench.add(("amps-action-on-sow-expire-message", given), echo("{{AMPS_DATA}} {{AMPS_REASON}}"))

    def publish() -> None:
        put(peer, 1, "a")
        bench.core.clock.advance(10)

    bench.run(publish)
    assert bench.echoes() == (['{"id":1,"s":"a"} time_limit'] if runs else [])


WATCH: dict[str, str | list[str]] = {**ORDERS, "Filter": "/s = 'open'", "Duration": "5s"}
ALERT: dict[str, str | list[str]] = {
    **WATCH,
    "OOFEvent": "done",
    "TimeoutEvent": "late",
    "EventVariable": "WHAT",
}


def drive(bench: Bench, peer: CorePeer) -> None:
    """1 stays open, 2 closes in time, 3 is open again after it was closed."""

    async def live() -> None:
        advance = bench.core.clock.advance
        put(peer, 1, "open")
        put(peer, 2, "open")
        put(peer, 3, "open")
        advance(3)
        put(peer, 2, "closed")
        put(peer, 3, "closed")
        put(peer, 3, "open")
        put(peer, 1, "open")  # an update does not begin anew
        advance(2.5)
        await asyncio.sleep(0)
        put(peer, 1, "open")  # nor does it run twice
        advance(3)
        put(peer, 1, "closed")
        put(peer, 3, "closed")

    bench.run(live)


def test_a_condition_that_lasts_too_long() -> None:
    bench, peer = with_records()
    bench.add(
        ("amps-action-on-message-condition-timeout", WATCH),
        echo("{{AMPS_DATA}} {{AMPS_TIMESTAMP}} {{AMPS_CLIENT_NAME}}"),
    )
    drive(bench, peer)
    assert bench.echoes() == [
        '{"id":1,"s":"open"} 19700112T134640.000000Z p',
        '{"id":3,"s":"open"} 19700112T134643.000000Z p',
    ]


def test_an_alert_tells_which_of_the_two_happened() -> None:
    bench, peer = with_records()
    bench.add(("amps-action-on-alert", ALERT), echo("{{WHAT}} {{AMPS_DATA}}"))
    drive(bench, peer)
    assert bench.echoes() == [
        'done {"id":2,"s":"closed"}',
        'done {"id":3,"s":"closed"}',
        'late {"id":1,"s":"open"}',
        'late {"id":3,"s":"open"}',
    ]


def test_what_matched_before_the_start_times_out() -> None:
    bench, peer = with_records()
    put(peer, 1, "open")
    put(peer, 2, "closed")
    bench.core.clock.advance(4)
    put(peer, 3, "open")

    async def restart() -> None:
        bench.add(("amps-action-on-message-condition-timeout", WATCH), echo("{{AMPS_DATA}}"))
        bench.core.clock.advance(2)

    bench.run(restart)
    assert bench.echoes() == ['{"id":1,"s":"open"}']


def test_a_topic_without_records_is_said_and_never_runs() -> None:
    bench = Bench()
    bench.add(("amps-action-on-oof-message", ORDERS), echo(""))
    assert bench.entries("29-0110")[0]["topic"] == "orders"


QUERIES: list[tuple[dict[str, str | list[str]], str]] = [
    ({"Filter": "/s = 'b'"}, '{"id":2,"s":"b"}'),
    ({"Filter": "/id > {{N}}", "OrderBy": "/id DESC"}, '{"id":3,"s":"c"}'),
    ({"Filter": "/id > 7", "DefaultData": "none {{N}}"}, "none 0"),
    ({"Filter": "/id > 7"}, "before"),
    ({"Filter": "/id = 1", "Options": "select=[-/,+/s]"}, '{"s":"a"}'),
    ({"Filter": "/s = 'b'", "Topic": "^ord"}, '{"id":2,"s":"b"}'),
    ({"Filter": "1=1", "OrderBy": "/id", "Options": "skip_n=1"}, '{"id":2,"s":"b"}'),
    (
        {"Filter": "1=1", "OrderBy": "/id", "Options": "skip_n=2", "Topic": "^(ord|oth)ers$"},
        '{"id":3,"s":"c"}',
    ),
    ({"Filter": "1=1", "Options": "skip_n=3", "DefaultData": "none"}, "none"),
    (
        {"Filter": "/id > 1", "Options": "projection=[COUNT(/id) AS /n,/k],grouping=[/k]"},
        '{"n":2,"k":null}',
    ),
    (
        {
            "Filter": "1=1",
            "OrderBy": "/s DESC",
            "Options": "projection=[/s],grouping=[/s],skip_n=1",
        },
        '{"s":"b"}',
    ),
]


@pytest.mark.parametrize(("more", "expected"), QUERIES)
def test_queries(more: dict[str, str | list[str]], expected: str) -> None:
    bench, peer = with_records()
    for number, state in enumerate("abc", 1):
        put(peer, number, state)
    step: Use = ("amps-action-do-query-sow", {**ORDERS, "CaptureData": "D", **more})
    bench.add(None, step, echo("{{D}}"))
    bench.perform(N=b"0", D=b"before")
    assert bench.echoes() == [expected]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (("amps-action-do-query-sow", {**ORDERS, "CaptureData": "D", "Filter": "/a ="}), "bad"),
        (
            ("amps-action-do-query-sow", {**ORDERS, "Topic": "x", "CaptureData": "D"}),
            "keeps no records",
        ),
        (
            ("amps-action-do-delete-sow", {**ORDERS, "Filter": "{{UNSET}}"}),
            "a sow_delete needs one of these",
        ),
        (("amps-action-do-delete-sow", {**ORDERS, "Topic": "x", "Filter": "1=1"}), "no records"),
        (("amps-action-do-compact-sow", {**ORDERS, "Topic": "x"}), "no records"),
        (
            (
                "amps-action-do-publish-message",
                {**ORDERS, "Data": '{"id":9}', "Delta": "true", "UpdateOnly": "true"},
            ),
            "no record",
        ),
    ],
)
def test_steps_that_cannot_be(step: Use, reason: str) -> None:
    bench, _ = with_records()
    bench.add(None, step)
    bench.perform()
    assert reason in str(bench.entries("29-0101")[0]["reason"])


def test_deleting_without_a_filter_empties_the_topic() -> None:
    bench, peer = with_records()
    put(peer, 1, "a")
    bench.add(None, ("amps-action-do-delete-sow", ORDERS))
    bench.perform()
    (sow,) = bench.core.engine.sow_registry.topics
    assert len(sow.table) == 0


def test_deleting_and_compacting() -> None:
    bench, peer = with_records()
    for number, state in enumerate("abc", 1):
        put(peer, number, state)
    delete: Use = ("amps-action-do-delete-sow", {**ORDERS, "Topic": "^ord", "Filter": "/id < 3"})
    bench.add(None, delete, ("amps-action-do-compact-sow", {}), echo("done"))
    bench.perform()
    (sow,) = bench.core.engine.sow_registry.topics
    assert (len(sow.table), bench.echoes()) == (1, ["done"])


def test_a_value_cannot_widen_a_filter() -> None:
    bench, peer = with_records()
    put(peer, 1, "a")
    bench.add(None, ("amps-action-do-delete-sow", {**ORDERS, "Filter": "/s = '{{X}}'"}))
    bench.perform(X=b"' OR 1=1 OR '")
    (sow,) = bench.core.engine.sow_registry.topics
    assert len(sow.table) == 1


def test_a_delta_may_be_for_updates_only() -> None:
    bench, peer = with_records()
    put(peer, 1, "a")
    bench.add(
        None,
        (
            "amps-action-do-publish-message",
            {**ORDERS, "Data": '{"id":1,"t":2}', "Delta": "true", "UpdateOnly": "true"},
        ),
    )
    bench.perform()
    (sow,) = bench.core.engine.sow_registry.topics
    assert sow.find_by_body(b'{"id":1}')[0].body == b'{"id":1,"s":"a","t":2}'
