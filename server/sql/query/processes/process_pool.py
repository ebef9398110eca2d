"""The query processes of an instance: started when they are needed, and ended when they are not.

A process executes one query at a time, so that a query that uses up its memory, or crashes DuckDB,
fails alone. It is kept for further queries, unless it has kept much memory of the last one.

A result that its client has not read to its end occupies its process. When all processes are
occupied, a new query takes the one that has waited longest for its client, of the user that
occupies most of them: so a user with unread results takes from others no more than their
share. The client of that process gets an error when it reads on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import count
from typing import Final

from server.sql.query.cancellation import Cancellation
from server.sql.query.errors import ADMIN_SHUTDOWN, CONFIGURATION_LIMIT_EXCEEDED, SqlError
from server.sql.query.processes.process_query import ProcessQuery, QueryText
from server.sql.query.processes.protocol import StartRequest
from server.sql.query.processes.query_process import QueryProcess
from server.util.daemon_threads import DaemonThreadPool

MAX_PROCESSES: Final = 16
"""Processes of an instance, together with those of results that clients have not read."""

_MAX_IDLE_PROCESSES: Final = 4
_IDLE_TIMEOUT_S: Final = 60.0
"""The time after which a process without a query is ended."""

_MAX_RETAINED_BYTES: Final = 64 * 1024 * 1024
"""Memory that an idle process may keep of its last query; with more it is ended."""

_WAIT_INTERVAL_S: Final = 0.05
"""The interval at which a query that waits for a process checks for a cancellation."""

_MAX_QUERY_NUMBER: Final = 2**32 - 1


class _Lease:
    """The right of a query to use a process: see `ProcessLease`."""

    def __init__(self, pool: ProcessPool, process: QueryProcess, user: str) -> None:
        self.process = process
        self.user: Final = user
        self.is_in_use = True
        self.is_taken = False
        self.unused_since_s = 0.0
        self._pool: Final = pool

    def begin_use(self) -> None:
        """See `ProcessLease`."""
        with self._pool.changed:
            if self.is_taken:
                raise SqlError(
                    CONFIGURATION_LIMIT_EXCEEDED,
                    f"the result was dropped, since {MAX_PROCESSES} results are open",
                    hint="Read results to their end, or close cursors.",
                )
            self.is_in_use = True

    def end_use(self) -> None:
        """See `ProcessLease`."""
        self.is_in_use = False
        self.unused_since_s = time.monotonic()
        with self._pool.changed:
            self._pool.changed.notify()

    def give_back(self, *, is_finished: bool) -> None:
        """See `ProcessLease`."""
        self._pool.give_back(self, is_finished=is_finished)


class ProcessPool:
    """Starts, lends and ends query processes. Methods may be called from any thread.

    Args:
        start: the settings of processes.

    Attributes:
        changed: guards the state; notified when a process may be available.
    """

    def __init__(self, start: StartRequest) -> None:
        self.changed: Final = threading.Condition()
        self._start: Final = start
        self._numbers: Final = count()
        self._idle: list[tuple[float, QueryProcess]] = []  # since when; the last used one is last
        self._leases: set[_Lease] = set()
        self._process_count = 0  # including processes that start or end
        self._is_closed = False
        self._idle_timer: threading.Timer | None = None
        self._helpers: Final = DaemonThreadPool(MAX_PROCESSES, "sql-process")

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
        lease = self._lease(user, cancellation)
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
            self.changed.notify_all()
        for process in leased:
            process.kill()
        for _, process in idle:
            process.kill()
            self._helpers.submit(self._end, process)

    # ---- processes of queries

    def _lease(self, user: str, cancellation: Cancellation) -> _Lease:
        """Return the right to use a process; start one, or wait, if none is idle."""
        while True:
            process, taken = self._find_process(cancellation)
            if process is not None and process.is_alive:
                break
            if process is not None:
                self._end(process)
                continue
            if taken is not None:
                taken.close()
            try:
                process = QueryProcess(self._start)
            except BaseException:
                self._release_place()
                raise
            break
        lease = _Lease(self, process, user)
        with self.changed:
            self._leases.add(lease)
        return lease

    def _find_process(
        self, cancellation: Cancellation
    ) -> tuple[QueryProcess | None, QueryProcess | None]:
        """Return an idle process; or the process that has to be ended before one is started."""
        with self.changed:
            while True:
                cancellation.check()
                if self._is_closed:
                    raise SqlError(ADMIN_SHUTDOWN, "the server is stopping")
                if self._idle:
                    return self._idle.pop()[1], None
                if self._process_count < MAX_PROCESSES:
                    self._process_count += 1
                    return None, None
                lease = self._unread_lease()
                if lease is not None:
                    lease.is_taken = True
                    self._leases.remove(lease)
                    return None, lease.process
                self.changed.wait(_WAIT_INTERVAL_S)

    def _unread_lease(self) -> _Lease | None:
        """Return the lease to take: see the module; None if threads use all of them."""
        shares = Counter(lease.user for lease in self._leases)
        return min(
            (lease for lease in self._leases if not lease.is_in_use),
            key=lambda lease: (-shares[lease.user], lease.unused_since_s),
            default=None,
        )

    def give_back(self, lease: _Lease, *, is_finished: bool) -> None:
        """Take a process back; on any thread, without waiting."""
        with self.changed:
            if lease not in self._leases:
                return
            self._leases.remove(lease)
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
                and process.retained_bytes <= _MAX_RETAINED_BYTES
                and len(self._idle) < _MAX_IDLE_PROCESSES
            )
            if is_kept:
                self._idle.append((time.monotonic(), process))
                self._start_timer()
                self.changed.notify()
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
            self.changed.notify()
