"""What all authenticator modules have in common."""

from __future__ import annotations

from typing import Protocol


class CredentialsError(Exception):
    """Credentials are not to be had at the moment. The text says which, and why."""


class CredentialSource(Protocol):
    """One authenticator module, configured for a transport of a destination."""

    async def credentials(self) -> tuple[str, str]:
        """The user and the password to log on with.

        Raises:
            CredentialsError: they are not to be had.
        """
