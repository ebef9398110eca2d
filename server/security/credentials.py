"""Authenticator modules: as whom this instance logs on to another one, and what proves that.

Source: AMPS User Guide, Providing an Identity for Outbound Connections.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from config_schema.spec import ModuleUse


class CredentialsError(Exception):
    """Credentials are not to be had at the moment. The text says which, and why."""


class CredentialSource(Protocol):
    """One authenticator module, configured for a transport of a destination."""

    async def credentials(self) -> tuple[str, str]:
        """The user and the password to log on with.

        Raises:
            CredentialsError: they are not to be had.
        """


@dataclass(frozen=True, slots=True)
class ConfiguredCredentials:
    """A user, and a password from the configuration, a file, or the environment.

    Without a User it is the one that the process runs as. A file is read for each connection, and
    the end of its last line is not a part of the password.
    """

    user: str | None = None
    password: str | None = None
    file_name: str | None = None
    variable: str | None = None

    async def credentials(self) -> tuple[str, str]:
        """See `CredentialSource`."""
        return self.user or _current_user(), self._find_password()

    def _find_password(self) -> str:
        if self.password is not None:
            return self.password
        if self.file_name is not None:
            try:
                return Path(self.file_name).read_text().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as problem:
                why = getattr(problem, "strerror", None) or problem
                raise CredentialsError(f"PasswordFileName {self.file_name}: {why}") from problem
        if self.variable is not None:
            password = os.environ.get(self.variable)
            if password is None:
                raise CredentialsError(
                    f"PasswordEnvironmentVariable {self.variable}: there is no such variable"
                )
            return password
        return ""


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _configured(use: ModuleUse) -> CredentialSource:
    options = use.options
    return ConfiguredCredentials(
        options.get("User"),
        options.get("Password"),
        options.get("PasswordFileName"),
        options.get("PasswordEnvironmentVariable"),
    )


AUTHENTICATOR_MODULES: Final[Mapping[str, Callable[[ModuleUse], CredentialSource]]] = {
    "amps-default-authenticator-module": _configured,
}
"""The modules that need no Modules entry, by the name that a configuration uses."""


def make_credential_source(use: ModuleUse | None) -> CredentialSource:
    """Make the authenticator that a configuration asks for; without one, the default module."""
    return ConfiguredCredentials() if use is None else AUTHENTICATOR_MODULES[use.module](use)
