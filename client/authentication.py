"""How a client proves who it is."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Credentials(NamedTuple):
    """What a logon carries."""

    user: str | None
    password: str | None


class Authenticator(Protocol):
    """Makes what a logon carries out of what the caller gave, for example a ticket."""

    def authenticate(self, given: Credentials) -> Credentials:
        """Return what the first logon carries, given the URI's user and password."""

    def retry(self, answered: Credentials) -> Credentials:
        """Return what the next logon carries, given what the server answered.

        A server that wants another round acknowledges with the status `retry` (AMPS Command
        Reference, logon Acknowledgment).
        """


class PasswordAuthenticator:
    """Sends user and password as they are given: by the caller, then by the server."""

    def authenticate(self, given: Credentials) -> Credentials:
        """Send what the caller gave."""
        return given

    def retry(self, answered: Credentials) -> Credentials:
        """Send what the server says to send."""
        return answered
