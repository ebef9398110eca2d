"""Checks passwords against hashes, on threads of its own.

    engine's thread  --check-->  AsyncWorker  -->  _HashThreads: one or two  -->  AnswerFuture

A hash is slow on purpose. So a correct password is cached, not in the clear, but as a keyed digest
whose key each process makes anew: repeating the same logon costs next to nothing. Concurrent checks
of the same credentials share one computation. Wrong passwords are not cached: attackers would fill
the cache (`failed_logons` throttles them).

The threads have a low priority, and hashing releases the GIL: the engine continues meanwhile.
Work is scheduled round-robin by address, so that guessing from one address delays others little.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import threading
from collections import OrderedDict, deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple

from server.security.deferred import AnswerFuture

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.security.async_worker import AsyncWorker
    from server.security.authentication import LogonCredentials
    from server.security.deferred import AnswerOrFuture
    from server.security.users.password_hashes import PasswordHash

_MAX_REMEMBERED: Final = 10_000
"""Limit of the cache of correct credentials; beyond it, the least recently used are dropped."""

_MAX_THREADS: Final = 16
_NICE: Final = 10
"""The nice value of the threads, above that of other threads."""

_DIGEST_BYTES: Final = 32


class PasswordChecks:
    """Checks passwords. Called on the engine's thread.

    Args:
        worker: waits for the slow work.
    """

    def __init__(self, worker: AsyncWorker) -> None:
        self._worker = worker
        self._hash_threads = _HashThreads()
        self._key = secrets.token_bytes(_DIGEST_BYTES)
        self._verified: OrderedDict[bytes, PasswordHash] = OrderedDict()
        self._pending: dict[tuple[bytes, PasswordHash], AnswerFuture[bool | None]] = {}

    def check_password(
        self, credentials: LogonCredentials, expected: PasswordHash, fail: Callable[[str], None]
    ) -> AnswerOrFuture[bool | None]:
        """Check a password.

        Args:
            credentials: the password, the claimed user, and the origin.
            expected: the hash that it has to match.
            fail: called with the reason, if it cannot be checked.

        Returns:
            Whether it matches; None if it cannot be checked.
        """
        cache_key = self._cache_key(credentials.user, credentials.password)
        if self._verified.get(cache_key) == expected:
            self._verified.move_to_end(cache_key)
            return True
        key = cache_key, expected
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = self._submit(credentials, expected, fail)
            pending.add_done_callback(lambda matches: self._on_checked(key, matches=matches))
        return pending

    def forget(self) -> None:
        """Clear the cache, so that every password is checked again."""
        self._verified.clear()

    def _submit(
        self, credentials: LogonCredentials, expected: PasswordHash, fail: Callable[[str], None]
    ) -> AnswerFuture[bool | None]:
        work = _HashJob(Future(), expected, credentials.password)
        host = credentials.origin.host

        async def check() -> bool | None:
            return await asyncio.wrap_future(self._hash_threads.submit(work, host))

        def give_up(problem: str) -> bool | None:
            fail(problem)
            return None

        return self._worker.submit(check, give_up)

    def _on_checked(self, key: tuple[bytes, PasswordHash], *, matches: bool | None) -> None:
        self._pending.pop(key, None)
        if not matches:
            return
        cache_key, expected = key
        self._verified[cache_key] = expected
        if len(self._verified) > _MAX_REMEMBERED:
            self._verified.popitem(last=False)

    def _cache_key(self, user: str, password: str) -> bytes:
        """Return the cache key of credentials; it reveals nothing without the secret key."""
        names, secret = (text.encode(errors="surrogatepass") for text in (user, password))
        content = len(names).to_bytes(8, "big") + names + secret
        return hashlib.blake2b(content, key=self._key, digest_size=_DIGEST_BYTES).digest()


class _HashJob(NamedTuple):
    result: Future[bool]
    expected: PasswordHash
    password: str


class _HashThreads:
    """The threads; they start with the first password, and end with the process."""

    def __init__(self) -> None:
        # By address, the next one first.
        self._queues: OrderedDict[str, deque[_HashJob]] = OrderedDict()
        self._condition = threading.Condition()
        self._are_threads_started = False

    def submit(self, work: _HashJob, owner: str) -> Future[bool]:
        """Queue the comparison of a password with a hash; one that is cancelled in time is skipped.

        Args:
            work: the comparison.
            owner: the key of the round-robin scheduling.
        """
        with self._condition:
            self._queues.setdefault(owner, deque()).append(work)
            self._condition.notify()
        if not self._are_threads_started:
            self._are_threads_started = True
            for _ in range(max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // 2))):
                threading.Thread(target=self._run, name="passwords", daemon=True).start()
        return work.result

    def _next_job(self) -> _HashJob:
        """Return the next comparison, and move its owner to the end of the rotation."""
        with self._condition:
            while not self._queues:
                self._condition.wait()
            owner, works = next(iter(self._queues.items()))
            work = works.popleft()
            if works:
                self._queues.move_to_end(owner)
            else:
                del self._queues[owner]
            return work

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while True:
            work = self._next_job()
            if work.result.set_running_or_notify_cancel():
                try:
                    work.result.set_result(work.expected.matches(work.password))
                except Exception as error:  # such as out of memory: the thread must survive it
                    work.result.set_exception(error)
            del work  # an idle thread keeps no password
