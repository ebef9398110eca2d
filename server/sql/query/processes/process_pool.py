"""The query processes of an instance: started when they are needed, and ended when they are not.

A process executes one query at a time, so that a query that uses up its memory, or crashes DuckDB,
fails alone. It is kept for further queries, unless it has kept much memory of the last one.

A result that its client has not read to its end occupies its process. When all processes are
occupied, a new query takes the process that has waited longest for its client, of the user that
occupies most of them: so a user with unread results takes from others no more than their
share. The client of that process gets an error when it reads on.

When queries use all processes, further ones wait, each without a turn of a thread. The next one is
of the user with the fewest processes, and no user gets all of them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import count
from typing import Final

from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import SqlError
from server.sql.query.processes.process_query import ProcessQuery, QueryText
from server.sql.query.processes.protocol import StartRequest
from server.sql.query.processes.query_process import QueryProcess
from server.sql.sqlstate import ADMIN_SHUTDOWN, CONFIGURATION_LIMIT_EXCEEDED
from server.sql.statement_threads import blocking_wait
from server.util.daemon_threads import DaemonThreadPool

MAX_PROCESSES: Final = 16
"""Processes of an instance, together with those of results that clients have not read."""

_MIN_PROCESSES: Final = 2
_USER_PART: Final = 7 / 8
"""The part of the processes that one user gets: a further query takes that of an unread result of
its user, or waits."""

_MAX_IDLE_PROCESSES: Final = 4
_IDLE_TIMEOUT_S: Final = 60.0
"""The time after which a process without a query is ended."""

_MAX_RETAINED_BYTES: Final = 64 * 1024 * 1024
"""Memory that an idle process may keep of its last query; with more it is ended."""

_MAX_QUERY_NUMBER: Final = 2**32 - 1


def process_limit(query_bytes: int, all_bytes: int) -> int:
    """Return the number of processes, so that all together stay within a limit of memory.

    Args:
        query_bytes: the memory of a query.
        all_bytes: that of all queries.
    """
    return max(_MIN_PROCESSES, min(MAX_PROCESSES, all_bytes // query_bytes))


def user_process_limit(max_processes: int) -> int:
    """Return the number of processes of one user."""
    return int(max_processes * _USER_PART)


class _Waiter:
    """A query that waits for a process.

    Attributes:
        user: its user.
        is_served: whether it has got one, or the right to start one.
        process: the process; None if it has to be started.
        taken: the process of an unread result, which has to be ended before that.
        woken: set when it is served, cancelled, or the pool is closed.
    """

    def __init__(self, user: str) -> None:
        self.user: Final = user
        self.is_served = False
        self.process: QueryProcess | None = None
        self.taken: QueryProcess | None = None
        self.woken: Final = threading.Event()


class ProcessLease:
    """The right of a query to use a process.

    Attributes:
        process: the process.
    """

    def __init__(self, pool: ProcessPool, process: QueryProcess, user: str) -> None:
        self.process = process
        self.user: Final = user
        self.is_in_use = True
        self.is_taken = False
        self.unused_since_s = 0.0
        self._pool: Final = pool

    def begin_use(self) -> None:
        """Note that a thread waits for the process.

        Raises:
            SqlError: the process has been taken for another query.
        """
        with self._pool.changed:
            if self.is_taken:
                raise SqlError(
                    CONFIGURATION_LIMIT_EXCEEDED,
                    "the result was dropped, since too many results are open",
                    hint="Read results to their end, or close cursors.",
                )
            self.is_in_use = True

    def end_use(self) -> None:
        """Note that no thread waits for the process: the client does not read."""
        self.is_in_use = False
        self.unused_since_s = time.monotonic()
        self._pool.serve()

    def give_back(self, *, is_finished: bool) -> None:
        """Return the process, which has finished its query or not; never blocks."""
        self._pool.give_back(self, is_finished=is_finished)


class ProcessPool:
    """Starts, lends and ends query processes. Methods may be called from any thread.

    Args:
        start: the settings of processes.
        max_processes: the number of processes.

    Attributes:
        changed: guards the state.
    """

    def __init__(self, start: StartRequest, max_processes: int = MAX_PROCESSES) -> None:
        self.changed: Final = threading.RLock()
        self._max_processes = max_processes
        self._max_user_processes = user_process_limit(max_processes)
        self._start = start
        self._numbers: Final = count()
        self._idle: list[tuple[float, QueryProcess]] = []  # since when; the last used one is last
        self._leases: set[ProcessLease] = set()
        self._waiters: list[_Waiter] = []
        self._user_places = Counter[str]()  # of leases, and of waiters that have been served
        self._process_count = 0  # including processes that start or end
        self._is_closed = False
        self._idle_timer: threading.Timer | None = None
        self._helpers: Final = DaemonThreadPool(MAX_PROCESSES, "sql-process")

    def use_settings(self, start: StartRequest, max_processes: int) -> None:
        """Replace the settings of processes; those with others end after their queries.

        Args:
            start: see `ProcessPool`.
            max_processes: likewise.
        """
        with self.changed:
            self._start = start
            self._max_processes = max_processes
            self._max_user_processes = user_process_limit(max_processes)
            idle, self._idle = self._idle, []
            self.serve()
        for _, process in idle:
            self._helpers.submit(self._end, process)

    def open(self, text: QueryText, user: str, cancellation: Cancellation) -> ProcessQuery:
        """Begin a query.

        Args:
            text: the query.
            user: the user of the query.
            cancellation: cancels the query until it has ended.

        Raises:
            DuckDbError: the query fails.
            SqlError: the process ends, or the query is cancelled.
        """
        return self.begin(self.reserve(user, cancellation), text, cancellation)

    def begin(
        self, lease: ProcessLease, text: QueryText, cancellation: Cancellation
    ) -> ProcessQuery:
        """Begin a query in a process that has been reserved; see `open`."""
        number = next(self._numbers) % _MAX_QUERY_NUMBER + 1
        query = ProcessQuery(lease, number, cancellation)
        query.begin(text)
        return query

    def close(self) -> None:
        """End all processes. The queries in progress fail."""
        with self.changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            leased = [lease.process for lease in self._leases]
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            for waiter in self._waiters:
                waiter.woken.set()
        for process in leased:
            process.kill()
        for _, process in idle:
            process.kill()
            self._helpers.submit(self._end, process)

    # ---- processes of queries

    def reserve(self, user: str, cancellation: Cancellation) -> ProcessLease:
        """Return the right to use a process; start one, or wait, if none is idle.

        A query reserves its process before it scans its tables, so that the records of queries that
        wait take no memory. The right has to be given back, or used for `begin`.

        Raises:
            SqlError: the process cannot be started, or the query is cancelled.
        """
        while True:
            waiter = self._wait(user, cancellation)
            process = waiter.process
            if process is not None and not process.is_alive:
                self._end(process)
                self._release_user_place(user)
                continue
            if process is None:
                process = self._start_process(waiter)
            break
        lease = ProcessLease(self, process, user)
        with self.changed:
            self._leases.add(lease)
        return lease

    def _start_process(self, waiter: _Waiter) -> QueryProcess:
        try:
            with blocking_wait():
                if waiter.taken is not None:
                    waiter.taken.close()
                return QueryProcess(self._start)
        except BaseException:
            self._release_user_place(waiter.user)
            self._release_place()
            raise

    def _wait(self, user: str, cancellation: Cancellation) -> _Waiter:
        """Wait until a query may use a process, or start one.

        Raises:
            SqlError: the query is cancelled, or the server stops.
        """
        waiter = _Waiter(user)
        with self.changed:
            cancellation.check()
            self._check_open()
            self._waiters.append(waiter)
            self.serve()
        if not waiter.is_served:
            cancellation.on_cancel(waiter.woken.set)
            with blocking_wait():
                waiter.woken.wait()
            cancellation.remove(waiter.woken.set)
        with self.changed:
            if not waiter.is_served:
                self._waiters.remove(waiter)
                self._check_open()
                cancellation.check()
        return waiter

    def _check_open(self) -> None:
        if self._is_closed:
            raise SqlError(ADMIN_SHUTDOWN, "the server is stopping")

    def serve(self) -> None:
        """Give processes to queries that wait, as far as there are any; from any thread."""
        with self.changed:
            if not self._waiters or not self._may_serve:
                return
            for waiter in sorted(self._waiters, key=lambda one: self._user_places[one.user]):
                if self._find_process(waiter):
                    self._waiters.remove(waiter)
                    self._user_places[waiter.user] += 1
                    waiter.is_served = True
                    waiter.woken.set()

    @property
    def _may_serve(self) -> bool:
        """Whether there may be a process for a query that waits."""
        return (
            bool(self._idle)
            or self._process_count < self._max_processes
            or any(not lease.is_in_use for lease in self._leases)
        )

    def _find_process(self, waiter: _Waiter) -> bool:
        """Find a process for a query, or a place for one; return whether there is."""
        is_at_limit = self._user_places[waiter.user] >= self._max_user_processes
        if not is_at_limit and self._idle:
            waiter.process = self._idle.pop()[1]
            return True
        if not is_at_limit and self._process_count < self._max_processes:
            self._process_count += 1
            return True
        lease = self._unread_lease(waiter.user if is_at_limit else None)
        if lease is None:
            return False
        lease.is_taken = True
        self._leases.remove(lease)
        self._user_places[lease.user] -= 1
        waiter.taken = lease.process
        return True

    def _release_user_place(self, user: str) -> None:
        with self.changed:
            self._user_places[user] -= 1
            if not self._user_places[user]:
                del self._user_places[user]

    def _unread_lease(self, user: str | None) -> ProcessLease | None:
        """Return the lease to take: see the module; None if threads use all of them.

        Args:
            user: its user; None for any.
        """
        return min(
            (lease for lease in self._leases if not lease.is_in_use and user in (None, lease.user)),
            key=lambda lease: (-self._user_places[lease.user], lease.unused_since_s),
            default=None,
        )

    def give_back(self, lease: ProcessLease, *, is_finished: bool) -> None:
        """Take a process back; on any thread, without waiting."""
        with self.changed:
            if lease not in self._leases:
                return
            self._leases.remove(lease)
            self._release_user_place(lease.user)
        if is_finished:
            self._keep(lease.process)
        else:
            self._helpers.submit(self._finish, lease.process)

    def _finish(self, process: QueryProcess) -> None:
        """Keep the process of a cancelled query, if it ends the query in time."""
        if process.finish_cancelled():
            self._keep(process)
        else:
            self._end(process)

    # ---- idle processes

    def _keep(self, process: QueryProcess) -> None:
        """Keep a process for the next query, or end it."""
        with self.changed:
            is_kept = (
                not self._is_closed
                and process.is_alive
                and process.settings is self._start
                and self._process_count <= self._max_processes  # there may have been more before
                and process.retained_bytes <= _MAX_RETAINED_BYTES
                and len(self._idle) < _MAX_IDLE_PROCESSES
            )
            if is_kept:
                self._idle.append((time.monotonic(), process))
                self._start_timer()
                self.serve()
        if not is_kept:
            self._helpers.submit(self._end, process)

    def _start_timer(self) -> None:
        if self._idle_timer is None:
            self._idle_timer = threading.Timer(_IDLE_TIMEOUT_S, self._end_idle)
            self._idle_timer.daemon = True
            self._idle_timer.start()

    def _end_idle(self) -> None:
        """End processes that no query has used for some time."""
        before_s = time.monotonic() - _IDLE_TIMEOUT_S
        with self.changed:
            ended = [process for since_s, process in self._idle if since_s <= before_s]
            self._idle = [one for one in self._idle if one[0] > before_s]
            self._idle_timer = None
            if self._idle and not self._is_closed:
                self._start_timer()
        for process in ended:
            self._end(process)

    def _end(self, process: QueryProcess) -> None:
        """End a process, and wait for its end."""
        process.close()
        self._release_place()

    def _release_place(self) -> None:
        with self.changed:
            self._process_count -= 1
            self.serve()
