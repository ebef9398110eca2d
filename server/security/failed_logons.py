"""Throttles password guessing, for any authentication module.

Failures are counted per user and address, and per address. Beyond a number of failures, logons are
refused for a moment, without asking the module; the back-off doubles with each further failure, up
to a limit. Logons refused in this way do not count. A successful logon resets the count of the user
at that address, but not that of the address: otherwise the owner of one account could guess the
passwords of others. Failures are not counted per user across addresses: that would let a client
lock out a user. Logons without a user name, with a token that identifies the user, are not counted
per user: those of one address may be many users.

The logons of one address that wait for a decision are limited as well: they share resources.

These are no failures: a module that cannot decide, a challenge, and a logon without a password.
The default modules need no passwords and are not wrapped.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.security.authentication import Admission
from server.security.deferred import mapped

if TYPE_CHECKING:
    from server.security.authentication import LogonAuthenticator, LogonCredentials, LogonExchange
    from server.security.deferred import AnswerOrFuture
    from server.util.log_protocol import ServerLog

MAX_TRACKED_FAILURES: Final = 10_000
"""Limit of users and addresses each; beyond it, the one whose last failure is oldest is dropped."""

MAX_PENDING_LOGONS_PER_ADDRESS: Final = 1_500
"""Limit of one address's logons that wait for a decision; below `MAX_CONCURRENT_DECISIONS`."""

FAILURE_LIFETIME_S: Final = 600.0
"""Seconds without a failure after which all earlier ones are forgotten."""


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """Limits of failures.

    Attributes:
        failures: the number that has no consequence.
        longest: the maximum back-off in seconds; the first one is one second.
    """

    failures: int
    longest: float

    def pause(self, count: int) -> float:
        """Return the back-off in seconds after a number of failures."""
        beyond = count - self.failures
        return 0.0 if beyond <= 0 else min(2.0 ** min(beyond - 1, 32), self.longest)


USER_FAILURE_LIMITS: Final = FailureLimits(failures=9, longest=60.0)
ADDRESS_FAILURE_LIMITS: Final = FailureLimits(failures=99, longest=10.0)


@dataclass(slots=True)
class _FailureCount:
    count: int
    last: float


class _FailureTable:
    """Failures of users, or of addresses."""

    def __init__(self, patience: FailureLimits) -> None:
        self._patience = patience
        self._known: OrderedDict[Hashable, _FailureCount] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds for which logons are still refused."""
        known = self._known.get(key)
        if known is None:
            return 0.0
        return max(0.0, known.last + self._patience.pause(known.count) - now)

    def add(self, key: Hashable, now: float) -> tuple[int, float]:
        """Count a failure; return the number of failures and the back-off in seconds."""
        known = self._known.pop(key, None)
        if known is None or now - known.last > FAILURE_LIFETIME_S:
            known = _FailureCount(0, now)
        known.count += 1
        known.last = now
        self._known[key] = known
        if len(self._known) > MAX_TRACKED_FAILURES:
            self._known.popitem(last=False)
        return known.count, self._patience.pause(known.count)

    def forgive(self, key: Hashable) -> None:
        """Reset the count."""
        self._known.pop(key, None)


class FailedLogons:
    """Failed logons on all transports of an instance. Runs on the engine's thread.

    Args:
        now: a monotonic clock, in seconds.

    Attributes:
        under_way: the number of logons that wait for a decision, by address.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._users = _FailureTable(USER_FAILURE_LIMITS)
        self._addresses = _FailureTable(ADDRESS_FAILURE_LIMITS)
        self.under_way: Final[Counter[str]] = Counter()

    def wait(self, address: str, user: str) -> float:
        """Return the seconds for which logons of a user from an address are refused."""
        now = self._now()
        return max(self._users.wait((address, user), now), self._addresses.wait(address, now))

    def failed(self, address: str, user: str) -> tuple[int, float]:
        """Count a failure.

        Returns:
            The number of failures of the user or of the address, by the longer back-off, and that
            back-off in seconds; 0 for none.
        """
        now = self._now()
        of_address = self._addresses.add(address, now)
        if not user:
            return of_address
        return max(self._users.add((address, user), now), of_address, key=lambda each: each[1])

    def succeeded(self, address: str, user: str) -> None:
        """Reset the failures of a user that has logged on."""
        self._users.forgive((address, user))


@dataclass(frozen=True, slots=True)
class ThrottledAuthenticator:
    """Wraps an authentication module and throttles failed logons.

    Attributes:
        module: the module.
        failures: the counts.
        log: records refused logons.
    """

    module: LogonAuthenticator
    failures: FailedLogons
    log: ServerLog

    def begin(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return _ThrottledExchange(self, self.module.begin())

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        self.module.forget()


@dataclass(frozen=True, slots=True)
class _ThrottledExchange:
    """One logon."""

    guarded: ThrottledAuthenticator
    inner: LogonExchange

    def step(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        failures, address = self.guarded.failures, credentials.origin.host
        seconds = failures.wait(address, credentials.user)
        if seconds:
            reason = f"too many failed logons: try again in {max(1, round(seconds))} seconds"
            return Admission(False, "", reason, undecided=True)
        if failures.under_way[address] >= MAX_PENDING_LOGONS_PER_ADDRESS:
            return Admission(False, "", "too many logons at a time: try again", undecided=True)
        failures.under_way[address] += 1
        return mapped(
            self.inner.step(credentials),
            lambda admission: self._end(address, credentials, admission),
        )

    def _end(self, address: str, credentials: LogonCredentials, admission: Admission) -> Admission:
        under_way = self.guarded.failures.under_way
        under_way[address] -= 1
        if not under_way[address]:
            del under_way[address]
        return self._count(address, credentials, admission)

    def _count(
        self, address: str, credentials: LogonCredentials, admission: Admission
    ) -> Admission:
        failures, user = self.guarded.failures, credentials.user
        if admission.granted:
            failures.succeeded(address, user)
        elif credentials.password and admission.challenge is None and not admission.undecided:
            count, seconds = failures.failed(address, user)
            if seconds:
                self.guarded.log.emit(
                    "25-0063", user=user, address=address, count=count, seconds=int(seconds)
                )
        return admission
