"""Authentication modules: whether a connection may log on, and as whom.

A logon is an `Exchange`: credentials go to the module, which accepts them, refuses them, or answers
with a challenge, upon which the client shows further ones. Each step may take a while.

Source: AMPS User Guide, Authentication; Provided Authentication Modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from server.security.later import mapped

if TYPE_CHECKING:
    from server.security.later import Later


MOST_CHALLENGES: Final = 10
"""Challenges in one logon. Kerberos and its like need two or three."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a logon comes from.

    Attributes:
        transport: the transport's name.
        address: the peer's.
        client_name: the name that the client gives itself.
        correlation_id: that of the logon.
        certificate_user: whom the certificate of the connection names; empty without one.
        connection_name: what the connection is called here.
        message_type: that of the logon.
    """

    transport: str = ""
    address: str = ""
    client_name: str = ""
    correlation_id: str = ""
    certificate_user: str = ""

    @property
    def host(self) -> str:
        """The address without the port, which is another one for each connection."""
        host, colon, port = self.address.rpartition(":")
        return host if colon and port.isdigit() else self.address

    connection_name: str = ""
    message_type: str = ""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows.

    Attributes:
        user: the name of the user.
        password: the password, or whatever stands in its place.
        explicit: False when it sent a command without logging on first.
        origin: where it comes from.
    """

    user: str
    password: str
    explicit: bool
    origin: Origin = Origin()

    def __repr__(self) -> str:
        """Without the password: this may end up in a log."""
        return f"Credentials({self.user!r})"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a client has to answer to before it may log on.

    Attributes:
        user: the name of the user, for its next logon.
        password: what it answers to.
    """

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer of an authentication module.

    Attributes:
        granted: whether the connection may log on.
        user: the authenticated user name, empty where the module does not vouch for one.
        reason: said to the client, and written to the log.
        challenge: what the client has to answer to; None if it is decided.
        token: proves to the client who has decided; empty for nothing. It stands where the client's
            password stood.
        detail: said in the log alone.
        undecided: it does not count as a failed logon: the module could not tell, through no fault
            of who logs on, or what it was shown is nothing that anybody could guess.
        is_proven: False if the name is a claim of the client, and nothing has been checked.
    """

    granted: bool
    user: str
    reason: str
    challenge: Challenge | None = None
    token: str = ""
    detail: str = ""
    undecided: bool = False
    is_proven: bool = True


class Exchange(Protocol):
    """One logon, from the first credentials on."""

    def step(self, credentials: Credentials) -> Later[Admission]:
        """Decide on credentials; after a challenge, on those that answer to it."""


class Limited:
    """A logon that ends, whatever the module says: after so many challenges it is refused.

    Args:
        exchange: the logon.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._challenges = 0

    def step(self, credentials: Credentials) -> Later[Admission]:
        """See `Exchange`."""
        return mapped(self._exchange.step(credentials), self._judge)

    def _judge(self, admission: Admission) -> Admission:
        if admission.challenge is None:
            return admission
        self._challenges += 1
        if self._challenges > MOST_CHALLENGES:
            return Admission(False, "", f"{MOST_CHALLENGES} challenges were not enough")
        return admission


class Authenticator(Protocol):
    """One authentication module, configured for an instance, a transport or the admin interface."""

    def begin(self) -> Exchange:
        """Begin a logon."""

    def forget(self) -> None:
        """Decide every logon afresh."""


class AtOnce:
    """A module that decides on what it is shown, without waiting or challenges."""

    __slots__ = ()

    def begin(self) -> Exchange:
        """See `Authenticator`."""
        return self

    def forget(self) -> None:
        """See `Authenticator`."""

    def step(self, credentials: Credentials) -> Admission:
        """See `Exchange`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AcceptAll(AtOnce):
    """Accepts whoever comes, with the few conditions that its options make."""

    require_logon: bool
    require_user_name: bool
    trust_user_name: bool
    trust_certificate: bool = False

    def step(self, credentials: Credentials) -> Admission:
        """See `Exchange`."""
        if self.require_logon and not credentials.explicit:
            return Admission(False, "", "a logon is required before any other command")
        user = credentials.user if self.trust_user_name else ""
        if self.trust_certificate:
            named = credentials.origin.certificate_user
            if not named:
                return Admission(False, "", "a certificate that names a user is required")
            admission = Admission(True, user or named, "authenticated by certificate")
            return replace(admission, is_proven=admission.user == named)
        if self.require_user_name and not credentials.user:
            return Admission(False, "", "a user name is required")
        return Admission(True, user, "authentication disabled", is_proven=False)


@dataclass(frozen=True, slots=True)
class RefuseAll(AtOnce):
    """Refuses whoever comes."""

    def step(self, credentials: Credentials) -> Admission:
        """See `Exchange`."""
        return Admission(False, "", f"no user may log on, {credentials.user!r} included")
