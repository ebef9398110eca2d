"""Instances compare their records over their links, say what they have found, and repair it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.engine.scheduler import Scheduler
from server.replication.anti_entropy.coordinator import (
    COMPARISON_INTERVAL_S,
    FIRST_COMPARISON_DELAY_S,
    AntiEntropyCoordinator,
)
from server.replication.anti_entropy.republisher import RecordRepublisher
from server.replication.apply.republish import RepairPublisher
from server.replication.links.registry import LinkRegistry
from server.topics.subscriptions.delivery.outbox import Outboxes
from tests.engine.support import CorePeer
from tests.replication.links.members import Member, destination
from tests.replication.links.support import OpenGate, Pipe
from tests.storage.sow.support import topic_spec

SOW = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>records.sow</FileName>
  </Topic>
</SOW>
"""


class Instance(Member):
    """A member that keeps records, has links, and compares."""

    def __init__(self, directory: Path, name: str, destinations: str = "") -> None:
        super().__init__(directory, name, destinations, SOW)
        core = self.core
        core.keep(topic_spec("/id", name="records"))
        engine = core.engine
        turns = Scheduler(
            core.clock, core.clock.now, Outboxes(core.clock.now), core.log, core.clock.now
        )
        self.links = LinkRegistry(self.replication, turns, core.clock, core.log)
        repairs = RecordRepublisher(RepairPublisher(engine.topics, core.clock), core.log)
        self.comparing = AntiEntropyCoordinator(
            self.replication, engine.sow_registry, repairs, self.links, turns, core.clock, core.log
        )
        self.publisher: CorePeer = self.client(f"publisher of {name}")

    def publish(self, number: int, text: str, **more: int) -> None:
        body = f'{{"id":{number},"text":"{text}"}}'.encode()
        self.publisher.send({"c": "publish", "t": "records", **more}, body)

    def delete(self, number: int) -> None:
        filter_ = f"/id = {number}"
        self.publisher.send({"c": "sow_delete", "t": "records", "filter": filter_})

    def records(self) -> dict[int, bytes]:
        """The bodies that there are."""
        store = next(iter(self.core.engine.sow_registry.topics)).table.store
        bodies = [store.read_record(row).body for _, row in store.identities()]
        return {int(body.split(b":")[1].split(b",")[0]): body for body in bodies}


class Pair:
    """Two instances, and the connection between them."""

    def __init__(self, a: Instance, b: Instance) -> None:
        self.a, self.b = a, b
        self.ends: tuple[Pipe, ...] = ()

    def connect(self) -> None:
        ours, theirs = Pipe("localhost:1"), Pipe("localhost:50000")
        ours.other, theirs.other = theirs, ours
        theirs.link = self.b.links.accept(theirs, "replication", OpenGate())
        ours.link = self.a.links.connect(ours, "out", "b", ("", ""), lambda _: None)
        self.ends = ours, theirs
        self.pass_time(2)

    def cut(self) -> None:
        for end in self.ends:
            assert end.link is not None
            end.link.connection_lost()
        self.ends = ()

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds * 20)):
            for end in self.ends:
                end.arrive()
            for instance in (self.a, self.b):
                instance.core.commit()
                instance.core.clock.advance(0.05)

    def differ(self) -> set[int]:
        ours, theirs = self.a.records(), self.b.records()
        return {key for key in ours.keys() | theirs if ours.get(key) != theirs.get(key)}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    a = Instance(tmp_path, "a", destination("b", topic="records"))
    b = Instance(tmp_path, "b", destination("a", topic="records"))
    yield Pair(a, b)
    for instance in (a, b):
        instance.comparing.close()
        instance.links.close()
        instance.close()


def fall_apart(pair: Pair) -> None:
    """Let both have the same messages in two orders."""
    for number in range(300):
        pair.a.publish(number, "first")
    pair.connect()
    pair.cut()
    for number in (3, 5):
        pair.a.publish(number, "at a")
        pair.b.publish(number, "at b")
    pair.a.delete(7)
    pair.b.publish(7, "again")
    pair.connect()
    assert pair.differ() == {3, 5, 7}


def found(instance: Instance) -> list[tuple[str, object, object]]:
    """What the log says that comparisons have found."""
    entries = instance.core.log.entries
    return [
        (one, fields["topic"], fields.get("count", fields.get("records", fields.get("reason"))))
        for one, fields in entries
        if one in ("1E-0013", "1E-0014", "1E-0015", "1E-0016")
    ]


def test_instances_in_step_say_so_after_a_while(pair: Pair) -> None:
    for number in range(200):
        pair.a.publish(number, "first")
    pair.connect()
    pair.pass_time(FIRST_COMPARISON_DELAY_S + 5)
    assert found(pair.a) == found(pair.b) == [("1E-0013", "records", 200)]
    result = pair.b.comparing.history.latest["a", "json", "records"]
    assert (result.differing, result.unclear, result.failure) == (0, 0, "")


def test_it_is_looked_again_every_hour(pair: Pair) -> None:
    pair.a.publish(1, "first")
    pair.connect()
    pair.pass_time(FIRST_COMPARISON_DELAY_S + 5)
    for instance in (pair.a, pair.b):
        instance.core.clock.advance(COMPARISON_INTERVAL_S - 10)
    pair.connect()
    pair.pass_time(FIRST_COMPARISON_DELAY_S + 20)
    assert len(found(pair.a)) == len(found(pair.b)) >= 2


def test_what_differs_is_named_by_both(pair: Pair) -> None:
    fall_apart(pair)
    assert pair.b.comparing.compare() == 1
    pair.pass_time(10)
    assert found(pair.a) == found(pair.b) == [("1E-0014", "records", 3)]
    keys = pair.a.comparing.history.latest["b", "json", "records"].keys
    assert len(keys) == 3
    assert pair.a.comparing.history.state == {"keys of records that differ from b": 3}


def test_a_repair_brings_them_in_step(pair: Pair) -> None:
    fall_apart(pair)
    before = pair.a.records(), pair.b.records()
    assert pair.a.comparing.compare("b", "records", repair=True) == 1
    pair.pass_time(10)
    assert not pair.differ()
    for key in (3, 5):
        assert pair.a.records()[key] in (before[0][key], before[1][key])
    assert b"again" in pair.a.records()[7]
    repaired = [entry for one in (pair.a, pair.b) for entry in one.said("1E-0017")]
    assert sum(entry["count"] for entry in repaired) == 3  # type: ignore[misc]  # fields are objects
    assert pair.a.comparing.compare() == 1
    pair.pass_time(10)
    assert found(pair.a)[-1] == ("1E-0013", "records", 300)


def test_a_late_publish_that_brings_a_record_back_is_found_and_repaired(pair: Pair) -> None:
    """Of what has been deleted nothing is kept: which came later is known in the logs alone."""
    movers = {one.name: one.client("mover") for one in (pair.a, pair.b)}

    def send(at: Instance, command: str, number: int, body: bytes = b"", **more: object) -> None:
        movers[at.name].send({"c": command, "t": "records", "s": number, **more}, body)

    send(pair.a, "publish", 1, b'{"id":7,"text":"first"}')
    pair.connect()
    pair.cut()
    send(pair.a, "publish", 2, b'{"id":7,"text":"late"}')
    send(pair.b, "sow_delete", 3, filter="/id = 7")
    assert pair.b.records() == {}
    pair.connect()
    assert pair.a.records() == {}, "the deletion came last"
    assert b"late" in pair.b.records()[7], "the message came last"
    pair.a.comparing.compare()
    pair.pass_time(10)
    assert found(pair.a) == found(pair.b) == [("1E-0014", "records", 1)]
    pair.b.comparing.compare(repair=True)
    pair.pass_time(10)
    assert not pair.differ()
    assert b"late" in pair.a.records()[7]
    pair.a.delete(7)
    pair.pass_time(2)
    assert pair.a.records() == pair.b.records() == {}


def test_what_a_repair_publishes_reaches_subscribers_with_a_bookmark(pair: Pair) -> None:
    fall_apart(pair)
    peers = [one.client(f"subscriber of {one.name}") for one in (pair.a, pair.b)]
    for peer in peers:
        peer.send({"c": "subscribe", "t": "records", "opts": "bookmark,timestamp"})
        peer.take_frames()
    pair.a.comparing.compare(repair=True)
    pair.pass_time(10)
    told = [[body for header, body in peer.take_frames() if header["c"] == "p"] for peer in peers]
    assert sorted(told[0]) == sorted(told[1])
    assert len(told[0]) == 3


def test_an_instance_that_goes_away_is_not_waited_for(pair: Pair) -> None:
    fall_apart(pair)
    pair.a.comparing.compare()
    pair.pass_time(0.2)
    pair.cut()
    pair.pass_time(1)
    assert found(pair.a) == [("1E-0016", "records", "the link with b is gone")]
    pair.connect()
    pair.a.comparing.compare()
    pair.pass_time(10)
    assert found(pair.a)[-1] == ("1E-0014", "records", 3)


def test_one_that_only_receives_asks_and_takes_over_what_its_source_has(tmp_path: Path) -> None:
    excluded = "<ExcludeValidation>replicate</ExcludeValidation>"
    a = Instance(tmp_path, "a", destination("b", topic="records", elements=excluded))
    b = Instance(tmp_path, "b")
    pair = Pair(a, b)
    for number in range(20):
        a.publish(number, "first")
    pair.connect()
    b.publish(3, "at b")  # a never gets this
    b.delete(4)
    pair.pass_time(2)
    assert a.comparing.compare() == 0
    assert b.comparing.compare(repair=True) == 1
    pair.pass_time(30)
    assert found(b) == [("1E-0014", "records", 1)]  # of what only b has, a cannot say anything
    assert b.records()[4] == a.records()[4]
    for instance in (a, b):
        instance.comparing.close()
        instance.links.close()
        instance.close()
