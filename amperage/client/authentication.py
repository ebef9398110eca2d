"""Authentication of the client, and mutual authentication of the server.

An authenticator provides the credentials of a logon. It is called for each logon, also after a lost
connection, so that a renewed token is used. It may block (to read a file, run a command or contact
a ticket service): clients call it without blocking other work, the asyncio clients on a helper
thread.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple, Protocol, runtime_checkable

from amperage.client.arguments import instance, methods
from amperage.client.secrets import SecretSource


class Credentials(NamedTuple):
    """The credentials of a logon.

    Attributes:
        user: the user's name; None for none.
        password: the password, or a secret in its place, such as a token; None for none.
    """

    user: str | None
    password: str | None

    def __repr__(self) -> str:
        """Return a text without the password, because it may be logged."""
        shown = None if self.password is None else "***"
        return f"Credentials(user={self.user!r}, password={shown!r})"


class Authenticator(Protocol):
    """Provides the credentials of a logon, for example a ticket.

    Both methods raise `CredentialsError` if no credentials are available.
    """

    def authenticate(self, given: Credentials) -> Credentials:
        """Return the credentials of the first logon, from the URI's user and password."""

    def retry(self, answered: Credentials) -> Credentials:
        """Return the credentials of the next logon, from the server's answer.

        A server that needs another round acknowledges with the status `retry` (AMPS Command
        Reference, logon Acknowledgment).
        """


@runtime_checkable
class MutualAuthenticator(Authenticator, Protocol):
    """An authenticator that also verifies the server, before the client uses the session."""

    def completed(self, answered: Credentials) -> None:
        """Verify the server, after it has accepted the logon.

        Args:
            answered: the server's proof of its identity, such as its half of a ticket exchange.

        Raises:
            CredentialsError: the proof is missing or invalid; the client disconnects.
        """


def check_authenticator(authenticator: Authenticator | None) -> None:
    """Check an authenticator argument, which may be None.

    Raises:
        TypeError: it lacks a method, or one is a coroutine function, which a thread cannot call.
    """
    methods("authenticator", authenticator, ("authenticate", "retry"))
    if isinstance(authenticator, MutualAuthenticator):
        methods("authenticator", authenticator, ("completed",))


def check_connection_arguments(
    authenticator: Authenticator | None, ssl_context: ssl.SSLContext | None
) -> None:
    """Check the arguments for connecting. Raises the errors of `check_authenticator`."""
    check_authenticator(authenticator)
    instance("ssl_context", ssl_context, ssl.SSLContext)


class PasswordAuthenticator:
    """Sends the user and password of the URI, and in later rounds those of the server's answer."""

    def authenticate(self, given: Credentials) -> Credentials:
        """Return the user and password of the URI."""
        return given

    def retry(self, answered: Credentials) -> Credentials:
        """Return the user and password of the server's answer."""
        return answered


class SecretAuthenticator:
    """Sends a secret as the password: a bearer token, or a password stored elsewhere.

    The secret is read again for each logon.

    Args:
        source: the source of the secret: a `SecretFile`, a `SecretVariable` or a `SecretCommand`.
        user: the user who owns the secret; None for the user of the URI.
    """

    def __init__(self, source: SecretSource, user: str | None = None) -> None:
        self._source = source
        self._user = user

    def authenticate(self, given: Credentials) -> Credentials:
        """Return the user and the secret.

        Raises:
            CredentialsError: the secret cannot be read.
        """
        user = given.user if self._user is None else self._user
        return Credentials(user, self._source.read(user))

    def retry(self, answered: Credentials) -> Credentials:
        """Read the secret again, and return it with the user of the server's answer.

        A user given to the constructor takes precedence.

        Raises:
            CredentialsError: the secret cannot be read.
        """
        return self.authenticate(answered)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, {self._user!r})"
