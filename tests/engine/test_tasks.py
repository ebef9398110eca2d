"""Work that no command waits for is done in slices, between which connections are served."""

from __future__ import annotations

import gc
import json
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from server.expressions import BUILTINS
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.topic import Topic
from server.topics.topic_table import TopicTable
from tests.engine.busy import BUSY, busy_core, log_on, numbers, subscriptions
from tests.engine.support import Core
from tests.storage.sow.support import SECOND, Disk, topic_spec
from tests.support.raw import frame
from tests.support.waiting import WAIT_SECONDS


@pytest.fixture
def core() -> Core:
    """An engine whose work takes time."""
    return busy_core()


def test_what_waits_for_a_commit_goes_on_in_slices(core: Core, tmp_path: Path) -> None:
    """In order, a part in each turn, however much a commit has made safe."""
    core.record(tmp_path, "^orders$")
    reached: list[int] = []
    core.clock.work_per_look = 0.0
    peer = log_on(core, "publisher")
    for number in range(1000):
        peer.send({"c": "publish", "t": "orders", "s": number + 1}, b"{}")
        core.transaction_log.when_durable(partial(reached.append, number))
    core.clock.work_per_look = BUSY
    core.commit()
    at_once = len(reached)
    core.transaction_log.when_durable(partial(reached.append, 1000))  # overtakes nobody
    turns = 0
    while len(reached) < 1001:
        before = len(reached)
        core.clock.turn()
        assert len(reached) - before <= 512
        turns += 1
        assert turns < 100
    assert at_once <= 512
    assert reached == list(range(1001))
    core.transaction_log.close()


def test_acks_that_wait_for_a_file_go_on_in_slices(core: Core, tmp_path: Path) -> None:
    """In order, a part in each turn, however many share a synchronisation."""
    core.clock.work_per_look = 0.0
    may_begin = Event()

    def synchronise(_: int) -> None:
        may_begin.wait(WAIT_SECONDS)

    disk = Disk(tmp_path, synchronise, start=core.engine.scheduler.start_task)
    store, _ = disk.open(slab_size=1 << 20)
    topic = SowTopicRecords(topic_spec("/id", name="kept"), core.types["json"], store, BUILTINS)
    core.engine.sow_registry.add(topic, store.commit)
    peer = log_on(core, "publisher")
    publish = {"c": "publish", "t": "kept", "a": "persisted"}
    for number in range(1000):
        peer.send({**publish, "cid": str(number)}, b'{"id":1}')
    assert numbers(peer) == []
    core.clock.work_per_look = BUSY
    may_begin.set()
    disk.settle()
    core.engine.flush()
    told = numbers(peer)
    turns = 0
    while len(told) < 1000:
        core.clock.turn()
        some = numbers(peer)
        assert len(some) <= 512
        told += some
        turns += 1
        assert turns < 100
    assert turns > 1
    assert told == list(range(1000))
    store.close()
    disk.close()


def test_idle_topics_are_forgotten_in_slices(core: Core) -> None:
    """Whoever publishes to one of them, or subscribes, does so as ever."""
    core.clock.work_per_look = 0.0
    topics = core.engine.topics = TopicTable(
        core.types,
        BUILTINS,
        core.engine.sow_registry,
        core.engine.scheduler.queue_task,
        max_kept_bytes=43_822_240,
    )
    publisher, subscriber = log_on(core, "publisher"), log_on(core, "subscriber")
    subscriber.send({"c": "subscribe", "sub_id": "any", "t": "^any/"})
    names = [
        f"{kind}/{number}" for number in range(2500) for kind in ("any", "one")
    ]  # take all of that
    publisher.send_bytes(b"".join(frame({"c": "p", "t": name}, b"first") for name in names))
    subscriber.take_frames()
    assert len(topics) == 5000
    core.clock.work_per_look = BUSY
    core.clock.worked += 1  # so that the publisher no longer counts as busy
    publisher.send({"c": "p", "t": "one too many", "cid": "1"}, b"")
    turns = 0
    for name in names[::99]:
        before = len(topics)
        core.clock.turn()
        assert before - len(topics) <= 500
        turns += before > len(topics)
        if name.startswith("one"):
            subscriber.send({"c": "subscribe", "sub_id": name, "t": name})
        publisher.send({"c": "p", "t": name}, b"again")
        (received,) = subscriber.take_frames()
        assert (received[0]["t"], received[1]) == (name, b"again")
    assert turns > 5
    assert len(topics) < 100


def test_topics_that_are_forgotten_are_let_go_of(core: Core) -> None:
    """Also by subscriptions to regular expressions, which may stay for very long."""
    topics = core.engine.topics = TopicTable(
        core.types,
        BUILTINS,
        core.engine.sow_registry,
        core.engine.scheduler.queue_task,
        max_kept_bytes=100,
    )
    publisher, subscriber = log_on(core, "publisher"), log_on(core, "subscriber")
    for number in range(10):
        subscriber.send({"c": "subscribe", "sub_id": str(number), "t": "^any/"})
    for number in range(1000):
        publisher.send({"c": "p", "t": f"any/{number}"}, b"")
        core.clock.turn()
    assert len(topics) <= 101
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Topic) and one.name[:4] == "any/"]
    assert len(kept) <= 101
    kept.clear()
    subscriber.send({"c": "unsubscribe", "sub_id": "all"})
    core.clock.advance(0)
    subscriber.take_frames()
    publisher.send({"c": "p", "t": "any/999"}, b"")
    assert subscriber.take_frames() == []


@pytest.mark.parametrize("how", ["closed by the server", "left"])
def test_the_end_of_a_session_with_many_subscriptions_takes_turns(core: Core, how: str) -> None:
    """Its client gets nothing more from the first moment on, and is gone in the end."""
    core.clock.work_per_look = 0.0
    publisher, holder = log_on(core, "publisher"), log_on(core, "holder")
    watcher = log_on(core, "watcher")
    watcher.send({"c": "subscribe", "sub_id": "w", "t": "/AMPS/ClientStatus"})
    holder.send_bytes(subscriptions(range(500)) + subscriptions(range(500, 1000), f="/a = 1"))
    holder.take_frames()
    watcher.take_frames()
    core.clock.work_per_look = BUSY
    if how == "left":
        holder.leave()
    else:
        next(one for one in core.engine.sessions if one.client_name == "holder").close("test")
    assert len(core.engine.sessions) == 2
    ended_in: list[int] = []
    for _ in range(1000):
        publisher.send({"c": "publish", "t": "orders", "cid": "1"}, b'{"a":1}')
        core.clock.turn()
        core.engine.flush()
        events = [json.loads(body)["ClientStatus"]["event"] for _, body in watcher.take_frames()]
        ended_in.append(events.count("unsubscribe"))
        if "disconnect" in events:
            break
    assert events[-1] == "disconnect"
    assert len([count for count in ended_in if count]) > 5
    assert sum(ended_in) == 1000
    assert holder.take_frames() == []
    assert core.engine.sessions_ending == 0
    (said,) = [fields for entry, fields in core.log.entries if entry == "07-0013"]
    assert said["client"] == "holder"


def test_records_that_expire_together_go_in_slices(core: Core) -> None:
    """Each is told of; one that is published again meanwhile stays."""
    core.clock.work_per_look = 0.0
    core.keep(topic_spec("/id", name="brief", expiration_enabled=True, expiration=SECOND))
    publisher, watcher = log_on(core, "publisher"), log_on(core, "watcher")
    watcher.send({"c": "subscribe", "sub_id": "1", "t": "brief", "o": "oof"})
    publisher.send_bytes(
        b"".join(frame({"c": "p", "t": "brief"}, b'{"id":%d}' % number) for number in range(2000))
    )
    core.clock.advance(0)
    watcher.take_frames()
    core.clock.work_per_look = BUSY
    core.clock.time += 1.0
    turns, gone = 0, 0
    while gone < 1999:
        core.clock.turn()
        some = sum(header["c"] == "oof" for header, _ in watcher.take_frames())
        assert some <= 500
        if not turns:
            publisher.send({"c": "p", "t": "brief"}, b'{"id":1999}')
            watcher.take_frames()
        gone += some
        turns += 1
        assert turns < 100
    assert turns > 5
    core.clock.work_per_look = 0.0
    core.clock.advance(0.5)
    watcher.take_frames()
    watcher.send({"c": "sow", "cid": "q", "t": "brief", "a": "stats"})
    core.clock.advance(0)
    stats = [header for header, _ in watcher.take_frames() if header.get("a") == "stats"]
    assert stats[0]["matches"] == 1


def test_a_record_does_not_expire_in_a_pause_while_others_do(core: Core) -> None:
    """It may have been published again, in what has come in the pause and is still to be read."""
    core.clock.work_per_look = 0.0
    core.keep(topic_spec("/id", name="brief", expiration_enabled=True, expiration=SECOND))
    publisher, watcher = log_on(core, "publisher"), log_on(core, "watcher")
    watcher.send({"c": "subscribe", "sub_id": "1", "t": "brief", "o": "oof"})
    publisher.send({"c": "p", "t": "brief", "e": 30}, b'{"id":2000}')
    publisher.send_bytes(
        b"".join(frame({"c": "p", "t": "brief"}, b'{"id":%d}' % number) for number in range(2000))
    )
    core.clock.advance(0)
    watcher.take_frames()

    def gone() -> int:
        return sum(header["c"] == "oof" for header, _ in watcher.take_frames())

    core.clock.work_per_look = BUSY
    core.clock.time += 1.0
    core.clock.turn()
    some = gone()
    assert 0 < some < 2000
    core.clock.paused = 60.0
    for _ in range(100):
        core.clock.turn()
        some += gone()
    assert some == 2000
    core.clock.work_per_look = 0.0
    core.clock.paused = 0.0
    core.clock.advance(60.0)
    assert gone() == 1
