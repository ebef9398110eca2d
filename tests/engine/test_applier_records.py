"""Records are made of what other instances have recorded, as of what is published here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amperage.wire.bookmarks import client_hash
from server.storage.sow.keys.chain_file import ChainFile
from server.storage.sow.keys.chaining import ChainingKeys, chaining_options
from server.storage.sow.log_apply import apply_entry
from tests.engine.incoming import (
    ORDERS,
    Make,
    Prepare,
    by_subscription,
    contents,
    frames,
    keep_by,
    keep_orders,
    publish,
    records,
)
from tests.engine.replicas import Replica, Road
from tests.engine.support import Core
from tests.storage.sow.support import make_topic, topic_spec
from tests.storage.views.support import view
from tests.support.sow import split_records


def no_records(_: Core) -> None:
    """There are no topics with records."""


@pytest.mark.parametrize(
    ("at_source", "header"),
    [
        (no_records, {}),
        (no_records, {"k": "text", "x": "mark"}),
        (keep_by("/other"), {}),
        (keep_by("/other"), {"x": "mark"}),
        (keep_by(), {"k": "text"}),
        (keep_by("/id"), {}),
    ],
)
def test_records_have_the_keys_of_this_instance(
    make: Make, at_source: Prepare, header: dict[str, str]
) -> None:
    """Where fields make them: otherwise queries for the fields would not find the records."""
    one, two = make("one", at_source), make("two", keep_by("/id"))
    peer = one.client("publisher")
    for number, body in enumerate(ORDERS, 1):
        publish(peer, "orders", body, s=number, **header)
    Road(one, two).carry()
    assert sorted(body for body, *_ in records(two).values()) == sorted(ORDERS)
    reader = two.client("reader")
    reader.send({"c": "sow", "cid": "q", "t": "orders", "filter": "/id = 7"})
    assert ORDERS[7] in b"".join(body for _, body in reader.take_frames())
    again = make_topic(topic_spec("/id"))
    for entry in two.entries():
        apply_entry(again, entry)
    assert contents(again) == records(two)


@pytest.mark.parametrize("header", [{"k": "text"}, {"k": "17"}, {"k": "text", "x": "mark"}, {}])
def test_keys_that_publishers_give_stay(make: Make, header: dict[str, str]) -> None:
    one, two = make("one", keep_by()), make("two", keep_by())
    peer = one.client("publisher")
    for body in ORDERS:
        publish(peer, "orders", body, **header)
    Road(one, two).carry()
    assert records(two) == records(one)
    assert len(records(two)) == 1


def test_chains_go_on_at_the_other_instance(make: Make, tmp_path: Path) -> None:
    """What has been one chain of ids stays one when its publisher moves."""
    replicas = []
    for name in ("one", "two"):
        chosen = chaining_options(
            {"Primary": ["/id"], "Secondary": ["/before"], "FileName": [f"{name}.chain"]}
        )
        json = Core().types["json"]
        keys = ChainingKeys("orders", json, chosen, ChainFile(tmp_path / chosen.file_name))
        replicas.append(make(name, keep_by(keys=keys)))
    one, two = replicas
    publish(one.client("a"), "orders", b'{"id":"1"}')
    publish(one.client("b"), "orders", b'{"id":"2","before":"1"}')
    Road(one, two).carry()
    publish(two.client("c"), "orders", b'{"id":"3","before":"2"}')
    assert records(two).keys() == records(one).keys()
    assert len(records(two)) == 1


def test_what_other_instances_have_enriched_is_not_enriched_again(make: Make) -> None:
    """And what they have not, neither: records are what the log of the source has."""
    spec = topic_spec(
        "/id",
        preprocessing=("/p + 1 AS /p",),
        enrichment=("/n + 1 AS /n",),
        expiration_enabled=True,
    )
    one, two = (make(name, lambda core: core.keep(spec)) for name in ("one", "two"))
    peer = one.client("publisher")
    for _ in range(3):
        publish(peer, "orders", b'{"id":1,"n":1,"p":1}')
    Road(one, two).carry()
    assert records(two) == records(one)
    assert [body for body, *_ in records(two).values()] == [b'{"id":1,"n":2,"p":2}']


def test_a_record_lives_as_long_as_its_source_says(make: Make) -> None:
    """What is left of its lifetime counts; one without lives for ever, whatever is usual here."""
    one = make("one", lambda core: core.keep(topic_spec("/id", expiration_enabled=True)))
    spec = topic_spec("/id", expiration_enabled=True, expiration=5 * 10**9)
    two = make("two", lambda core: core.keep(spec))
    peer = one.client("publisher")
    publish(peer, "orders", b'{"id":1}', e=100)
    publish(peer, "orders", b'{"id":2}')
    one.core.clock.advance(60)
    Road(one, two).carry()
    two.core.clock.advance(39)
    assert len(records(two)) == 2
    two.core.clock.advance(2)
    assert [body for body, *_ in records(two).values()] == [b'{"id":2}']


def recovered(replica: Replica) -> dict[str, tuple[bytes, str, str]]:
    """The records of `orders`, as the log of an instance gives them."""
    topic = make_topic(topic_spec("/id", expiration_enabled=True))
    for entry in replica.entries():
        if entry.topic.name == "orders":
            apply_entry(topic, entry)
    return contents(topic)


def test_a_late_message_undoes_nothing(make: Make) -> None:
    """Nor does a late deletion; neither now, nor when the records are made from the log."""
    one, two, three = make("one", keep_orders), make("two", keep_orders), make("three", keep_orders)
    first, second = one.client("publisher"), two.client("publisher")
    publish(first, "orders", b'{"id":1,"a":1}', s=1)
    publish(first, "orders", b'{"id":2,"a":2}', s=2)
    publish(first, "orders", b'{"id":3,"a":3}', s=3, x="mark")
    first.send({"c": "sow_delete", "t": "orders", "filter": "/id IN (1, 2)", "s": 4})
    publish(second, "orders", b'{"id":1,"a":5}', s=5)
    publish(second, "orders", b'{"id":3,"a":6}', s=6, x="mark")
    reader = three.client("reader")
    reader.send({"c": "subscribe", "cid": "1", "t": "orders"})
    reader.send({"c": "subscribe", "cid": "2", "sub_id": "past", "t": "orders", "bm": "0"})
    Road(two, three).carry()
    Road(one, three).carry()
    came = by_subscription(frames(reader))
    assert [body for _, _, body, _ in came.pop("past")] == [
        b'{"id":1,"a":5}',
        b'{"id":3,"a":6}',
        b'{"id":1,"a":1}',
        b'{"id":2,"a":2}',
        b'{"id":3,"a":3}',
    ]
    (told,) = came.values()
    assert [body for _, _, body, _ in told] == [
        b'{"id":1,"a":5}',
        b'{"id":3,"a":6}',
        b'{"id":2,"a":2}',
    ]
    Road(two, one).carry()
    assert records(three) == records(one)
    assert {body for body, *_ in records(one).values()} == {b'{"id":1,"a":5}', b'{"id":3,"a":6}'}
    for replica in (one, two, three):
        assert recovered(replica) == records(replica)


def test_views_and_conflated_topics_follow(make: Make) -> None:
    def prepare(core: Core) -> None:
        core.keep(topic_spec("/id"))
        core.derive(view("totals", "orders", "/other AS /other; COUNT(/id) AS /n", "/other"))

    one, two = make("one", prepare), make("two", prepare)
    peer = one.client("publisher")
    reader = two.client("reader")
    reader.send({"c": "subscribe", "cid": "1", "sub_id": "view", "t": "totals"})
    reader.send(
        {
            "c": "sow_and_subscribe",
            "cid": "2",
            "t": "orders",
            "o": "projection=[COUNT(/id) AS /n],grouping=[/other]",
        }
    )
    for body in ORDERS:
        publish(peer, "orders", body)
    peer.send({"c": "sow_delete", "t": "orders", "filter": "/id < 3"})
    Road(one, two).carry()
    assert records(two, "totals") == records(one, "totals")
    assert len(records(two, "totals")) == 9
    got = by_subscription(frames(reader))
    assert len(got["view"]) == 22
    assert len(got) == 2


def test_the_past_is_that_of_this_instance(make: Make) -> None:
    """A query of a past state, by the bookmark of a message that came late, or of one before."""
    history = topic_spec("/id", history=(10**18, 0))
    one, two, three = (
        make(name, lambda core: core.keep(history)) for name in ("one", "two", "three")
    )
    first, second = one.client("publisher"), two.client("publisher")
    for number in (1, 2):
        publish(first, "orders", b'{"id":%d,"n":%d}' % (number, number), s=number)
    for number in (3, 4):
        publish(second, "orders", b'{"id":%d,"n":%d}' % (number - 1, number), s=number)
    Road(two, three).carry()
    Road(one, three).carry()
    publisher = client_hash("publisher")
    expected = {4: [3, 4], 1: [1, 3, 4], 2: [1, 3, 4], 3: [3]}
    for number, values in expected.items():
        reader = three.client("reader")
        reader.send({"c": "sow", "cid": "q", "t": "orders", "bm": f"{publisher}|{number}|"})
        three.core.wait_for_helper()
        sow = [(head, body) for head, body in reader.take_frames() if head["c"] == "sow"]
        found = [json.loads(body)["n"] for head, one in sow for _, body in split_records(head, one)]
        assert sorted(found) == values
