"""The interface of all authenticator modules."""

from __future__ import annotations

from typing import Protocol


class CredentialSourceError(Exception):
    """Credentials are not available at the moment. The text says which, and why."""


class CredentialSource(Protocol):
    """One authenticator module, configured for a transport of a destination."""

    async def credentials(self) -> tuple[str, str]:
        """Return the user and the password for a logon.

        Raises:
            CredentialSourceError: they are not available.
        """
