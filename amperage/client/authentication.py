"""How a client proves who it is, and a server that it is the right one.

An authenticator makes what a logon carries. It is asked for each logon, those after a lost
connection included, so that a token that has been renewed meanwhile is the one that is shown. It
may take a while (read a file, run a command, ask a ticket service): clients call it where nothing
else waits, the asyncio clients on a helper thread.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple, Protocol, runtime_checkable

from amperage.client.arguments import instance, methods
from amperage.client.secrets import SecretSource


class Credentials(NamedTuple):
    """What a logon carries.

    Attributes:
        user: the user's name; None for none.
        password: the password, or what stands for it, such as a token; None for none.
    """

    user: str | None
    password: str | None

    def __repr__(self) -> str:
        """Without the password: this may end up in a log."""
        shown = None if self.password is None else "***"
        return f"Credentials(user={self.user!r}, password={shown!r})"


class Authenticator(Protocol):
    """Makes what a logon carries out of what the caller gave, for example a ticket.

    Both methods raise `CredentialsError` if there is nothing that could be shown.
    """

    def authenticate(self, given: Credentials) -> Credentials:
        """Return what the first logon carries, given the URI's user and password."""

    def retry(self, answered: Credentials) -> Credentials:
        """Return what the next logon carries, given what the server answered.

        A server that wants another round acknowledges with the status `retry` (AMPS Command
        Reference, logon Acknowledgment).
        """


@runtime_checkable
class MutualAuthenticator(Authenticator, Protocol):
    """An authenticator that looks at what the server shows in its turn, before anything else."""

    def completed(self, answered: Credentials) -> None:
        """The server has accepted the logon.

        Args:
            answered: what it shows, for example the other half of an exchange of tickets.

        Raises:
            CredentialsError: that is not what the right server would show; the client disconnects.
        """


def check_authenticator(authenticator: Authenticator | None) -> None:
    """Check an authenticator that a client is given, or None.

    Raises:
        TypeError: it lacks a method, or has a coroutine function for one: a thread calls them.
    """
    methods("authenticator", authenticator, ("authenticate", "retry"))
    if isinstance(authenticator, MutualAuthenticator):
        methods("authenticator", authenticator, ("completed",))


def check_connection_arguments(
    authenticator: Authenticator | None, ssl_context: ssl.SSLContext | None
) -> None:
    """Check what a client connects with; raises as `check_authenticator` does."""
    check_authenticator(authenticator)
    instance("ssl_context", ssl_context, ssl.SSLContext)


class PasswordAuthenticator:
    """Sends user and password as they are given: by the caller, then by the server."""

    def authenticate(self, given: Credentials) -> Credentials:
        """Send what the caller gave."""
        return given

    def retry(self, answered: Credentials) -> Credentials:
        """Send what the server says to send."""
        return answered


class SecretAuthenticator:
    """Sends a secret in the place of the password: a bearer token, or a password kept elsewhere.

    It is read anew for each logon.

    Args:
        source: where it is: a `SecretFile`, a `SecretVariable` or a `SecretCommand`.
        user: whose it is; None for the user of the URI.
    """

    def __init__(self, source: SecretSource, user: str | None = None) -> None:
        self._source = source
        self._user = user

    def authenticate(self, given: Credentials) -> Credentials:
        """Send the secret.

        Raises:
            CredentialsError: it is not to be had.
        """
        user = given.user if self._user is None else self._user
        return Credentials(user, self._source.read(user))

    def retry(self, answered: Credentials) -> Credentials:
        """Send it again, as it is now, to the user name that the server asks for.

        Raises:
            CredentialsError: it is not to be had.
        """
        return self.authenticate(answered)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r}, {self._user!r})"
