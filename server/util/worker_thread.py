"""A thread for long reads, which would block the engine's thread.

One thread serves all clients, so very long work is done in steps, round-robin by client: each has
at most one step in the queue of the thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")
_Work: TypeAlias = tuple[Generator[None, None, Any], Callable[[Any], None]]


class WorkerThread:
    """Executes steps of work one after the other; it touches no state of the engine.

    Args:
        post: schedules a call on the engine's thread.
        name: the name of the thread.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None], name: str) -> None:
        self._post = post
        self._executor = ThreadPoolExecutor(1, name)
        self._lock = Lock()
        self._queues: dict[int, deque[_Work]] = {}  # by owner, the work in progress first

    def submit(self, work: Callable[[], _T], callback: Callable[[_T], None]) -> None:
        """Schedule work on the thread.

        Args:
            work: the work; it must not raise.
            callback: called on the engine's thread with the result.
        """

        def run() -> None:
            result = work()
            self._post(partial(callback, result))

        self._executor.submit(run)

    def submit_incremental(
        self, owner: int, work: Generator[None, None, _T], callback: Callable[[_T], None]
    ) -> None:
        """Schedule work on the thread that may take very long.

        Args:
            owner: the id of the work's owner; the work of one owner is done in sequence.
            work: yields after each step, and returns the result; it must not raise.
            callback: called on the engine's thread with the result.
        """
        with self._lock:
            works = self._queues.setdefault(owner, deque())
            works.append((work, callback))
            is_first = len(works) == 1
        if is_first:
            self._executor.submit(self._run_step, owner)

    def _run_step(self, owner: int) -> None:
        """Run the next step of an owner's work, and queue the one after that."""
        work, callback = self._queues[owner][0]
        has_more = True
        try:
            next(work)
        except StopIteration as end:
            self._post(partial(callback, end.value))
            with self._lock:
                works = self._queues[owner]
                works.popleft()
                has_more = bool(works)
                if not has_more:
                    del self._queues[owner]
        if has_more:
            with suppress(RuntimeError):  # the thread has been closed
                self._executor.submit(self._run_step, owner)

    def close(self) -> None:
        """Wait for the step in progress; cancel steps that have not begun."""
        self._executor.shutdown(cancel_futures=True)
