"""What one instance records, another one records, applies and delivers."""

from __future__ import annotations

from typing import Any

import pytest

from amperage.wire.bookmarks import client_hash
from tests.engine.busy import BUSY
from tests.engine.incoming import (
    Make,
    by_subscription,
    essence,
    frames,
    keep_orders,
    publish,
    records,
)
from tests.engine.replicas import Road


def test_entries_are_the_same_on_both(make: Make) -> None:
    """Identities, numbers, keys and users stay; source and path say where they came from."""
    one, two = make("one", keep_orders), make("two", keep_orders)
    peer = one.client("publisher")
    publish(peer, "orders", b'{"id":1,"a":1}', s=5)
    publish(peer, "orders", b'{"id":1,"b":2}', s=7, x="mark", e=100)
    peer.send({"c": "delta_publish", "t": "orders", "s": 8}, b'{"id":1,"c":3}')
    publish(peer, "log", b"no number")
    publish(peer, "log", b"number", s=9, x="mark", k="key")
    peer.send({"c": "sow_delete", "t": "orders", "filter": "/id = 1", "s": 10})
    Road(one, two).carry()

    sent, came = one.entries(), two.entries()
    assert len(sent) == 6
    assert [essence(entry) for entry in came] == [essence(entry) for entry in sent]
    assert {(entry.source, entry.origin.path) for entry in came} == {(client_hash("one"), "one")}
    assert [entry.source_txid for entry in came] == [
        entry.txid if entry.sequence != entry.txid else entry.source_txid for entry in sent
    ]
    assert records(one) == records(two) == {}


def test_records_are_those_of_the_source(make: Make) -> None:
    one, two = make("one", keep_orders), make("two", keep_orders)
    peer = one.client("publisher")
    for number in range(50):
        publish(peer, "orders", b'{"id":%d,"a":%d}' % (number % 7, number), s=number + 1)
    peer.send({"c": "delta_publish", "t": "orders", "s": 51, "x": "x"}, b'{"id":3,"b":1}')
    peer.send({"c": "sow_delete", "t": "orders", "filter": "/id IN (1, 2)"})
    Road(one, two).carry()
    assert len(records(one)) == 5
    assert records(two) == records(one)
    assert two.said() == []


def test_subscribers_hear_of_it_as_at_the_source(make: Make) -> None:
    """Plain, filtered, conflated, delta and out-of-focus: each gets the same on both instances."""
    one, two = make("one", keep_orders), make("two", keep_orders)
    readers = []
    for replica in (one, two):
        peer = replica.client("reader")
        for sub_id, header in {
            "all": {"t": "orders", "o": "bookmark"},
            "few": {"t": "orders", "filter": "/a > 10", "o": "oof"},
            "delta": {"c": "delta_subscribe", "t": "orders", "filter": "/id = 3"},
            "log": {"t": "log", "o": "bookmark"},
            "logged": {"t": "log", "filter": "/a > 10"},
            "past": {"t": ".*", "bm": "0"},
        }.items():
            peer.send({"c": "subscribe", "cid": sub_id, "sub_id": sub_id} | header)
        readers.append(peer)
    road = Road(one, two)
    peer = one.client("publisher")
    for number in range(40):
        body = b'{"id":%d,"a":%d}' % (number % 7, number * 7 % 23)
        publish(peer, "log" if number % 3 else "orders", body, s=number + 1)
        if number % 10 == 9:
            peer.send({"c": "sow_delete", "t": "orders", "filter": f"/id = {number % 4}"})
        if number % 4 == 0:
            road.carry()
    road.carry()
    at_one, at_two = (frames(reader) for reader in readers)
    assert by_subscription(at_two) == by_subscription(at_one)
    assert by_subscription(at_one).keys() == {"all", "few", "delta", "log", "logged", "past"}
    assert {head["c"] for head, _ in at_two} == {"p", "oof"}


@pytest.mark.parametrize("count", [1, 7, 3000])
def test_runs_of_any_length_are_recorded(make: Make, count: int) -> None:
    """Also across blocks and journal files (1 MiB each)."""
    one, two = make("one", keep_orders), make("two", keep_orders)
    peer = one.client("publisher")
    pad = b"x" * 900
    for number in range(1, count + 1):
        publish(peer, "log", b'{"id":%d,"pad":"%s"}' % (number, pad), s=number)
    publish(peer, "orders", b'{"id":1}', s=count + 1)
    Road(one, two).carry()
    sent, came = one.entries(), two.entries()
    assert [essence(entry) for entry in came] == [essence(entry) for entry in sent]
    assert len(came) == count + 1
    assert two.journal.last_sequence(client_hash("publisher")) == count + 1


def test_what_is_missing_comes_later(make: Make) -> None:
    """A publisher moves on before its messages have got there: a gap, which another way fills."""
    one, two, three = make("one", keep_orders), make("two", keep_orders), make("three", keep_orders)
    first, second = one.client("publisher"), two.client("publisher")
    for number in range(1, 6):
        publish(first, "orders", b'{"id":%d}' % number, s=number)
    for number in range(6, 9):
        publish(second, "orders", b'{"id":%d}' % number, s=number)
    reader = three.client("reader")
    reader.send({"c": "subscribe", "cid": "1", "t": "orders", "bm": "0"})
    reader.send({"c": "subscribe", "cid": "2", "sub_id": "plain", "t": "orders", "o": "bookmark"})
    Road(two, three).carry()
    Road(one, three).carry()
    numbers = [entry.sequence for entry in three.entries()]
    assert numbers == [6, 7, 8, 1, 2, 3, 4, 5]
    assert not three.known.gaps(client_hash("publisher"))
    assert len(records(three)) == 8
    came = by_subscription(frames(reader))
    expected = [b'{"id":%d}' % number for number in numbers]
    assert [[body for _, _, body, _ in got] for got in came.values()] == [expected, expected]

    Road(one, two).carry()
    assert [entry.sequence for entry in two.entries()] == [6, 7, 8, 1, 2, 3, 4, 5]
    assert Road(one, two).carry().new == 0


def test_a_message_with_the_name_of_another_one_is_told_of(make: Make) -> None:
    """On both sides of a partition somebody uses a name and a number."""
    one, two = make("one"), make("two")
    for replica in (one, two):
        peer = replica.client("publisher")
        for number in range(1, 20):
            body = replica.name.encode() if number == 11 else b"the same"
            publish(peer, "log", body, s=number, x="mark" if number % 2 else "")
    taken = Road(one, two).carry()
    assert (taken.new, taken.duplicates) == (0, 19)
    assert [conflict.sequence for conflict in taken.conflicts] == [11]


def test_a_deletion_may_come_from_elsewhere_while_it_is_carried_out(make: Make) -> None:
    """Its publisher has gone to another instance with it: it counts once, as what follows it."""
    one, two = make("one", keep_orders), make("two", keep_orders)
    peer, road = one.client("publisher"), Road(one, two)
    for number in range(1, 301):
        publish(peer, "orders", b'{"id":%d}' % number, s=number)
    road.carry()
    commands: list[tuple[dict[str, Any], bytes]] = [
        ({"c": "sow_delete", "t": "orders", "f": "1=1", "s": 301}, b""),
        ({"c": "publish", "t": "orders", "s": 302}, b'{"id":1}'),
    ]
    moved = two.client("publisher")
    two.core.clock.work_per_look = BUSY
    for command, body in commands:
        peer.send(command, body)
        moved.send(command | {"a": "processed"}, body)
    assert moved.is_paused
    moved.take_frames()
    road.carry()
    two.core.clock.work_per_look = 0.0
    two.core.clock.advance(0)
    assert [head["reason"] for head, _ in moved.take_frames()] == ["duplicate", "duplicate"]
    client = client_hash("publisher")
    numbers = [entry.sequence for entry in two.entries() if entry.client == client]
    assert numbers == list(range(1, 303))
