"""The lock that protects a blocking client's state, and the threads that wait for changes of it.

Any number of threads send commands and take messages; one background thread reads the socket. A
thread holds the lock only while it uses the protocol. While holding it, a thread does not wait and
calls no function of the application.

Python's locks are not fair: a thread that publishes in a loop would acquire the lock again before
the reading thread wakes up, and acknowledgements and heartbeats would not be read. Therefore the
reading thread first acquires a second lock, the gate, and the other threads wait for the gate if it
is locked.

After a fork, the child process has no reading thread. Its clients count as closed: their
connections belong to the parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from amperage.client.time_limit import TimeLimit

_guards: weakref.WeakSet[ClientLock] = weakref.WeakSet()


class ClientLock:
    """One client's lock.

    Attributes:
        urgent_count: the number of threads that wait for anything other than messages of a stream.
        on_wait: a callback for a thread that begins to wait; called with the lock held.
        on_fork: a callback for a fork; called in the child process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._waiters: dict[threading.Lock, tuple[Callable[[], bool], bool]] = {}
        self._reader_thread_id: int | None = None
        self.urgent_count = 0
        self.on_wait: Callable[[], None] | None = None
        self.on_fork: Callable[[], None] | None = None
        _guards.add(self)

    def exclusive(self) -> threading.Lock:
        """Return the lock for a `with` statement, once the reading thread does not wait for it."""
        if self._gate.locked():
            with self._gate:
                pass
        return self._lock

    @contextmanager
    def exclusive_first(self) -> Iterator[None]:
        """Hold the lock, acquired before all threads that request it later; for the reading thread.

        The gate stays locked meanwhile.
        """
        with self._gate:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def register_reader(self) -> None:
        """Register the calling thread as the reading thread."""
        self._reader_thread_id = threading.get_ident()

    @property
    def is_reader_thread(self) -> bool:
        """Whether the calling thread is the reading thread."""
        return self._reader_thread_id == threading.get_ident()

    @property
    def has_waiters(self) -> bool:
        """Whether any thread waits."""
        return bool(self._waiters)

    def wait_until(
        self, arrived: Callable[[], bool], limit: TimeLimit, what: str, *, is_urgent: bool
    ) -> None:
        """Wait until a condition is met, without holding the lock.

        Args:
            arrived: the condition.
            limit: the timeout.
            what: the name of the expected event, for the error.
            is_urgent: whether to read on even if too many messages wait in streams.

        Raises:
            TimedOutError: the condition was not met in time.
            RuntimeError: the caller is the reading thread, so the condition cannot be met.
        """
        ticket = threading.Lock()
        ticket.acquire()
        with self.exclusive():
            if arrived():
                return
            if self.is_reader_thread:
                raise RuntimeError(
                    f"a handler that the client calls cannot wait for {what}: it is called by the"
                    " thread that would read it; wait in another thread"
                )
            self._waiters[ticket] = arrived, is_urgent
            self.urgent_count += is_urgent
            if self.on_wait is not None:
                self.on_wait()
        try:
            remaining_s = limit.remaining_s
            timeout = -1.0 if remaining_s is None else min(remaining_s, threading.TIMEOUT_MAX)
            if not ticket.acquire(timeout=timeout) and not arrived():
                raise limit.timeout_error(what)
        finally:
            with self.exclusive():
                self._remove_waiter(ticket)

    def wake(self) -> None:
        """Wake the threads whose conditions are met. The caller holds the lock."""
        arrived = [ticket for ticket, (has_arrived, _) in self._waiters.items() if has_arrived()]
        for ticket in arrived:
            self._remove_waiter(ticket)
            ticket.release()

    def reset_after_fork(self) -> None:
        """Reset in a forked child process, where the thread that held the lock does not exist."""
        self._lock, self._gate = threading.Lock(), threading.Lock()
        self._waiters.clear()
        self.urgent_count = 0
        self._reader_thread_id = None
        if self.on_fork is not None:
            self.on_fork()

    def _remove_waiter(self, ticket: threading.Lock) -> None:
        if ticket in self._waiters:
            self.urgent_count -= self._waiters.pop(ticket)[1]


def _fork_all() -> None:
    for guard in list(_guards):
        guard.reset_after_fork()


os.register_at_fork(after_in_child=_fork_all)
