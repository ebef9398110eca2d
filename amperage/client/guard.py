"""The lock around a blocking client's state, and the threads that wait for it to change.

Any number of threads give commands and take messages; one thread of the client's own reads the
socket. A thread holds the lock while it uses the protocol, and no longer: it does not wait, and
calls no function of the application, while holding it.

Python's locks are not fair: a thread that publishes in a loop would take the lock again before the
reading thread has woken up for it, and acknowledgements and heartbeats would go unread. So the
reading thread announces itself at a gate, and the others pass through the gate on their way.

A process that forks has no reading thread in the child. There, clients count as closed: their
connection is the parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from amperage.client.time_limit import TimeLimit

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """One client's lock.

    Attributes:
        urgent: how many threads wait for something other than the messages of a stream.
        on_wait: called when a thread begins to wait, with the lock held.
        on_fork: called in the child when the process forks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._waiting: dict[threading.Lock, tuple[Callable[[], bool], bool]] = {}
        self._reader: int | None = None
        self.urgent = 0
        self.on_wait: Callable[[], None] | None = None
        self.on_fork: Callable[[], None] | None = None
        _guards.add(self)

    def turn(self) -> threading.Lock:
        """The lock, for a `with` statement."""
        if self._gate.locked():
            with self._gate:
                pass
        return self._lock

    @contextmanager
    def first_turn(self) -> Iterator[None]:
        """Have the lock next, before all who ask for it later; for the reading thread."""
        with self._gate:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def read_here(self) -> None:
        """Say that the calling thread is the one that reads."""
        self._reader = threading.get_ident()

    @property
    def is_read_here(self) -> bool:
        """Whether the calling thread is the one that reads."""
        return self._reader == threading.get_ident()

    @property
    def is_waited_for(self) -> bool:
        """Whether any thread waits."""
        return bool(self._waiting)

    def wait_until(
        self, arrived: Callable[[], bool], limit: TimeLimit, what: str, *, is_urgent: bool
    ) -> None:
        """Wait until something has arrived. The lock is not held meanwhile.

        Args:
            arrived: whether it has.
            limit: how long to wait.
            what: what is waited for, for the error.
            is_urgent: whether it is to be read past messages that nobody takes.

        Raises:
            TimedOutError: it has not arrived in time.
            RuntimeError: it cannot arrive, since the thread that would read it is the caller.
        """
        ticket = threading.Lock()
        ticket.acquire()
        with self.turn():
            if arrived():
                return
            if self.is_read_here:
                raise RuntimeError(
                    f"a handler that the client calls cannot wait for {what}: it is called by the"
                    " thread that would read it; wait in another thread"
                )
            self._waiting[ticket] = arrived, is_urgent
            self.urgent += is_urgent
            if self.on_wait is not None:
                self.on_wait()
        try:
            left = limit.left
            timeout = -1.0 if left is None else min(left, threading.TIMEOUT_MAX)
            if not ticket.acquire(timeout=timeout) and not arrived():
                raise limit.exceeded(what)
        finally:
            with self.turn():
                self._remove(ticket)

    def wake(self) -> None:
        """Wake those whose wish has arrived; the caller holds the lock."""
        arrived = [ticket for ticket, (has_arrived, _) in self._waiting.items() if has_arrived()]
        for ticket in arrived:
            self._remove(ticket)
            ticket.release()

    def fork(self) -> None:
        """Reset in a child process, where the thread that held the lock does not exist."""
        self._lock, self._gate = threading.Lock(), threading.Lock()
        self._waiting.clear()
        self.urgent = 0
        self._reader = None
        if self.on_fork is not None:
            self.on_fork()

    def _remove(self, ticket: threading.Lock) -> None:
        if ticket in self._waiting:
            self.urgent -= self._waiting.pop(ticket)[1]


def _fork_all() -> None:
    for guard in list(_guards):
        guard.fork()


os.register_at_fork(after_in_child=_fork_all)
