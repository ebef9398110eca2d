"""What one instance records, another one records, applies and delivers."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from config_schema.problems import Location
from config_schema.spec import QueueSpec
from server.expressions import BUILTINS
from server.journal import Entry
from server.sow.chain_file import ChainFile
from server.sow.chaining import ChainingKeys, chaining_options
from server.sow.recovery import apply_entry
from server.topics.keeper import Keeper
from server.topics.queue_fabric import Fabric
from server.topics.queue_recovery import recover_queues
from server.topics.queue_surroundings import Surroundings
from server.topics.queue_table import Queues
from server.wire.bookmarks import client_hash
from tests.core.busy import BUSY
from tests.core.replicas import Replica, Road
from tests.core.support import Core, CorePeer
from tests.journal.support import FailingDisk
from tests.sow.support import Disk as SowDisk
from tests.sow.support import make_topic, topic_spec
from tests.support.sow import split_records
from tests.views.support import view

Prepare = Callable[[Core], None]
Make = Callable[..., Replica]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes instances."""
    made: list[Replica] = []

    def make(name: str, prepare: Prepare = lambda _: None, **more: Any) -> Replica:
        made.append(Replica(name, tmp_path, prepare=prepare, **more))
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
    """The messages that have come."""
    return [(head, body) for head, body in peer.take_frames() if head["c"] in ("p", "oof")]


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
        found.setdefault(sub_id, []).append(tuple(rest))  # type: ignore[arg-type]  # of four, which mypy loses
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


def keep_by(*keys: str, **more: Any) -> Prepare:
    """Topic `orders` has records with other keys."""
    return lambda core: core.keep(topic_spec(*keys), **more)


def no_records(_: Core) -> None:
    """There are no topics with records."""


ORDERS = [b'{"id":%d,"other":%d}' % (number, number // 2) for number in range(20)]


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


def test_what_can_never_be_recorded_is_passed_over(make: Make, tmp_path: Path) -> None:
    """A record that is too large for the topic's file, and a message that is for the journal."""
    disk = SowDisk(tmp_path)
    store, _ = disk.open()
    one, two = make("one", keep_by("/id")), make("two", keep_by("/id", store=store))
    peer = one.client("publisher")
    for size in (10, 70_000, 20, 100_000, 30):
        publish(peer, "orders", b'{"id":%d,"pad":"%s"}' % (size, b"x" * size))
    Road(one, two).carry()
    assert len(two.entries()) == len(records(two)) == 3
    assert two.said() == ["1D-0022"]
    assert two.core.log.entries[0][1]["count"] == 2
    assert "SlabSize" in str(two.core.log.entries[0][1]["problem"])
    disk.close()


def test_a_full_disk_holds_up_what_comes(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the topic's file. It is said; nothing is lost, nothing comes twice, the order stays."""
    disk = SowDisk(tmp_path)
    store, _ = disk.open()
    one, two = make("one", keep_by("/id")), make("two", keep_by("/id", store=store))
    reader = two.client("reader")
    reader.send({"c": "subscribe", "cid": "1", "t": "orders"})
    peer = one.client("publisher")
    count = 500
    for number in range(1, count + 1):
        publish(peer, "orders", b'{"id":%d,"pad":"%s"}' % (number, b"x" * 1000), s=number)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_space)
        road = Road(one, two)
        road.carry()
        assert road.receiver.is_stalled
        before = len(two.entries())
        assert 0 < before < count
        assert before == len(records(two))
        assert two.said() == ["1D-0024"]
        assert road.receiver.go_on().new == 0
        two.core.clock.advance(61)
        assert two.said() == ["1D-0024", "1D-0024"]
    road.receiver.go_on()
    road.carry()
    assert two.said()[2:] == ["1D-0025"]
    assert [entry.sequence for entry in two.entries()] == list(range(1, count + 1))
    assert records(two) == records(one)
    assert len(frames(reader)) == count
    disk.close()


def test_a_full_journal_holds_up_what_comes(make: Make) -> None:
    disk = FailingDisk()
    one, two = make("one", keep_orders), make("two", keep_orders, disk=disk)
    peer = one.client("publisher")
    count = 3000
    for number in range(1, count + 1):
        topic = "log" if number % 100 else "orders"
        publish(peer, topic, b'{"id":%d,"pad":"%s"}' % (number, b"x" * 1000), s=number)
    disk.full = True
    road = Road(one, two)
    road.carry()
    assert road.receiver.is_stalled
    assert two.said() == ["1D-0024"]
    assert 0 < len(two.entries()) < count
    disk.full = False
    while road.receiver.is_stalled:
        road.receiver.go_on()
        road.settle()
    road.carry()
    assert [entry.sequence for entry in two.entries()] == list(range(1, count + 1))
    assert records(two) == records(one)
    assert two.said() == ["1D-0024", "1D-0025"]


def no_space(*_: int) -> None:
    """A disk that is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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


def serve_jobs(core: Core) -> None:
    """Queue `jobs` takes the messages of `work`, also those that are in the log already."""
    spec = QueueSpec(
        kind="Queue",
        name="jobs",
        message_type="json",
        underlying_topic="work",
        underlying_is_regex=False,
        default_publish_target="work",
        lease_period=None,
        semantics="at-least-once",
        max_backlog=None,
        max_per_subscription_backlog=100,
        expiration=None,
        expiration_model="default",
        filter="/skip IS NULL",
        recovery_point="epoch",
        fairness_model="fast",
        leasing="sublet",
        max_deliveries=0,
        max_cancels=0,
        retry_delay=None,
        max_retry_delay=0,
        dead_letter_topic="dead",
        priority=None,
        barrier_expression=None,
        order_key=None,
        file_backed_metadata=False,
        target_queue_depth=None,
        deferred_ack_expiration=86_400_000_000_000,
        initial_owner=None,
        group_local_queue_domain=None,
        name_has_regex_characters=False,
        location=Location("config.xml", 1),
    )
    engine = core.engine
    surroundings = Surroundings(
        core.transaction_log,
        engine.topics,
        core.clock,
        engine.turns.queue,
        core.log,
        Fabric(),
        "group",
        lambda message_type, name: False,
    )
    queues = Queues([spec], core.types, BUILTINS, "name", surroundings)
    engine.topics.use_queues(queues)
    recover_queues(queues, core.transaction_log.journal, lambda: None, core.log)


def test_queues_take_what_comes_and_what_has_become_of_it(make: Make) -> None:
    """Messages, also with correlation ids; acknowledgements, of messages that somebody here has,
    too, and before their messages have come."""
    one, two = make("one", serve_jobs), make("two", serve_jobs)
    road = Road(one, two)
    peer = one.client("publisher")
    for number in range(1, 11):
        extras = {"x": "mark"} if number % 3 == 0 else {}
        body = b'{"n":%d%s}' % (number, b',"skip":1' if number == 5 else b"")
        publish(peer, "work", body, s=number, **extras)
    road.carry()
    consumer = two.client("consumer")
    consumer.send({"c": "subscribe", "cid": "1", "t": "jobs", "o": "max_backlog=100"})
    two.core.clock.turn()
    two.core.engine.flush()
    came = frames(consumer)
    assert [(json.loads(body)["n"], head.get("x")) for head, body in came] == [
        (number, None if number % 3 else "mark") for number in range(1, 11) if number != 5
    ]

    client = client_hash("publisher")
    worker = one.client("worker")
    worker.send({"c": "sow_delete", "t": "jobs", "bm": f"{client}|1|,{client}|2|"})
    worker.send({"c": "sow_delete", "t": "jobs", "bm": f"{client}|3|", "o": "expire"})
    worker.send({"c": "sow_delete", "t": "jobs", "bm": f"{client}|12|"})
    publish(peer, "work", b'{"n":11}', s=11)
    publish(peer, "work", b'{"n":12}', s=12)
    road.carry()
    two.core.clock.turn()
    two.core.engine.flush()
    assert [json.loads(body)["n"] for _, body in frames(consumer)] == [11]
    assert two.core.engine.topics.queues is not None
    (queue,) = two.core.engine.topics.queues
    assert queue.core.depth == 7
    for replica in (one, two):
        replica.core.clock.turn()
    road.carry()
    letters = [
        [essence(one) for one in replica.entries() if one.topic.name == "dead"]
        for replica in (one, two)
    ]
    assert letters[0] == letters[1]
    assert len(letters[0]) == 1


def test_a_restart_writes_no_letters_of_other_instances(make: Make, tmp_path: Path) -> None:
    """Here the letter has not come yet; the instance where the message expired sends it."""
    one, two = make("one", serve_jobs), Replica("two", tmp_path, prepare=serve_jobs)
    publish(one.client("publisher"), "work", b"{}", s=1)
    mark = f"{client_hash('publisher')}|1|"
    one.client("worker").send({"c": "sow_delete", "t": "jobs", "bm": mark, "o": "expire"})
    Road(one, two).carry()
    kinds = [entry.topic.name for entry in two.entries()]
    assert kinds == ["work", "jobs"]
    two.close()

    again = make("two", serve_jobs)
    again.core.clock.turn()
    assert [entry.topic.name for entry in again.entries()] == kinds
    assert again.said() == []
    one.core.clock.turn()
    assert [entry.topic.name for entry in one.entries()] == [*kinds, "dead"]


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
