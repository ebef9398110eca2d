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
        failures_before_backoff: the number that has no consequence.
        max_backoff_s: the maximum back-off in seconds; the first one is one second.
    """

    failures_before_backoff: int
    max_backoff_s: float

    def backoff_s(self, count: int) -> float:
        """Return the back-off in seconds after a number of failures."""
        beyond = count - self.failures_before_backoff
        return 0.0 if beyond <= 0 else min(2.0 ** min(beyond - 1, 32), self.max_backoff_s)


USER_FAILURE_LIMITS: Final = FailureLimits(failures_before_backoff=9, max_backoff_s=60.0)
ADDRESS_FAILURE_LIMITS: Final = FailureLimits(failures_before_backoff=99, max_backoff_s=10.0)


@dataclass(slots=True)
class _FailureCount:
    count: int
    last_failure_s: float


class _FailureTable:
    """Failures of users, or of addresses."""

    def __init__(self, limits: FailureLimits) -> None:
        self._limits = limits
        self._counts: OrderedDict[Hashable, _FailureCount] = OrderedDict()

    def remaining_backoff_s(self, key: Hashable, now: float) -> float:
        """Return the seconds for which logons are still refused."""
        failures = self._counts.get(key)
        if failures is None:
            return 0.0
        return max(0.0, failures.last_failure_s + self._limits.backoff_s(failures.count) - now)

    def record_failure(self, key: Hashable, now: float) -> tuple[int, float]:
        """Count a failure; return the number of failures and the back-off in seconds."""
        failures = self._counts.pop(key, None)
        if failures is None or now - failures.last_failure_s > FAILURE_LIFETIME_S:
            failures = _FailureCount(0, now)
        failures.count += 1
        failures.last_failure_s = now
        self._counts[key] = failures
        if len(self._counts) > MAX_TRACKED_FAILURES:
            self._counts.popitem(last=False)
        return failures.count, self._limits.backoff_s(failures.count)

    def reset(self, key: Hashable) -> None:
        """Reset the count."""
        self._counts.pop(key, None)


class FailedLogons:
    """Failed logons on all transports of an instance. Runs on the engine's thread.

    Args:
        now: a monotonic clock, in seconds.

    Attributes:
        pending_logons: the number of logons that wait for a decision, by address.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._users = _FailureTable(USER_FAILURE_LIMITS)
        self._addresses = _FailureTable(ADDRESS_FAILURE_LIMITS)
        self.pending_logons: Final[Counter[str]] = Counter()

    def remaining_backoff_s(self, address: str, user: str) -> float:
        """Return the seconds for which logons of a user from an address are refused."""
        now = self._now()
        return max(
            self._users.remaining_backoff_s((address, user), now),
            self._addresses.remaining_backoff_s(address, now),
        )

    def record_failure(self, address: str, user: str) -> tuple[int, float]:
        """Count a failure.

        Returns:
            The number of failures of the user or of the address, by the longer back-off, and that
            back-off in seconds; 0 for none.
        """
        now = self._now()
        of_address = self._addresses.record_failure(address, now)
        if not user:
            return of_address
        return max(
            self._users.record_failure((address, user), now),
            of_address,
            key=lambda address_count: address_count[1],
        )

    def record_success(self, address: str, user: str) -> None:
        """Reset the failures of a user that has logged on."""
        self._users.reset((address, user))


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

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return _ThrottledExchange(self, self.module.begin_logon())

    def begin_scram(self, user: str, channel_binding: bytes) -> LogonExchange | None:
        """See `LogonAuthenticator`."""
        exchange = self.module.begin_scram(user, channel_binding)
        return None if exchange is None else _ThrottledExchange(self, exchange)

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        self.module.forget()


@dataclass(frozen=True, slots=True)
class _ThrottledExchange:
    """One logon."""

    authenticator: ThrottledAuthenticator
    inner: LogonExchange

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        failures, address = self.authenticator.failures, credentials.origin.host
        seconds = failures.remaining_backoff_s(address, credentials.user)
        if seconds:
            reason = f"too many failed logons: try again in {max(1, round(seconds))} seconds"
            return Admission(False, "", reason, undecided=True)
        if failures.pending_logons[address] >= MAX_PENDING_LOGONS_PER_ADDRESS:
            return Admission(False, "", "too many logons at a time: try again", undecided=True)
        failures.pending_logons[address] += 1
        return mapped(
            self.inner.authenticate(credentials),
            lambda admission: self._finish(address, credentials, admission),
        )

    def _finish(
        self, address: str, credentials: LogonCredentials, admission: Admission
    ) -> Admission:
        pending_logons = self.authenticator.failures.pending_logons
        pending_logons[address] -= 1
        if not pending_logons[address]:
            del pending_logons[address]
        return self._record_outcome(address, credentials, admission)

    def _record_outcome(
        self, address: str, credentials: LogonCredentials, admission: Admission
    ) -> Admission:
        failures, user = self.authenticator.failures, credentials.user
        if admission.granted:
            failures.record_success(address, user)
        elif credentials.password and admission.challenge is None and not admission.undecided:
            count, seconds = failures.record_failure(address, user)
            if seconds:
                self.authenticator.log.emit(
                    "25-0063", user=user, address=address, count=count, seconds=int(seconds)
                )
        return admission
