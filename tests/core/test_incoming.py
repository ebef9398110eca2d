"""What one instance records, another one records, applies and delivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server.journal import Entry
from server.sow.recovery import apply_entry
from server.topics.keeper import Keeper
from server.wire.bookmarks import client_hash
from tests.core.replicas import Replica, Road
from tests.core.support import Core, CorePeer
from tests.sow.support import make_topic, topic_spec

Prepare = Callable[[Core], None]
Make = Callable[..., Replica]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes instances."""
    made: list[Replica] = []

    def make(name: str, prepare: Prepare = lambda _: None, pattern: str = ".*") -> Replica:
        made.append(Replica(name, tmp_path, pattern, prepare))
        return made[-1]

    yield make
    for one in made:
        one.close()


def keep_orders(core: Core) -> None:
    """Topic `orders` has records."""
    core.keep(topic_spec("/id", expiration_enabled=True))


def publish(peer: CorePeer, topic: str, body: bytes, **header: Any) -> None:
    """Publish a message."""
    peer.send({"c": "publish", "t": topic} | header, body)


def frames(peer: CorePeer) -> list[tuple[dict[str, Any], bytes]]:
    """What has come but acks."""
    return [(head, body) for head, body in peer.take_frames() if head["c"] != "ack"]


def records(replica: Replica, topic: str = "orders") -> dict[str, tuple[bytes, str, str]]:
    """The records of a topic by key."""
    keeper = replica.core.engine.stores.find("json", topic)
    assert keeper is not None
    return contents(keeper)


def contents(keeper: Keeper) -> dict[str, tuple[bytes, str, str]]:
    """The records of a topic by key."""
    table = keeper.table
    found = [table.store.record(row) for _, row in table.store.identities()]
    return {one.key: (one.body, one.bookmark, one.correlation_id) for one in found}


def essence(entry: Entry) -> tuple[object, ...]:
    """What is the same of an entry on all instances."""
    return (
        entry.client,
        entry.sequence,
        entry.kind,
        entry.topic,
        entry.body,
        entry.sow_key,
        entry.given_key,
        entry.correlation_id,
        entry.expiration,
        entry.origin.auth_id,
    )


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


def at_sub_ids(
    came: list[tuple[dict[str, Any], bytes]],
) -> list[tuple[str, str, str, bytes, str]]:
    """What each subscription got, in order."""
    return [
        (sub_id, head["c"], head["t"], body, head.get("bm", ""))
        for head, body in came
        for sub_id in head.get("sids", head.get("sub_id", "")).split(",")
    ]


def by_subscription(
    came: list[tuple[dict[str, Any], bytes]],
) -> dict[str, list[tuple[str, str, bytes, str]]]:
    """The same for each of them."""
    found: dict[str, list[tuple[str, str, bytes, str]]] = {}
    for sub_id, *rest in at_sub_ids(came):
        found.setdefault(sub_id, []).append(tuple(rest))  # type: ignore[arg-type]
    return found


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


def test_what_is_not_recorded_here_is_said_and_passed_over(make: Make) -> None:
    """The next topic is recorded all the same; it is said at once, and then once a minute."""
    one, two = make("one"), make("two", pattern="^log$")
    peer = one.client("publisher")
    road = Road(one, two)
    for _ in range(3):
        publish(peer, "orders", b'{"id":1}')
        publish(peer, "log", b'{"id":1}')
        road.carry()
    assert len(two.entries()) == 3
    assert [entry[0] for entry in two.core.log.entries] == ["1D-0022"]
    two.core.clock.advance(61)
    assert [entry[1]["count"] for entry in two.core.log.entries] == [1, 2]
    two.core.clock.advance(600)
    assert len(two.said()) == 2
    assert two.core.log.entries[0][1]["source"] == "one"
