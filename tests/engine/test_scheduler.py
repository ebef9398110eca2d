"""Connections take turns: what one sends is obeyed in slices, between which others are served."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest

from amperage.wire.compression import Compression
from server.engine.scheduler import LONG_READ_SIZE, LONG_TASK_SECONDS, SHORT_ROUND_SECONDS
from server.security.interceptors.base import IncomingCommand, Verdict
from tests.engine.busy import BUSY, busy_core, heartbeats, log_on, numbers
from tests.engine.support import Core
from tests.support.raw import frame


@pytest.fixture
def core() -> Core:
    """An engine whose work takes time."""
    return busy_core()


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
    read = message * (LONG_READ_SIZE // len(message) + 1)
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
    core.clock.work_per_look = SHORT_ROUND_SECONDS / 4
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


def test_short_reads_of_a_busy_connection_do_not_shorten_rounds(core: Core) -> None:
    """As those of a publisher that waits for acks; a client that sends little shortens them."""
    busy, quiet = log_on(core, "busy"), log_on(core, "quiet")
    core.clock.work_per_look = SHORT_ROUND_SECONDS / 4
    core.clock.worked += 10  # since any client has sent something
    busy.send_bytes(heartbeats(300))
    assert busy.is_paused

    def done_per_read() -> int:
        while busy.is_paused:
            core.clock.turn()
        numbers(busy)
        busy.send_bytes(heartbeats(300))
        core.clock.turn()
        core.engine.flush()
        return len(numbers(busy))

    core.clock.worked += 0.05  # the time for which its first read shortens rounds, but for a rest
    alone = [done_per_read() for _ in range(5)][-1]
    quiet.send_bytes(heartbeats(1))
    beside = done_per_read()
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
    header = {"c": "publish", "t": "orders", "cid": "1", "a": "received"}  # each by itself
    publisher.send_bytes(frame(header, body) * 60)
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
    core.entrance = replace(core.entrance, transport_filters=(Failing(),))
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


def test_what_takes_long_is_said(core: Core) -> None:
    """With whose it was and the command's name, and nothing else of the command."""
    peer = log_on(core, "slow")
    longest = core.engine.scheduler.longest_task
    assert longest.long_task_count == 0
    assert longest.task_name == "logon"
    core.clock.work_per_look = LONG_TASK_SECONDS
    peer.send({"c": "sow", "t": "records", "f": "/secret = 1"})
    core.clock.work_per_look = 0.0
    peer.send({"c": "heartbeat"})
    assert (longest.client_name, longest.task_name, longest.long_task_count) == ("slow", "sow", 1)
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
    assert len(packed) < LONG_READ_SIZE
    peer.read_compressed(Compression())
    peer.send_bytes(packed)
    turns = 0
    while peer.is_paused:
        core.clock.turn()
        turns += 1
    assert turns > 20
