"""The helper thread is shared by all clients, and they take turns."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from server.util import limits
from server.util.worker_thread import WorkerThread
from tests.engine.support import Core
from tests.support.waiting import WAIT_SECONDS


def pieces(count: int, result: str, begin: Event | None = None) -> Generator[None, None, str]:
    """Work of so many pieces, the first of which may have to wait."""
    if begin is not None:
        assert begin.wait(WAIT_SECONDS)
    for _ in range(count):
        yield
    return result


def test_owners_take_turns() -> None:
    """Those with little to do are not kept by one with much; the works of one keep their order."""
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    helper = WorkerThread(posted.put, "test")
    done: list[str] = []
    begin = Event()
    helper.submit_incremental(1, pieces(50, "much", begin), done.append)
    helper.submit_incremental(1, pieces(0, "behind it"), done.append)
    helper.submit_incremental(2, pieces(20, "some"), done.append)
    helper.submit_incremental(3, pieces(0, "little"), done.append)
    begin.set()
    for _ in range(4):
        posted.get(timeout=WAIT_SECONDS)()
    assert done == ["little", "some", "much", "behind it"]
    helper.close()


def test_a_thread_that_is_closed_does_no_more_pieces() -> None:
    """What it is doing ends first."""
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    helper = WorkerThread(posted.put, "test")
    begin = Event()
    helper.submit_incremental(1, pieces(1_000_000, "never", begin), lambda _: None)
    begin.set()
    helper.close()
    assert posted.empty()


def test_lists_of_bookmarks_have_a_limit(tmp_path: Path) -> None:
    """Longer ones are refused; one that is as long as it may be is looked up."""
    core = Core()
    core.record(tmp_path, "^log")
    peer = core.log_on()
    peer.take_frames()
    header = {"c": "subscribe", "t": "log", "cid": "1", "sub_id": "1", "a": "processed"}
    peer.send(header | {"bm": ",".join(["7|7|"] * limits.MAX_BOOKMARKS)})
    core.wait_for_helper()
    ((ack, _),) = peer.take_frames()
    assert ack["status"] == "success"
    header |= {"sub_id": "2", "bm": ",".join(["7|7|"] * (limits.MAX_BOOKMARKS + 1))}
    peer.send(header)
    ((ack, _),) = peer.take_frames()
    assert (ack["status"], ack["reason"]) == ("failure", "invalid bookmark")
    assert f"more than {limits.MAX_BOOKMARKS}" in ack["detail"]
