"""Connections take turns: what one sends is obeyed in slices, between which the others are served.

Time is counted in looks at the clock: each takes as long as the test says. A look belongs to each
command, and to each run of publishes.
"""

from __future__ import annotations

import gc
import json
import zlib
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from server.core.turns import LONG_READ, LONG_SECONDS, SHORT_TURN_SECONDS, TURN_SECONDS
from server.expressions import BUILTINS
from server.filters.base import IncomingCommand, Verdict
from server.sow.topic import SowTopic
from server.topics.table import TopicTable
from server.topics.topic import Topic
from server.wire.compression import Compression
from tests.core.support import Core, CorePeer
from tests.sow.support import SECOND, Disk, topic_spec
from tests.support.raw import frame
from tests.support.waiting import WAIT_SECONDS

BUSY = TURN_SECONDS / 4
"""A look at the clock takes so long that a few make a turn."""


@pytest.fixture
def core() -> Core:
    """An engine whose work takes time."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    core.clock.work_per_look = BUSY
    return core


def heartbeats(count: int) -> bytes:
    """Commands that are acknowledged one by one."""
    return b"".join(
        frame({"c": "heartbeat", "cid": str(number), "a": "processed"}) for number in range(count)
    )


def numbers(peer: CorePeer) -> list[int]:
    """Which of them have been acknowledged since the last time."""
    return [int(header["cid"]) for header, _ in peer.take_frames() if header["c"] == "ack"]


def log_on(core: Core, name: str) -> CorePeer:
    """A client whose answers have been read."""
    peer = core.log_on(name)
    peer.take_frames()
    return peer


def test_what_is_left_of_a_slice_waits_for_turns(core: Core) -> None:
    """All of it is obeyed in order, a little in each turn, and the socket is not read meanwhile."""
    peer = log_on(core, "busy")
    peer.send_bytes(heartbeats(40))
    obeyed = numbers(peer)
    assert 0 < len(obeyed) < 10
    assert peer.is_paused
    turns = 0
    while peer.is_paused:
        core.clock.turn()
        answered = numbers(peer)
        assert len(answered) < 10
        obeyed += answered
        turns += 1
    assert obeyed == list(range(40))
    assert turns > 4


def test_a_request_is_answered_in_the_next_turn(core: Core) -> None:
    """However much another client has sent, and without waiting for any of it."""
    busy, quiet = log_on(core, "busy"), log_on(core, "quiet")
    busy.send_bytes(heartbeats(1000))
    numbers(busy)
    quiet.send_bytes(heartbeats(1))
    assert numbers(quiet) == [0]
    assert busy.is_paused


def test_connections_share_turns(core: Core) -> None:
    """Those who have something stand in a queue, and none gets much more than another."""
    peers = [log_on(core, f"busy {number}") for number in range(3)]
    for peer in peers:
        peer.send_bytes(heartbeats(100))
    answered = [len(numbers(peer)) for peer in peers]
    for _ in range(30):
        core.clock.turn()
        answered = [
            before + len(numbers(peer)) for before, peer in zip(answered, peers, strict=True)
        ]
    assert max(answered) - min(answered) < 10


def test_a_long_read_is_followed_by_a_look_at_the_others(core: Core) -> None:
    """A turn's time is counted over all long reads in a row."""
    peer = log_on(core, "busy")
    message = frame({"c": "publish", "t": "nobody"}, b"x" * 1000)
    read = message * (LONG_READ // len(message) + 1)
    reads = 0
    while not peer.is_paused:
        peer.send_bytes(read)
        reads += 1
        assert reads < 20
    core.clock.advance(0)
    assert not peer.is_paused


def test_what_long_reads_have_used_is_not_given_out_again(core: Core) -> None:
    """Between two looks at the sockets there is one turn's time, whoever uses it."""
    peer = log_on(core, "busy")
    peer.send_bytes(heartbeats(2000))
    assert numbers(peer)
    assert peer.is_paused
    core.clock.turn()
    assert not numbers(peer)
    core.clock.turn()
    assert numbers(peer)


def test_a_long_read_waits_behind_those_who_wait(core: Core) -> None:
    """Nothing of it is obeyed before its turn comes."""
    first, second = log_on(core, "first"), log_on(core, "second")
    first.send_bytes(heartbeats(2000))
    for _ in range(2):
        core.clock.turn()
    second.send_bytes(heartbeats(2000))
    assert second.is_paused
    assert not numbers(second)
    for _ in range(5):
        core.clock.turn()
    assert numbers(second)


def test_turns_are_short_while_others_are_heard(core: Core) -> None:
    """Who sends alone gets more done in a turn than who keeps others waiting by that."""
    busy, quiet = log_on(core, "busy"), log_on(core, "quiet")
    core.clock.work_per_look = SHORT_TURN_SECONDS / 4
    core.clock.worked += 10  # since anybody has been heard
    busy.send_bytes(heartbeats(2000))

    def done_in_turns() -> int:
        for _ in range(30):
            core.clock.turn()
        core.engine.flush()
        return len(numbers(busy))

    alone = done_in_turns()
    quiet.send_bytes(heartbeats(1))
    beside = done_in_turns()
    assert 0 < 2 * beside < alone


def test_outboxes_leave_in_slices(core: Core) -> None:
    """However many connections a message is for, those first that have waited longest."""
    subscribers = [log_on(core, f"subscriber {number}") for number in range(200)]
    publisher = log_on(core, "publisher")
    for subscriber in subscribers:
        subscriber.send({"c": "subscribe", "t": "orders"})
        subscriber.take_frames()
    core.clock.advance(0)
    publisher.send({"c": "publish", "t": "orders"}, b"news")
    left = [bool(subscriber.received) for subscriber in subscribers]
    turns = 0
    while not all(left):
        before = sum(left)
        assert left == sorted(left, reverse=True)
        core.clock.turn()
        left = [bool(subscriber.received) for subscriber in subscribers]
        assert before < sum(left) <= before + 64
        turns += 1
    assert turns > 2
    assert all(len(subscriber.take_frames()) == 1 for subscriber in subscribers)


def test_nobody_is_served_while_outboxes_fill_faster_than_they_leave(core: Core) -> None:
    """So what waits in them does not grow with what is sent."""
    subscribers = [log_on(core, f"subscriber {number}") for number in range(100)]
    for subscriber in subscribers:
        subscriber.send({"c": "subscribe", "t": "orders"})
    core.clock.advance(0)
    for subscriber in subscribers:
        subscriber.take_frames()
    publisher = log_on(core, "publisher")
    body = b"x" * 80_000
    each = [{"c": "publish", "t": "orders", "cid": str(number)} for number in range(60)]
    publisher.send_bytes(b"".join(frame(header, body) for header in each))
    behind = 0
    for _ in range(2000):
        core.clock.turn()
        got = [len(subscriber.received) // len(body) for subscriber in subscribers]
        behind = max(behind, max(got) - min(got))
        if min(got) == 60:
            break
    else:
        raise AssertionError("not everything has left")
    assert behind <= 10


def test_publishes_keep_their_order_over_turns(core: Core) -> None:
    """In runs that are cut, and whether they are numbered or not."""
    subscriber, publisher = log_on(core, "subscriber"), log_on(core, "publisher")
    subscriber.send({"c": "subscribe", "sub_id": "1", "t": "orders"})
    sent = [b"%d" % number for number in range(3000)]
    plain, numbered = (
        b"".join(
            frame({"c": "publish", "t": "orders", **({"s": at + 1} if with_number else {})}, body)
            for at, body in enumerate(sent)
        )
        for with_number in (False, True)
    )
    for stream in plain, numbered:
        for start in range(0, len(stream), 50_000):
            publisher.send_bytes(stream[start : start + 50_000])
        assert publisher.is_paused
        core.clock.advance(0)
        received = [body for header, body in subscriber.take_frames() if header["c"] == "p"]
        assert received == sent


def test_what_was_sent_before_the_connection_ended_is_done(core: Core) -> None:
    """The session ends after that."""
    subscriber, publisher = log_on(core, "subscriber"), log_on(core, "publisher")
    subscriber.send({"c": "subscribe", "sub_id": "1", "t": "orders"})
    publisher.send_bytes(
        b"".join(frame({"c": "publish", "t": "orders", "cid": "1"}, b"%d" % n) for n in range(100))
    )
    publisher.leave()
    assert len(core.engine.sessions) == 2
    core.clock.advance(0)
    received = [body for header, body in subscriber.take_frames() if header["c"] == "p"]
    assert received == [b"%d" % n for n in range(100)]
    assert len(core.engine.sessions) == 1


def test_nothing_is_done_for_a_peer_that_has_gone(core: Core) -> None:
    """Its queries end, and those that it has sent as well as its subscriptions do not begin."""
    subscriber, leaver = log_on(core, "subscriber"), log_on(core, "leaver")
    subscriber.send({"c": "subscribe", "sub_id": "1", "t": "orders"})
    for number in range(50):
        subscriber.send({"c": "publish", "t": "records"}, b'{"id":%d}' % number)
    query = {"t": "records", "query_id": "1", "sub_id": "1", "cid": "q", "a": "completed"}
    leaver.send_bytes(
        heartbeats(1)
        + frame({"c": "sow", **query})
        + heartbeats(40)
        + frame({"c": "sow", **query})
        + frame({"c": "sow_and_subscribe", **query})
        + frame({"c": "subscribe", "sub_id": "2", "t": "orders", "cid": "q", "a": "completed"})
        + frame({"c": "publish", "t": "orders"}, b"last words")
    )
    assert leaver.is_paused
    leaver.leave()
    leaver.take_frames()
    subscriber.take_frames()
    core.clock.advance(0)
    assert {header["c"] for header, _ in leaver.take_frames()} == {"ack"}  # of heartbeats
    assert [body for _, body in subscriber.take_frames()] == [b"last words"]


def test_a_client_that_waits_for_a_turn_is_not_taken_for_silent(core: Core) -> None:
    """Its heartbeats may be among what has not been read."""
    peer = log_on(core, "busy")
    peer.send({"c": "heartbeat", "o": "start,1"})
    peer.send_bytes(heartbeats(100))
    assert peer.is_paused
    core.clock.time += 10
    core.clock.turn()
    core.clock.advance(0)
    assert not peer.hung_up


def test_a_session_that_is_closed_lets_go_of_what_waits(core: Core) -> None:
    """Nothing of it is obeyed any more."""
    peer = log_on(core, "busy")
    peer.send_bytes(heartbeats(100))
    numbers(peer)
    for session in core.engine.sessions:
        if session.client_name == "busy":
            session.close("connection closed")
            break
    core.clock.advance(0)
    assert numbers(peer) == []
    assert peer.hung_up


def test_queries_and_connections_take_turns(core: Core) -> None:
    """A query beside a busy connection goes on in each turn, and so does the connection."""
    publisher, busy, asker = (log_on(core, name) for name in ("publisher", "busy", "asker"))
    core.clock.work_per_look = 0.0
    for number in range(3000):
        publisher.send({"c": "p", "t": "records"}, json.dumps({"id": number}).encode())
    core.clock.work_per_look = BUSY
    busy.send_bytes(heartbeats(1000))
    asker.send({"c": "sow", "cid": "1", "t": "records", "a": "completed", "bs": 10})
    for _ in range(2000):
        core.clock.turn()
        if any(header["c"] == "ack" for header, _ in asker.take_frames()):
            break
    else:
        raise AssertionError("the query did not end")
    assert busy.is_paused
    assert numbers(busy)


class Failing:
    """A transport filter with a defect that a certain command brings out."""

    header_only = True

    def filter(self, command: IncomingCommand) -> Verdict:
        """Fail at the command."""
        if command.header.command_id == "50":
            raise ValueError("a defect")
        return Verdict.PASS


def test_a_defect_that_shows_in_a_turn_costs_its_connection_only(core: Core) -> None:
    """It is closed rather than left waiting, and the turns go on."""
    good = log_on(core, "good")
    core.entrance = replace(core.entrance, filters=(Failing(),))
    bad = log_on(core, "bad")
    for peer in bad, good:
        peer.send_bytes(heartbeats(100))
    for _ in range(200):
        try:
            core.clock.turn()
        except ValueError:
            break
    else:
        raise AssertionError("the defect did not show")
    core.clock.advance(0)
    assert bad.hung_up
    assert not good.hung_up
    assert numbers(good) == list(range(100))


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

    disk = Disk(tmp_path, synchronise, start=core.engine.turns.start)
    store, _ = disk.open(slab_size=1 << 20)
    topic = SowTopic(topic_spec("/id", name="kept"), core.types["json"], store, BUILTINS)
    core.engine.stores.add(topic, store.commit)
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
        core.types, BUILTINS, core.engine.stores, core.engine.turns.queue, most_kept=43_822_240
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


def test_a_logon_waits_for_what_its_name_has_sent(core: Core, tmp_path: Path) -> None:
    """All of that is obeyed, then the first connection ends, then the second is logged on."""
    core.record(tmp_path, "^orders$")
    first = log_on(core, "twice")
    publishes = [frame({"c": "publish", "t": "orders", "cid": "1", "s": n + 1}) for n in range(100)]
    first.send_bytes(b"".join(publishes))
    assert first.is_paused
    second = core.connect()
    second.send({"c": "logon", "client_name": "twice", "mt": "json", "a": "processed"})
    second.send({"c": "publish", "t": "orders", "cid": "1", "s": 101, "a": "processed"})
    assert second.take_frames() == []
    core.clock.advance(0.5)
    assert first.hung_up
    logon, publish = (header for header, _ in second.take_frames())
    assert (logon["status"], logon["s"]) == ("success", 100)
    assert publish["status"] == "success"
    core.transaction_log.close()


def test_a_logon_does_not_wait_for_long(core: Core, tmp_path: Path) -> None:
    """However much the first connection has sent, and however long that takes."""
    core.record(tmp_path, "^orders$")
    first = log_on(core, "twice")
    first.send_bytes(heartbeats(100))
    second = core.connect()
    second.send({"c": "logon", "client_name": "twice", "mt": "json", "a": "processed"})
    assert second.take_frames() == []
    core.clock.time += 2.0
    core.clock.turn()
    core.clock.turn()
    assert first.hung_up
    assert len(numbers(first)) < 100
    assert [header["status"] for header, _ in second.take_frames()] == ["success"]
    core.transaction_log.close()


def test_topics_that_are_forgotten_are_let_go_of(core: Core) -> None:
    """Also by subscriptions to regular expressions, which may stay for very long."""
    topics = core.engine.topics = TopicTable(
        core.types, BUILTINS, core.engine.stores, core.engine.turns.queue, most_kept=100
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


def test_what_takes_long_is_said(core: Core) -> None:
    """With whose it was and the command's name, and nothing else of the command."""
    peer = log_on(core, "slow")
    longest = core.engine.turns.longest
    assert longest.count == 0
    assert longest.work == "logon"
    core.clock.work_per_look = LONG_SECONDS
    peer.send({"c": "sow", "t": "records", "f": "/secret = 1"})
    core.clock.work_per_look = 0.0
    peer.send({"c": "heartbeat"})
    assert (longest.client, longest.work, longest.count) == ("slow", "sow", 1)
    (entry,) = [fields for entry_id, fields in core.log.entries if entry_id == "01-0010"]
    assert (entry["client"], entry["work"]) == ("slow", "sow")
    assert entry["milliseconds"] == round(longest.seconds * 1000)
    assert "secret" not in str(entry)


def test_a_compressed_stream_is_inflated_a_piece_at_a_time(core: Core) -> None:
    """Few bytes that stand for many commands take as many turns as the commands do."""
    peer = core.connect()
    compression = zlib.compressobj()
    logon = {"c": "logon", "cid": "1", "client_name": "small", "mt": "json"}
    commands = frame(logon) + frame({"c": "publish", "t": "nobody", "cid": "1"}) * 200_000
    packed = compression.compress(commands) + compression.flush(zlib.Z_SYNC_FLUSH)
    assert len(packed) < LONG_READ
    peer.read_compressed(Compression())
    peer.send_bytes(packed)
    turns = 0
    while peer.is_paused:
        core.clock.turn()
        turns += 1
    assert turns > 20


def subscriptions(ids: range, **options: str) -> bytes:
    """Commands that subscribe to one topic many times."""
    return b"".join(
        frame({"c": "subscribe", "sub_id": str(n), "t": "orders", **options}) for n in ids
    )


def test_ending_all_subscriptions_takes_turns(core: Core) -> None:
    """Meanwhile others are served; what the client asks for after it comes after it."""
    core.clock.work_per_look = 0.0
    holder, publisher = log_on(core, "holder"), log_on(core, "publisher")
    holder.send_bytes(subscriptions(range(1000)))
    holder.take_frames()
    core.clock.work_per_look = BUSY
    holder.send_bytes(
        frame({"c": "unsubscribe", "sub_id": "all", "cid": "end", "a": "processed"})
        + frame({"c": "subscribe", "sub_id": "0", "t": "orders", "cid": "anew", "a": "processed"})
    )
    turns = 0
    while holder.is_paused:
        publisher.send({"c": "publish", "t": "orders", "cid": "1"}, b"%d" % turns)
        core.clock.turn()
        turns += 1
    publisher.send({"c": "publish", "t": "orders", "cid": "1"}, b"last")
    received = holder.take_frames()
    acks = [header["cid"] for header, _ in received if header["c"] == "ack"]
    listeners = [len(header["sids"].split(",")) for header, _ in received if header["c"] == "p"]
    assert acks == ["end", "anew"]
    assert turns > 5
    assert listeners == sorted(listeners, reverse=True)
    assert all(before - after <= 200 for before, after in pairwise(listeners))
    assert received[-1][0]["sids"] == "0"


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
    assert core.engine.ending == 0
    (said,) = [fields for entry, fields in core.log.entries if entry == "07-0013"]
    assert said["client"] == "holder"


def records(count: int) -> bytes:
    """Publishes of as many records."""
    return b"".join(
        frame({"c": "p", "t": "records"}, b'{"id":%d,"old":1}' % number) for number in range(count)
    )


def bodies_of(core: Core, peer: CorePeer) -> list[dict[str, int]]:
    """The records that there are."""
    peer.take_frames()
    peer.send({"c": "sow", "cid": "q", "t": "records", "bs": 1})
    core.clock.advance(0)
    results = [body for header, body in peer.take_frames() if header["c"] == "sow"]
    return [json.loads(result[result.index(b"}") + 1 :]) for result in results]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_deletion_by_filter_takes_turns(core: Core, tmp_path: Path, is_recorded: bool) -> None:
    """What has been published meanwhile stays; what its client asks for after it comes after it."""
    core.clock.work_per_look = 0.0
    if is_recorded:
        core.record(tmp_path, "^records$")
    deleter, publisher = log_on(core, "deleter"), log_on(core, "publisher")
    publisher.send({"c": "subscribe", "sub_id": "1", "t": "records", "o": "oof"})
    deleter.send_bytes(records(3000))
    core.clock.advance(0)
    publisher.take_frames()
    core.clock.work_per_look = BUSY
    deletion = {"c": "sow_delete", "t": "records", "f": "/old = 1", "cid": "d", "s": 1}
    deleter.send_bytes(
        frame({**deletion, "a": "processed,stats"})
        + frame({"c": "p", "t": "records"}, b'{"id":1,"after":1}')
    )
    turns, gone = 0, []
    while deleter.is_paused:
        publisher.send({"c": "p", "t": "records"}, b'{"id":%d,"new":1}' % (2999 - turns))
        core.clock.turn()
        gone.append(sum(header["c"] == "oof" for header, _ in publisher.take_frames()))
        turns += 1
    core.clock.work_per_look = 0.0
    published = turns
    assert turns > 10
    assert max(gone) <= 500
    left = bodies_of(core, publisher)
    assert {one["id"] for one in left if "new" in one} == set(range(3000 - published, 3000))
    assert [one for one in left if "new" not in one] == [{"id": 1, "after": 1}]
    (stats,) = [header for header, _ in deleter.take_frames() if header.get("a") == "stats"]
    assert (stats["matches"], stats["topic_matches"]) == (3000, 3000)
    assert 3000 - published <= stats["records_deleted"] <= 3000
    if is_recorded:
        core.transaction_log.close()


def test_a_deletion_that_is_cut_short_does_not_count(core: Core, tmp_path: Path) -> None:
    """A client that is disconnected meanwhile may send it again: the log has not its number."""
    core.clock.work_per_look = 0.0
    core.record(tmp_path, "^records$")
    deleter = log_on(core, "deleter")
    deleter.send_bytes(records(1000))
    core.clock.work_per_look = BUSY
    deletion = {"c": "sow_delete", "t": "records", "f": "1=1", "cid": "d", "s": 1}
    deleter.send({**deletion, "a": "processed"})
    assert deleter.is_paused
    core.clock.turn()
    next(iter(core.engine.sessions)).close("connection closed")
    core.clock.advance(0)
    core.clock.work_per_look = 0.0
    again = log_on(core, "deleter")
    left = len(bodies_of(core, again))
    assert 0 < left < 1000
    again.send({**deletion, "a": "processed,stats"})
    core.clock.advance(0)
    acks = [header for header, _ in again.take_frames()]
    assert [ack["status"] for ack in acks] == ["success", "success"]
    assert acks[1]["records_deleted"] == left
    again.send({**deletion, "a": "processed"})
    assert [header["reason"] for header, _ in again.take_frames()] == ["duplicate"]
    core.transaction_log.close()


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
