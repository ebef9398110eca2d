"""Slows down who guesses passwords, whichever module is asked for them.

Failures are counted for a user from an address, and for an address. Beyond a number of them logons
are refused for a moment, without asking the module; with each further failure the moment doubles,
up to a limit. What is refused in this way does not count. A user who logs on is forgiven there; an
address is not, else somebody with one account could guess those of others. Failures are not counted
for a user from anywhere: that would let anybody lock somebody out. Nor are those of nobody in
particular, who show a token that says who they are: those of one address may be many.

Logons of one address that wait for a decision are limited as well: what they wait for is shared.

A module that cannot decide is no failure, nor is a challenge, nor is a logon without a password.
The default modules ask for none and are not concerned.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.security.authentication import Admission
from server.security.later import mapped

if TYPE_CHECKING:
    from server.base.log import Log
    from server.security.authentication import Authenticator, Credentials, Exchange
    from server.security.later import Later

MOST_REMEMBERED: Final = 10_000
"""Users and addresses each; of more, those go that have failed least recently."""

MOST_UNDER_WAY: Final = 1_500
"""Logons of one address that may wait for a decision; fewer than a desk works on at a time."""

FORGIVEN_AFTER: Final = 600.0
"""Seconds without a failure after which all earlier ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How many failures there may be.

    Attributes:
        failures: so many have no consequence.
        longest: seconds for which logons are refused at most; at first it is one.
    """

    failures: int
    longest: float

    def pause(self, count: int) -> float:
        """Seconds for which logons are refused after a number of failures."""
        beyond = count - self.failures
        return 0.0 if beyond <= 0 else min(2.0 ** min(beyond - 1, 32), self.longest)


OF_A_USER: Final = Patience(failures=9, longest=60.0)
OF_AN_ADDRESS: Final = Patience(failures=99, longest=10.0)


@dataclass(slots=True)
class _Failures:
    count: int
    last: float


class _Counts:
    """Failures of users, or of addresses."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._known: OrderedDict[Hashable, _Failures] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds for which logons are still refused."""
        known = self._known.get(key)
        if known is None:
            return 0.0
        return max(0.0, known.last + self._patience.pause(known.count) - now)

    def add(self, key: Hashable, now: float) -> tuple[int, float]:
        """Count a failure; how many there are, and for how many seconds logons are refused now."""
        known = self._known.pop(key, None)
        if known is None or now - known.last > FORGIVEN_AFTER:
            known = _Failures(0, now)
        known.count += 1
        known.last = now
        self._known[key] = known
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return known.count, self._patience.pause(known.count)

    def forgive(self, key: Hashable) -> None:
        """Count from the beginning."""
        self._known.pop(key, None)


class FailedLogons:
    """What is known of failed logons on all transports of an instance. On the engine's thread.

    Args:
        now: the time in seconds, from any moment on.

    Attributes:
        under_way: how many logons wait for a decision, by address.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._users = _Counts(OF_A_USER)
        self._addresses = _Counts(OF_AN_ADDRESS)
        self.under_way: Final[Counter[str]] = Counter()

    def wait(self, address: str, user: str) -> float:
        """Seconds for which logons of a user from an address are refused."""
        now = self._now()
        return max(self._users.wait((address, user), now), self._addresses.wait(address, now))

    def failed(self, address: str, user: str) -> tuple[int, float]:
        """Count a failure.

        Returns:
            How many there are of whom it makes wait, and how many seconds; 0 for not at all.
        """
        now = self._now()
        of_address = self._addresses.add(address, now)
        if not user:
            return of_address
        return max(self._users.add((address, user), now), of_address, key=lambda each: each[1])

    def succeeded(self, address: str, user: str) -> None:
        """Somebody has logged on."""
        self._users.forgive((address, user))


@dataclass(frozen=True, slots=True)
class Guarded:
    """A module that is asked for passwords, and not too often.

    Attributes:
        module: the module.
        failures: counts.
        log: told when logons are refused.
    """

    module: Authenticator
    failures: FailedLogons
    log: Log

    def begin(self) -> Exchange:
        """See `Authenticator`."""
        return _Exchange(self, self.module.begin())

    def forget(self) -> None:
        """See `Authenticator`."""
        self.module.forget()


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One logon."""

    guarded: Guarded
    inner: Exchange

    def step(self, credentials: Credentials) -> Later[Admission]:
        """See `Exchange`."""
        failures, address = self.guarded.failures, credentials.origin.host
        seconds = failures.wait(address, credentials.user)
        if seconds:
            reason = f"too many failed logons: try again in {max(1, round(seconds))} seconds"
            return Admission(False, "", reason, undecided=True)
        if failures.under_way[address] >= MOST_UNDER_WAY:
            return Admission(False, "", "too many logons at a time: try again", undecided=True)
        failures.under_way[address] += 1
        return mapped(
            self.inner.step(credentials),
            lambda admission: self._end(address, credentials, admission),
        )

    def _end(self, address: str, credentials: Credentials, admission: Admission) -> Admission:
        under_way = self.guarded.failures.under_way
        under_way[address] -= 1
        if not under_way[address]:
            del under_way[address]
        return self._count(address, credentials, admission)

    def _count(self, address: str, credentials: Credentials, admission: Admission) -> Admission:
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
