"""The threads that execute statements: many that may wait, few that may run.

A statement that waits, for rows of a query process or for the engine, occupies a thread, and there
are enough of them for the statements of many clients. Only some threads run at a time, since all of
them share the interpreter with the engine's thread: a thread gives its turn to another one while it
waits (`blocking_wait`).

Calls are begun in the order of users: each user with calls that wait gets a thread in turn, and no
user gets all threads. So a client with more endless queries than there are threads delays its own
user's further statements only.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from server.util.daemon_threads import future_of

MAX_THREADS: Final = 256
MAX_USER_THREADS: Final = 192
"""Threads of one user."""

MAX_RUNNING_THREADS: Final = 4
"""Threads that do not wait."""

_IDLE_TIMEOUT_S: Final = 10.0
"""The time after which a thread without a call ends."""

_Call = Callable[[], object]
_T = TypeVar("_T")


class StatementThreads:
    """Executes calls on threads; methods may be called from any thread.

    The threads are daemons: the process does not wait for them when it ends.

    Args:
        max_threads: the number of threads.
        max_user_threads: the number of threads that execute calls of one user.
        max_running_threads: the number of threads that do not wait.
    """

    def __init__(
        self,
        max_threads: int = MAX_THREADS,
        max_user_threads: int = MAX_USER_THREADS,
        max_running_threads: int = MAX_RUNNING_THREADS,
    ) -> None:
        self._max_threads: Final = max_threads
        self._max_user_threads: Final = max_user_threads
        self._turns: Final = threading.Semaphore(max_running_threads)
        self._changed: Final = threading.Condition()
        self._queued_calls: OrderedDict[str, deque[_Call]] = OrderedDict()  # the next user is first
        self._user_threads: Counter[str] = Counter()
        self._thread_count = 0
        self._idle_count = 0

    def submit(self, call: _Call, user: str = "") -> None:
        """Execute a call on a thread, as soon as there is one.

        Args:
            call: the function; it reports its errors by itself.
            user: the user of the statement; empty for calls that do not wait.
        """
        with self._changed:
            self._queued_calls.setdefault(user, deque()).append(call)
            self._changed.notify()
            if self._idle_count < self._ready_count and self._thread_count < self._max_threads:
                self._start_thread()

    def call(self, function: Callable[[], _T], user: str) -> Future[_T]:
        """Execute a function on a thread; return its future result.

        Args:
            function: the function.
            user: see `submit`.
        """
        future, call = future_of(function)
        self.submit(call, user)
        return future

    def _start_thread(self) -> None:
        self._thread_count += 1
        try:
            threading.Thread(target=self._run, name="sql", daemon=True).start()
        except RuntimeError:  # the system has no more of them
            self._thread_count -= 1
            if not self._thread_count:
                raise

    @contextmanager
    def give_turn(self) -> Iterator[None]:
        """Let another thread run meanwhile; on a thread of this object only."""
        self._turns.release()
        try:
            yield
        finally:
            self._turns.acquire()

    def _run(self) -> None:
        _current.threads = self
        while (found := self._next_call()) is not None:
            user, call = found
            with self._turns, suppress(Exception):  # reported by the call, if a client waits
                call()
            with self._changed:
                self._user_threads[user] -= 1
                if not self._user_threads[user]:
                    del self._user_threads[user]

    def _next_call(self) -> tuple[str, _Call] | None:
        """Wait for a call, and return it with its user; None if the thread is to end."""
        with self._changed:
            while (found := self._take_call()) is None:
                self._idle_count += 1
                is_notified = self._changed.wait(_IDLE_TIMEOUT_S)
                self._idle_count -= 1
                if not is_notified and not self._ready_count:
                    self._thread_count -= 1
                    return None
            return found

    @property
    def _ready_count(self) -> int:
        """The number of calls that may begin as soon as there are threads."""
        return sum(
            min(len(calls), self._max_user_threads - self._user_threads[user])
            for user, calls in self._queued_calls.items()
        )

    def _take_call(self) -> tuple[str, _Call] | None:
        """Return the call of the next user; None if there is none."""
        for user, calls in self._queued_calls.items():
            if self._user_threads[user] < self._max_user_threads:
                call = calls.popleft()
                self._user_threads[user] += 1
                if calls:
                    self._queued_calls.move_to_end(user)
                else:
                    del self._queued_calls[user]
                return user, call
        return None


class _Current(threading.local):
    """The threads to which the current one belongs."""

    threads: StatementThreads | None = None


_current: Final = _Current()


@contextmanager
def blocking_wait() -> Iterator[None]:
    """Wait for something within: another statement runs meanwhile, if this thread is of one."""
    threads = _current.threads
    if threads is None:
        yield
        return
    with threads.give_turn():
        yield
