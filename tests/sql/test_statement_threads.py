"""Threads of statements: those that wait delay no others, and users take turns."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from server.sql.statement_threads import StatementThreads, blocking_wait
from tests.support.waiting import WAIT_SECONDS


def test_a_call_that_waits_lets_another_one_run() -> None:
    threads = StatementThreads(max_threads=2, max_user_threads=2, max_running_threads=1)
    is_set, ended = threading.Event(), SimpleQueue[str]()

    def wait() -> None:
        with blocking_wait():
            is_set.wait()
        ended.put("waited")

    threads.submit(wait, "ann")
    threads.submit(is_set.set, "ann")
    assert ended.get(timeout=WAIT_SECONDS) == "waited"


def test_calls_run_one_at_a_time_where_only_one_may_run() -> None:
    threads = StatementThreads(max_threads=8, max_user_threads=8, max_running_threads=1)
    running, most, ended = 0, 0, SimpleQueue[None]()
    lock = threading.Lock()

    def call() -> None:
        nonlocal running, most
        for _ in range(20):
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.0005)  # others would run
            with lock:
                running -= 1
            with blocking_wait():
                pass
        ended.put(None)

    for _ in range(8):
        threads.submit(call, "ann")
    for _ in range(8):
        ended.get(timeout=WAIT_SECONDS)
    assert most == 1


def test_no_user_gets_all_threads() -> None:
    threads = StatementThreads(max_threads=3, max_user_threads=2, max_running_threads=1)
    is_over, ended = threading.Event(), SimpleQueue[str]()

    def wait() -> None:
        with blocking_wait():
            is_over.wait()
        ended.put("ann")

    for _ in range(5):
        threads.submit(wait, "ann")
    threads.submit(lambda: ended.put("bob"), "bob")
    assert ended.get(timeout=WAIT_SECONDS) == "bob"
    is_over.set()
    assert [ended.get(timeout=WAIT_SECONDS) for _ in range(5)] == ["ann"] * 5


def test_users_with_calls_that_wait_take_turns() -> None:
    threads = StatementThreads(max_threads=1, max_user_threads=1, max_running_threads=1)
    may_begin, order = threading.Event(), SimpleQueue[str]()
    threads.submit(may_begin.wait, "first")
    for user in ("ann", "ann", "ann", "bob", "bob", "cat"):
        threads.submit(lambda user=user: order.put(user), user)  # type: ignore[misc]  # bound
    may_begin.set()
    found = [order.get(timeout=WAIT_SECONDS) for _ in range(6)]
    assert found == ["ann", "bob", "cat", "ann", "bob", "ann"]


def test_a_call_that_fails_ends_no_thread() -> None:
    threads = StatementThreads(max_threads=1, max_user_threads=1, max_running_threads=1)
    ended = SimpleQueue[None]()
    threads.submit(lambda: 1 / 0)
    threads.submit(lambda: ended.put(None))
    ended.get(timeout=WAIT_SECONDS)
