"""Instances that come back with less than they had, or have less room than they need."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.recovery.test_failover import replay
from tests.support.chances import chance_of
from tests.support.cluster import ORDERS, PAIR, Cluster, Instance, cluster
from tests.support.long_form import ONLY_LONG
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.small_disk import small_disk
from tests.support.sow import query
from tests.support.waiting import wait_until


def publish(instance: Instance, name: str, numbers: range) -> None:
    """Publish orders, and wait until they are acknowledged."""
    with instance.server.log_on(name, o=QUICK_ACKS) as peer:
        send(peer, name, numbers)
        take_ack(peer, numbers[-1])


def send(peer: RawPeer, name: str, numbers: range, pad: int = 500) -> None:
    """Publish orders, whose bodies have `pad` bytes and a few more."""
    with peer.at_once():
        for number in numbers:
            body = json.dumps({"id": f"{name}-{number}", "n": number, "pad": "x" * pad})
            peer.publish("orders", body.encode(), s=number, a="persisted")


def take_ack(peer: RawPeer, number: int) -> None:
    """Wait until everything up to a number is acknowledged."""
    while (ack := peer.receive_header())["s"] < number:
        assert ack["status"] == "success", ack


def come(instance: Instance, count: int) -> None:
    """Wait until an instance has so many messages, by reading each once."""
    with instance.server.log_on("follower") as peer:
        peer.send({"c": "subscribe", "sub_id": "f", "t": "orders", "bm": "0"})
        for _ in range(count):
            peer.receive()


def bodies(instance: Instance) -> list[bytes]:
    """All messages of an instance, whichever publisher's is first."""
    return sorted(replay(instance.server))


def records(instance: Instance) -> list[str]:
    """The keys of the records of an instance."""
    with instance.server.log_on("reader") as peer:
        return sorted(record["id"] for record in query(peer, "orders").messages)


def become_alike(pair: Cluster, count: int) -> None:
    """Wait until both have the same messages, which are so many, and records."""
    one, other = pair
    come(one, count)
    come(other, count)
    wait_until(
        lambda: bodies(one) == bodies(other),
        lambda: f"{one.name} has {len(bodies(one))} messages, {other.name} {len(bodies(other))}",
    )
    assert len(bodies(one)) == count
    assert records(one) == records(other)


@pytest.mark.timeout(300)
def test_an_instance_without_its_disk_gets_everything_back(tmp_path: Path) -> None:
    """Also what it had published itself; and publishers go on with their next numbers."""
    with cluster(tmp_path, PAIR) as pair:
        one, other = pair
        pair.start()
        publish(one, "first", range(1, 2_001))
        publish(other, "second", range(1, 1_001))
        become_alike(pair, 3_000)
        before = bodies(other)
        one.kill()
        one.lose_disk()
        one.start()
        become_alike(pair, 3_000)
        assert bodies(one) == before
        assert other.server.logs(f"1E-0030 {one.name} at ")
        assert one.server.logs(f"1E-0032 {other.name} knows another instance")
        with one.server.connect() as peer:
            assert peer.log_on("first")["s"] == 2_000
        publish(one, "first", range(2_001, 2_101))
        become_alike(pair, 3_100)


def send_unnumbered(instance: Instance, ids: range) -> None:
    """Publish orders without sequence numbers, and wait until the instance has taken them."""
    with instance.server.log_on("plain") as peer:
        for number in ids:
            peer.publish("orders", b'{"id":"plain-%d"}' % number)
        peer.flush()


@pytest.mark.timeout(300)
def test_an_instance_whose_log_is_put_back_gets_back_what_it_lost(tmp_path: Path) -> None:
    """Although it has written past what the other one knows of it: names of both are different."""
    with cluster(tmp_path, PAIR) as pair:
        one, other = pair
        pair.start()
        publish(one, "first", range(1, 51))
        send_unnumbered(one, range(50))
        become_alike(pair, 100)
        one.stop()
        backup = tmp_path / "backup"
        shutil.copytree(one.directory, backup)
        one.start()
        send_unnumbered(one, range(50, 100))
        publish(other, "second", range(1, 51))
        become_alike(pair, 200)
        one.stop()
        other.stop()
        shutil.rmtree(one.directory)
        shutil.copytree(backup, one.directory)
        one.start()
        send_unnumbered(one, range(100, 300))
        other.start()
        become_alike(pair, 400)
        assert other.server.logs("1E-0034 Entry ")
        assert one.server.logs("1E-0035")
        for instance in pair:  # and that is said once
            instance.stop()
        pair.start()
        become_alike(pair, 400)
        assert "1E-0035" not in one.server.log()


@pytest.mark.timeout(300)
def test_a_destination_whose_disk_is_full_gets_the_rest_later(tmp_path: Path) -> None:
    """Its source goes on, acknowledges nothing meanwhile, and loses nothing."""
    count = 6_000
    with cluster(tmp_path, PAIR, elements=ORDERS) as pair:
        one, other = pair
        (other.directory / "journal").mkdir()
        with small_disk(other.directory / "journal", 45) as disk:
            one.start()
            other.start(disk)
            with one.server.log_on("p", o=QUICK_ACKS) as peer:
                send(peer, "p", range(1, 101))
                take_ack(peer, 100)
                disk.fill()
                send(peer, "p", range(101, count + 1), pad=6_000)
                wait_until(
                    lambda: "no space" in other.server.log().lower(),
                    lambda: other.server.log()[-2000:],
                )
                send(peer, "p", range(count + 1, count + 2))
                come(one, count + 1)
                assert len(bodies(other)) < count + 1
                disk.make_space()
                take_ack(peer, count + 1)
            become_alike(pair, count + 1)
            other.kill()


@pytest.mark.timeout(300)
def test_a_bookmark_of_one_instance_leads_to_the_same_place_at_the_other(tmp_path: Path) -> None:
    """What one publisher sends has one order everywhere."""
    with cluster(tmp_path, PAIR) as pair:
        one, other = pair
        pair.start()
        publish(one, "p", range(1, 1_001))
        publish(other, "p", range(1_001, 2_001))
        become_alike(pair, 2_000)
        for instance in pair:
            with instance.server.log_on("reader") as peer:
                peer.send({"c": "subscribe", "sub_id": "a", "t": "orders", "bm": "0"})
                marks = [peer.receive()[0]["bm"] for _ in range(2_000)]
            assert [mark.split("|")[1] for mark in marks] == [str(n) for n in range(1, 2_001)]
            (reading,) = (each for each in pair if each is not instance)
            for place in (0, 500, 999, 1_500):
                with reading.server.log_on("reader") as peer:
                    command = {"c": "subscribe", "sub_id": "b", "t": "orders", "bm": marks[place]}
                    peer.send(command | {"a": "completed"})
                    found = []
                    while (header := peer.receive()[0])["c"] != "ack":
                        found.append(header["bm"])
                assert found == marks[place + 1 :]


@ONLY_LONG
@pytest.mark.timeout(300)
def test_catching_up_is_interrupted_again_and_again(tmp_path: Path) -> None:
    """Either is killed while one without any messages gets them; they go on from there."""
    chance = chance_of()
    count, kills = 40_000, 6
    with cluster(tmp_path, PAIR) as pair:
        one, other = pair
        one.start()
        with one.server.log_on("p") as peer:
            for start in range(1, count, 1_000):
                send(peer, "p", range(start, start + 1_000))
            come(one, count)
        for dying in chance.choices((one, other), k=kills):
            for instance in pair:
                if not instance.is_up:
                    instance.start()
            time.sleep(chance.uniform(0, 0.5))
            dying.kill()
        pair.start()
        become_alike(pair, count)
