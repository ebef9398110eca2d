"""Queues while the log cannot be written, or read: nothing is lost, repeated, or held up."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.recovery.large_messages import Publisher, log_on
from tests.support.bad_disk import BadDisk
from tests.support.queues import bookmarks, consume, done, elements, numbers, put, take
from tests.support.server import running_server
from tests.support.small_disk import small_disk
from tests.support.sow import query
from tests.support.unreadable import Trouble
from tests.support.waiting import wait_until

ONCE: Final = {"UnderlyingTopic": "in-both", "Semantics": "at-most-once"}
QUEUES: Final = elements({"once": ONCE, "least": {"UnderlyingTopic": "in-both"}, "other": {}})


def test_what_cannot_be_recorded_is_not_sent(tmp_path: Path) -> None:
    """Of an at-most-once queue: nobody could know after a crash that it has been."""
    disk = BadDisk(tmp_path / "switch")
    with running_server(tmp_path, elements=QUEUES, prepare=disk) as server:
        put(server, "in-both", range(4))
        with server.log_on("early") as early:
            consume(early, "once", 2)
            assert numbers(take(early, 2)) == [0, 1]
        disk.break_down(".journal")
        with server.log_on("worker") as peer, server.log_on("other") as other:
            consume(peer, "once")
            consume(other, "least")
            assert numbers(take(other, 4)) == [0, 1, 2, 3]
            assert peer.hears_nothing()
            disk.recover()
            assert numbers(take(peer, 2)) == [2, 3]
            server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=QUEUES) as server, server.log_on("worker") as peer:
        consume(peer, "once")
        assert peer.hears_nothing()


def test_a_full_disk_holds_back_what_is_sent_once(tmp_path: Path) -> None:
    """Until there is space; what is sent again if need be goes on all the time."""
    (tmp_path / "journal").mkdir()
    with small_disk(tmp_path / "journal", 45) as disk:
        with running_server(tmp_path, elements=QUEUES, prepare=disk) as server:
            put(server, "in-both", range(3))
            with log_on(server) as peer:
                publisher = Publisher(peer, "in-other")
                disk.fill()
                publisher.until_refused()
                publisher.size = 10
                publisher.until_refused()
            with server.log_on("worker") as worker, server.log_on("other") as other:
                consume(other, "least")
                messages = take(other, 3)
                assert numbers(messages) == [0, 1, 2]
                consume(worker, "once")
                assert worker.hears_nothing()
                command = {"c": "sow_delete", "cid": "d", "t": "least", "bm": bookmarks(messages)}
                ack = other.ask(command | {"a": "processed"})
                assert (ack["status"], ack["reason"]) == ("failure", "not stored")
                other.send({"c": "flush", "cid": "f", "a": "persisted"})
                assert other.hears_nothing(), "it has not been recorded yet what became of them"
                disk.make_space()
                assert numbers(take(worker, 3)) == [0, 1, 2]
                flushed = other.receive_header()
                assert (flushed["cid"], flushed["status"]) == ("f", "success")
            server.stop(signal.SIGKILL)
        with (
            running_server(tmp_path, elements=QUEUES, prepare=disk) as server,
            server.log_on("worker") as worker,
        ):
            consume(worker, "^(once|least)$")
            assert worker.hears_nothing()


def test_how_far_queues_are_cannot_be_stored(tmp_path: Path) -> None:
    """They are served all the same, and it is stored as soon as that can be done."""
    disk = BadDisk(tmp_path / "switch")
    disk.break_down("queues.ack.tmp")
    with (
        running_server(tmp_path, elements=QUEUES, prepare=disk) as server,
        server.log_on("worker") as peer,
    ):
        put(server, "in-both", range(3))
        consume(peer, "least")
        messages = take(peer, 3)
        assert numbers(messages) == [0, 1, 2]
        assert done(peer, "least", bm=bookmarks(messages)) == 3
        assert server.logs("1D-0026", 1)
        disk.recover()
        wait_until((tmp_path / "journal" / "test-instance.queues.ack").exists)


def test_what_a_queue_knows_in_a_file(tmp_path: Path) -> None:
    """It is no store: a kill leaves nothing of it, and a full disk has it stay in memory."""
    (tmp_path / "journal").mkdir()
    text = elements({"large": {"FileBackedMetadata": "enabled"}, "other": {}})
    with small_disk(tmp_path / "journal", 60) as disk:
        with running_server(tmp_path, elements=text, prepare=disk) as server:
            disk.fill()
            put(server, "in-large", range(5_000))
            assert server.logs("1D-0021", 1)
            with server.log_on("worker") as peer:
                consume(peer, "large")
                messages = take(peer, 100)
                assert numbers(messages) == [*range(100)]
                with server.log_on("acker") as other:
                    assert done(other, "large", bm=bookmarks(messages)) == 100
                    flushed = other.ask({"c": "flush", "cid": "f", "a": "persisted"})
                    assert flushed["status"] == "success"
            server.stop(signal.SIGKILL)
        disk.make_space()
        with running_server(tmp_path, elements=text, prepare=disk) as server:
            assert "1D-0021" not in server.log()
            with server.log_on("looking") as other, server.log_on("worker") as peer:
                consume(peer, "large")
                assert numbers(take(peer, 100)) == [*range(100, 200)]
                assert query(other, "large", top_n=1).messages == [{"n": 200}]
                assert query(other, "large", filter="/n = 4999").messages == [{"n": 4999}]


@pytest.mark.parametrize(("call", "number"), [("open", errno.EMFILE), ("read", errno.EIO)])
@pytest.mark.parametrize("name", ["once", "least"])
def test_a_log_that_cannot_be_read_is_waited_for(
    tmp_path: Path, call: str, number: int, name: str
) -> None:
    """By those whose messages are there alone; all of them come in the end, in order, once."""
    sign = tmp_path / "sign"
    with running_server(tmp_path, elements=QUEUES) as server:
        put(server, "in-both", range(6))
        assert server.stop() == 0
    with running_server(tmp_path, elements=QUEUES, prepare=Trouble(sign)) as server:
        sign.write_text(f"{call} {number}")
        with server.log_on("worker") as peer, server.log_on("choosy") as choosy:
            consume(peer, name, 2)
            consume(choosy, name, 2, filter="/n > 3")
            assert server.logs("1D-0015")
            put(server, "in-other", range(3))
            with server.log_on("bystander") as bystander:
                consume(bystander, "other")
                messages = take(bystander, 3)
                assert numbers(messages) == [0, 1, 2]
                assert done(bystander, "other", bm=bookmarks(messages)) == 3
                keys = {"c": "sow_delete", "cid": "d", "t": name, "a": "processed"}
                ack = bystander.ask(keys | {"filter": "/n = 5"})
                assert (ack["status"], ack["reason"]) == ("failure", "not stored")
                keys = {"c": "sow", "cid": "q", "query_id": "q", "t": "least", "a": "completed"}
                ack = bystander.ask(keys)
                while ack["c"] != "ack":
                    ack = bystander.receive_header()
                assert (ack["status"], ack["reason"]) == ("failure", "not readable")
            assert peer.hears_nothing()
            assert choosy.hears_nothing()
            sign.unlink()
            assert numbers(take(choosy, 2)) == [4, 5]
            found = take(peer, 2)
            if name == "least":
                done(peer, name, bm=bookmarks(found))
                found += take(peer, 2)
            assert numbers(found) == [0, 1, 2, 3][: len(found)]
        with server.log_on("looking") as looking:
            assert {message["n"] for message in query(looking, "other").messages} == set()
        assert "Traceback" not in server.log()
