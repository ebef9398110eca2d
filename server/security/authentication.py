"""Authentication modules: decide whether a connection may log on, and as which user.

A logon is a `LogonExchange`: the module accepts credentials, refuses them, or returns a challenge.
The client answers a challenge with further credentials. Each step may be asynchronous.

Source: AMPS User Guide, Authentication; Provided Authentication Modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from server.security.deferred import mapped

if TYPE_CHECKING:
    from server.security.deferred import AnswerOrFuture


MAX_CHALLENGES: Final = 10
"""Limit of the challenges in one logon. Kerberos and the like need two or three."""


@dataclass(frozen=True, slots=True)
class LogonOrigin:
    """The origin of a logon.

    Attributes:
        transport: the transport's name.
        address: the peer's address.
        client_name: the name that the client gives itself.
        correlation_id: that of the logon.
        certificate_user: the user that the client's certificate names; empty without one.
        connection_name: the server's name for the connection.
        message_type: that of the logon.
    """

    transport: str = ""
    address: str = ""
    client_name: str = ""
    correlation_id: str = ""
    certificate_user: str = ""

    @property
    def host(self) -> str:
        """The address without the port, which differs between connections."""
        host, colon, port = self.address.rpartition(":")
        return host if colon and port.isdigit() else self.address

    connection_name: str = ""
    message_type: str = ""


@dataclass(frozen=True, slots=True)
class LogonCredentials:
    """The credentials of a client.

    Attributes:
        user: the name of the user.
        password: the password, or a token in its place.
        explicit: False when it sent a command without logging on first.
        origin: the origin of the logon.
    """

    user: str
    password: str
    explicit: bool
    origin: LogonOrigin = LogonOrigin()

    def __repr__(self) -> str:
        """Omit the password: this may end up in a log."""
        return f"Credentials({self.user!r})"


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge that a client must answer before it may log on.

    Attributes:
        user: the name of the user, for its next logon.
        password: the data of the challenge.
    """

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision of an authentication module.

    Attributes:
        granted: whether the connection may log on.
        user: the authenticated user name, empty if the module does not determine one.
        reason: sent to the client, and written to the log.
        challenge: the challenge for the client; None if the logon is decided.
        token: proves the server's identity to the client; empty for none. It replaces the client's
            password in the answer.
        detail: written to the log only.
        undecided: it does not count as a failed logon: either the module could not decide, through
            no fault of the client, or the credentials cannot be guessed.
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


class LogonExchange(Protocol):
    """One logon, from the first credentials on."""

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """Decide on credentials; after a challenge, on the answer to it."""


class ChallengeLimit:
    """Refuses a logon after too many challenges, so that it ends with any module.

    Args:
        exchange: the logon.
    """

    def __init__(self, exchange: LogonExchange) -> None:
        self._exchange = exchange
        self._challenges = 0

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        return mapped(self._exchange.authenticate(credentials), self._limit_challenges)

    def _limit_challenges(self, admission: Admission) -> Admission:
        if admission.challenge is None:
            return admission
        self._challenges += 1
        if self._challenges > MAX_CHALLENGES:
            return Admission(False, "", f"{MAX_CHALLENGES} challenges were not enough")
        return admission


class LogonAuthenticator(Protocol):
    """One authentication module, configured for an instance, a transport or the admin interface."""

    def begin_logon(self) -> LogonExchange:
        """Begin a logon."""

    def begin_scram(self, user: str, channel_binding: bytes) -> LogonExchange | None:
        """Begin a logon by SCRAM-SHA-256: its credentials are the messages of the client.

        Args:
            user: the name of the user.
            channel_binding: see `ScramExchange`.

        Returns:
            The logon; None if the user has to give the password itself.
        """

    def forget(self) -> None:
        """Clear cached decisions, so that every logon is decided again."""


class AuthenticatorWithoutScram:
    """The base of modules that know no verifiers of SCRAM, and check passwords or tokens."""

    __slots__ = ()

    def begin_scram(self, user: str, channel_binding: bytes) -> None:
        """See `LogonAuthenticator`."""


class ImmediateAuthenticator(AuthenticatorWithoutScram):
    """A module that decides immediately, without waiting or challenges."""

    __slots__ = ()

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return self

    def forget(self) -> None:
        """See `LogonAuthenticator`."""

    def authenticate(self, credentials: LogonCredentials) -> Admission:
        """See `LogonExchange`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AcceptAllAuthenticator(ImmediateAuthenticator):
    """Accepts every logon that meets the few conditions of its options."""

    require_logon: bool
    require_user_name: bool
    trust_user_name: bool
    trust_certificate: bool = False

    def authenticate(self, credentials: LogonCredentials) -> Admission:
        """See `LogonExchange`."""
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
class FixedAuthenticator(ImmediateAuthenticator):
    """Repeats a decision made before the logon, for example in the handshake of a websocket."""

    admission: Admission

    def authenticate(self, credentials: LogonCredentials) -> Admission:  # noqa: ARG002 - decided before
        """See `LogonExchange`."""
        return self.admission


@dataclass(frozen=True, slots=True)
class RefuseAllAuthenticator(ImmediateAuthenticator):
    """Refuses every logon."""

    def authenticate(self, credentials: LogonCredentials) -> Admission:
        """See `LogonExchange`."""
        return Admission(False, "", f"no user may log on, {credentials.user!r} included")


def proof_headers(challenge: str | None, admission: Admission) -> tuple[tuple[str, str], ...]:
    """Return the headers that prove the server's identity to a client that it has admitted.

    Args:
        challenge: the challenge that the credentials answered (WWWAuthenticate).
        admission: the decision on the credentials.
    """
    if challenge is None or challenge.lower() != "negotiate" or not admission.token:
        return ()
    return (("WWW-Authenticate", f"{challenge} {admission.token}"),)
