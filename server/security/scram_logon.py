"""A logon by SCRAM-SHA-256, for any authentication module that has verifiers of its users.

    credentials.password: the client's first message   ->  a challenge
    credentials.password: the client's second message  ->  granted, with the server's signature

A user without a verifier goes through the same steps, with a mock verifier, and is refused at the
end as for a wrong password. So the steps, the texts and the time do not tell which users exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from server.security.authentication import Admission, Challenge, LogonCredentials
from server.security.deferred import AnswerOrFuture, mapped
from server.security.scram import (
    ITERATIONS,
    ScramExchange,
    ScramMessageError,
    ScramRefusedError,
    ScramVerifier,
    mock_verifier,
)

VerifierAnswer: TypeAlias = ScramVerifier | Admission | None
"""The verifier of a user, None without one; an Admission is the refusal if it is not known."""

VerifierLookup: TypeAlias = Callable[[str], AnswerOrFuture[VerifierAnswer]]
"""Finds the verifier of a user."""

_WRONG: Final = Admission(False, "", "wrong user or password")


class ScramLogon:
    """One logon. See `LogonExchange`.

    Args:
        find_verifier: called in both steps, since a password may change between them.
        channel_binding: the hash of the server's certificate; empty if channel binding is not
            offered.
        mock_iterations: iterations of PBKDF2 that users without a verifier are asked for.
    """

    def __init__(
        self,
        find_verifier: VerifierLookup,
        channel_binding: bytes,
        mock_iterations: int = ITERATIONS,
    ) -> None:
        self._find_verifier = find_verifier
        self._channel_binding = channel_binding
        self._mock_iterations = mock_iterations
        self._exchange: ScramExchange | None = None
        self._verifier: ScramVerifier | None = None

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""

        def decide(found: VerifierAnswer) -> Admission:
            if isinstance(found, Admission):
                return found
            try:
                if self._exchange is None:
                    return self._challenge(credentials, found)
                return self._finish(self._exchange, credentials, found)
            except ScramMessageError as error:
                return Admission(False, "", str(error))

        return mapped(self._find_verifier(credentials.user), decide)

    def _challenge(self, credentials: LogonCredentials, found: ScramVerifier | None) -> Admission:
        mock = mock_verifier(credentials.user, self._mock_iterations)
        exchange = ScramExchange(found or mock, self._channel_binding)
        challenge = exchange.make_challenge(credentials.password)
        self._exchange, self._verifier = exchange, found
        return Admission(False, "", "", challenge=Challenge(credentials.user, challenge))

    def _finish(
        self, exchange: ScramExchange, credentials: LogonCredentials, found: ScramVerifier | None
    ) -> Admission:
        try:
            signature = exchange.finish(credentials.password)
        except ScramRefusedError:
            return _WRONG
        if found is None or found != self._verifier:
            return _WRONG
        return Admission(True, credentials.user, "", token=signature)
