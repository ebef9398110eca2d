"""What comes from another instance, and cannot be recorded here: never, or not yet."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.engine.incoming import (
    Make,
    frames,
    keep_by,
    keep_orders,
    publish,
    records,
)
from tests.engine.replicas import Road
from tests.storage.journal.support import FailingDisk
from tests.storage.sow.support import Disk as SowDisk


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


def no_space(*_: int) -> None:
    """A disk that is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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
        assert road.receiver.is_blocked
        before = len(two.entries())
        assert 0 < before < count
        assert before == len(records(two))
        assert two.said() == ["1D-0024"]
        assert road.receiver.resume_batch().new == 0
        two.core.clock.advance(61)
        assert two.said() == ["1D-0024", "1D-0024"]
    road.receiver.resume_batch()
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
    assert road.receiver.is_blocked
    assert two.said() == ["1D-0024"]
    assert 0 < len(two.entries()) < count
    disk.full = False
    while road.receiver.is_blocked:
        road.receiver.resume_batch()
        road.settle()
    road.carry()
    assert [entry.sequence for entry in two.entries()] == list(range(1, count + 1))
    assert records(two) == records(one)
    assert two.said() == ["1D-0024", "1D-0025"]
