"""Publishers are told what is settled: here, and at each destination that is waited for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.replication.links.link_events import LinkDirection, LinkEvent
from tests.engine.support import CorePeer
from tests.replication.links.members import Member, carry, connect, destination
from tests.storage.sow.support import topic_spec

DONE: list[tuple[str | None, str | None]] = [("x", "success")]
Command = Callable[[CorePeer], None]


def publish(peer: CorePeer, topic: str = "orders", body: bytes = b'{"id":1}', **more: int) -> None:
    peer.send({"c": "publish", "t": topic, "cid": "x", "a": "persisted", **more}, body)


def publish_numbered(peer: CorePeer) -> None:
    publish(peer, s=7)


def publish_again(peer: CorePeer) -> None:
    peer.send({"c": "publish", "t": "orders", "s": 5}, b"{}")
    publish(peer, s=5)


def publish_and_flush(peer: CorePeer) -> None:
    peer.send({"c": "publish", "t": "orders"}, b"{}")
    peer.send({"c": "flush", "cid": "x", "a": "persisted"})


def publish_delta(peer: CorePeer) -> None:
    peer.send({"c": "delta_publish", "t": "records", "cid": "x", "a": "persisted"}, b'{"id":2}')


def delete(peer: CorePeer) -> None:
    peer.send({"c": "publish", "t": "records"}, b'{"id":2}')
    peer.send(
        {"c": "sow_delete", "t": "records", "cid": "x", "a": "persisted", "filter": "/id = 2"}
    )


COMMANDS: dict[str, tuple[Command, list[tuple[str | None, str | None]]]] = {
    "a publish": (publish, DONE),
    "a publish with a number": (publish_numbered, [(None, "success")]),
    "one that has been sent before": (publish_again, [("x", "failure")]),
    "flush": (publish_and_flush, DONE),
    "a delta": (publish_delta, DONE),
    "a deletion": (delete, DONE),
}


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    a = Member(tmp_path, "a", destination("b", topic="^(orders|records)"))
    b = Member(tmp_path, "b")
    for member in (a, b):
        member.core.keep(topic_spec("/id", name="records"))
    yield a, b
    a.close()
    b.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_sync_destination_is_waited_for(members: tuple[Member, Member], name: str) -> None:
    a, b = members
    command, expected = COMMANDS[name]
    publisher = a.client()
    command(publisher)
    a.core.commit()
    assert a.told(publisher) == []
    connect(a, b)
    assert a.told(publisher) == []
    carry(a, b)
    assert a.told(publisher) == expected


def test_whoever_waits_for_the_disk_only_does_not_wait_for_others(
    members: tuple[Member, Member],
) -> None:
    a, _ = members
    subscriber = a.client("subscriber")
    subscriber.send(
        {"c": "subscribe", "t": "orders", "cid": "s", "bm": "0", "a": "processed,completed"}
    )
    publish(a.client())
    a.core.commit()
    a.core.clock.advance(1)
    bodies = [body for header, body in subscriber.take_frames() if header["c"] == "p"]
    assert bodies == [b'{"id":1}']


def test_fully_durable_subscriptions_get_what_is_settled(members: tuple[Member, Member]) -> None:
    a, b = members
    subscriber = a.client("subscriber")
    subscriber.send({"c": "subscribe", "t": "orders", "cid": "s", "bm": "0", "o": "fully_durable"})
    publish(a.client())
    a.core.commit()
    a.core.clock.advance(1)
    assert subscriber.take_frames() == []
    carry(a, b)
    a.core.clock.advance(1)
    assert [body for _, body in subscriber.take_frames()] == [b'{"id":1}']


def test_what_goes_to_no_sync_destination_is_settled_here(tmp_path: Path) -> None:
    a = Member(tmp_path, "a", destination("b") + destination("c", "async", ".*"))
    b = Member(tmp_path, "b")
    publisher = a.client()
    publish(publisher, "local")
    a.core.commit()
    assert a.told(publisher) == DONE
    publish(publisher, "orders")
    a.core.commit()
    assert a.told(publisher) == []
    publish(publisher, "local")  # acks come in the order of the commands that they are for
    a.core.commit()
    assert a.told(publisher) == []
    carry(a, b)
    assert a.told(publisher) == [*DONE, *DONE]
    a.close()
    b.close()


def test_many_who_wait_go_on_in_their_order(members: tuple[Member, Member]) -> None:
    a, b = members
    publisher = a.client()
    for number in range(1000):
        publisher.send({"c": "publish", "t": "orders", "cid": f"{number}", "a": "persisted"}, b"{}")
    a.core.commit()
    assert a.told(publisher) == []
    carry(a, b)
    assert a.told(publisher) == [(f"{number}", "success") for number in range(1000)]


def test_a_downgrade_lets_those_go_on_who_wait_and_an_upgrade_has_them_wait_again(
    members: tuple[Member, Member],
) -> None:
    a, b = members
    events: list[tuple[str, LinkDirection]] = []
    a.replication.events.watch(LinkEvent.DOWNGRADE, lambda way: events.append(("down", way)))
    a.replication.events.watch(LinkEvent.UPGRADE, lambda way: events.append(("up", way)))
    publisher = a.client()
    publish(publisher)
    a.core.commit()
    assert a.told(publisher) == []
    assert a.replication.downgrade("b")
    assert not a.replication.downgrade("b")
    assert a.told(publisher) == DONE
    publish(publisher)
    a.core.commit()
    assert a.told(publisher) == DONE
    assert a.replication.upgrade("b")
    assert not a.replication.upgrade("b")
    publish(publisher)
    a.core.commit()
    assert a.told(publisher) == []
    carry(a, b)
    assert a.told(publisher) == DONE
    way = LinkDirection("a!b@b-group!sync!amps-replication", "", "b-group", "", "")
    assert events == [("down", way), ("up", way)]
    assert a.said("21-0020") == [{"destination": "b"}]
    assert a.said("29-0105") == [{"client": way.client}]


def test_who_replicates_to_others_acknowledges_when_these_have(tmp_path: Path) -> None:
    passing = "<PassThrough>.*</PassThrough></Destination>"
    a = Member(tmp_path, "a", destination("b"))
    b = Member(tmp_path, "b", destination("c").replace("</Destination>", passing))
    c = Member(tmp_path, "c")
    publisher = a.client()
    publish(publisher)
    carry(a, b)
    assert a.told(publisher) == []
    carry(b, c)
    carry(a, b)
    assert a.told(publisher) == DONE
    for member in (a, b, c):
        member.close()


def test_an_instance_that_has_nothing_waits_for_nothing(tmp_path: Path) -> None:
    a = Member(tmp_path, "a", destination("b") + destination("c", "async"))
    a.core.clock.advance(1000)
    assert a.replication.destination_lags() == []
    assert a.replication.downgrade_late(1) == []
    a.close()


@pytest.mark.parametrize("ahead", [7200, -7200])
def test_a_clock_that_is_set_makes_nobody_late(tmp_path: Path, ahead: int) -> None:
    a = Member(tmp_path, "a", destination("b"))
    publish(a.client())
    a.core.commit()
    a.core.clock.set_ahead(ahead)
    assert a.replication.downgrade_late(5_000_000) == []
    a.core.clock.advance(10)
    assert a.replication.downgrade_late(5_000_000) == ["b"]
    a.close()


def test_downgrades_by_age_leave_as_many_as_are_to_stay(tmp_path: Path) -> None:
    tuning = (
        "<Tuning><Replication><MinSyncDestinations>1</MinSyncDestinations></Replication></Tuning>"
    )
    a = Member(tmp_path, "a", destination("b") + destination("c"), tuning)
    publish(a.client())
    a.core.commit()
    a.core.clock.advance(10)
    assert a.replication.downgrade_late(20_000_000) == []
    assert [one.destination for one in a.replication.destination_lags()] == ["b", "c"]
    assert a.replication.downgrade_late(5_000_000) == ["b"]
    assert a.said("29-0104") == [{"destination": "b", "seconds": 5}]
    assert a.said("1E-0024") == [{"destination": "c", "least": 1}]
    assert a.replication.downgrade_late(5_000_000) == []
    assert len(a.said("1E-0024")) == 1
    assert a.replication.upgrade_recovered(5_000_000) == []
    assert a.replication.upgrade_recovered(50_000_000) == ["b"]
    a.close()


def waiting_objects() -> int:
    """How many things there are that wait for stable storage, or for other instances."""
    return sum(type(one).__name__ in ("_Waiting", "_Crowd") for one in gc.get_objects())


def test_what_waits_for_long_is_bounded(members: tuple[Member, Member]) -> None:
    """And all is acknowledged in the end, in the order of the commands."""
    a, b = members
    publisher = a.client()
    before = waiting_objects()
    for number in range(1, 5001):
        publisher.send({"c": "publish", "t": "orders", "s": number, "a": "persisted"}, b"{}")
        if not number % 500:
            a.core.commit()
    publish(publisher, s=7)  # which has been sent before
    for number in range(5001, 6001):
        publisher.send({"c": "publish", "t": "records", "s": number, "a": "persisted"}, b"{}")
    assert waiting_objects() - before < 600
    assert a.told(publisher) == []
    acks: list[tuple[str | None, str, int]] = []
    while len(acks) < 3 or acks[-1] != (None, "success", 6000):
        carry(a, b)
        a.core.clock.advance(1.1)
        a.core.engine.flush()
        acks += [
            (header.get("cid"), header["status"], header["s"])
            for header, _ in publisher.take_frames()
        ]
    duplicate = acks.index(("x", "failure", 7))
    assert [number for _, _, number in acks[:duplicate]][-1] == 5000
    numbers = [number for _, status, number in acks if status == "success"]
    assert numbers == sorted(numbers)


def logon(member: Member) -> tuple[int, str]:
    """What a publisher is told at its logon: what it need not keep, and what it has published."""
    peer = member.core.connect()
    peer.send(
        {"c": "logon", "cid": "1", "client_name": "publisher", "mt": "json", "a": "processed"}
    )
    member.core.clock.advance(0.1)
    (answer,) = [header for header, _ in peer.take_frames() if header["c"] == "ack"]
    return answer["s"], answer["bm"].split("|")[1]


def test_a_publisher_that_comes_back_is_told_what_is_settled(tmp_path: Path) -> None:
    """It would forget all up to that number, of which other instances may have nothing."""
    a, b = Member(tmp_path, "a", destination("b")), Member(tmp_path, "b")
    publisher = a.client()
    assert logon(a) == (0, "0")
    publisher = a.client()
    for number in (1, 2, 3):
        publish(publisher, s=number)
    assert logon(a) == (0, "3")
    carry(a, b)
    assert logon(a) == (3, "3")
    publisher = a.client()
    for number in range(4, 1004):
        publish(publisher, s=number)
        if number % 100 == 0:
            a.core.commit()
    assert logon(a) == (3, "1003")
    a.core.commit()
    a.store()
    a.kill()
    a = Member(tmp_path, "a", destination("b"))
    assert logon(a) == (3, "1003")
    carry(a, b)
    assert logon(a) == logon(b) == (1003, "1003")
    a.close()
    b.close()
