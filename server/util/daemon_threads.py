"""Threads for calls that may never return, such as those that wait for a network file system.

Python waits for the threads of a `ThreadPoolExecutor` when an event loop is closed, and once more
when the process ends: one call that does not return keeps the process from ending. Python does not
wait for the threads of this module. So they are for reads only, such as of a file's content, never
for work that has to be complete.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_IDLE_SECONDS: Final = 10.0


def future_of(function: Callable[[], _T]) -> tuple[Future[_T], Callable[[], None]]:
    """Return the future result of a function, and the call that executes it, on another thread."""
    future: Future[_T] = Future()

    def call() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    return future, call


class DaemonThreadPool(ThreadPoolExecutor):
    """An executor whose threads are not waited for. An event loop can have it as its default.

    Args:
        thread_limit: the maximum number of threads; they start when they are needed, and end when
            idle.
        name: the name of the threads.
    """

    def __init__(self, thread_limit: int, name: str) -> None:
        super().__init__(thread_limit, name)  # which starts no thread: `submit` does
        self._thread_limit: Final = thread_limit
        self._name: Final = name
        self._queued_calls: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread_count = 0
        self._idle_count = 0
        self._is_closed = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """See `concurrent.futures.Executor`."""
        future, call = future_of(partial(fn, *args, **kwargs))
        with self._changed:
            if self._is_closed:
                raise RuntimeError("no calls are taken any more")
            self._queued_calls.append(call)
            if self._idle_count >= len(self._queued_calls):
                self._changed.notify()
            elif self._thread_count < self._thread_limit:
                self._thread_count += 1
                threading.Thread(target=self._run_calls, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - Executor's
        """Take no more calls. Calls in progress are not waited for, others are not begun."""
        with self._changed:
            self._is_closed = True
            self._queued_calls.clear()
            self._changed.notify_all()

    def _run_calls(self) -> None:
        while (call := self._next_call()) is not None:
            call()

    def _next_call(self) -> Callable[[], None] | None:
        """Wait for the next call and return it; None if the thread is to end."""
        with self._changed:
            self._idle_count += 1
            self._changed.wait_for(lambda: self._queued_calls or self._is_closed, _IDLE_SECONDS)
            self._idle_count -= 1
            if self._queued_calls:
                return self._queued_calls.popleft()
            self._thread_count -= 1
            return None
