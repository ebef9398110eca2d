"""Authenticator modules: as whom this instance logs on to another one, and what proves that.

Source: AMPS User Guide, Providing an Identity for Outbound Connections; Command Execution
Authenticator.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from config_schema.spec import ModuleSpec, ModuleUse
from config_schema.units import parse_count

EXEC_LIBRARY: Final = "libamps_exec_authenticator.so"
DEFAULT_MAX_LENGTH: Final = "1024"

_USER_VARIABLE: Final = "{{AMPS_USER_NAME}}"
_COMMAND_SECONDS: Final = 10.0
"""How long a command may take."""


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


@dataclass(frozen=True, slots=True)
class CommandCredentials:
    """A user, and a command whose output is the password: a token of short life.

    `{{AMPS_USER_NAME}}` in the command stands for the user. It is run for each connection. Of its
    output `most` bytes are read; line ends at the end are not a part of the password.
    """

    user: str
    command: str
    most: int

    async def credentials(self) -> tuple[str, str]:
        """See `CredentialSource`."""
        command = self.command.replace(_USER_VARIABLE, self.user)
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                output = await self._read(process)
                code = await process.wait()
        except TimeoutError:
            raise CredentialsError(
                f"Command {self.command}: it took longer than {_COMMAND_SECONDS:.0f} seconds"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if code:
            raise CredentialsError(f"Command {self.command}: it ended with exit code {code}")
        return self.user, output.decode("utf-8", "replace").rstrip("\r\n")

    async def _read(self, process: asyncio.subprocess.Process) -> bytes:
        """What the command says, as much of it as is wanted."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        output = b""
        while chunk := await process.stdout.read(1 << 16):
            output = (output + chunk)[: self.most]
        return output


def _configured(use: ModuleUse) -> CredentialSource:
    options = use.options
    return ConfiguredCredentials(
        options.get("User"),
        options.get("Password"),
        options.get("PasswordFileName"),
        options.get("PasswordEnvironmentVariable"),
    )


def _command(use: ModuleUse) -> CredentialSource:
    options = use.options
    return CommandCredentials(
        options.get("UserName") or "",
        options.get("Command") or "",
        parse_count(options.get("MaxLength") or DEFAULT_MAX_LENGTH),
    )


AUTHENTICATOR_MODULES: Final[Mapping[str, Callable[[ModuleUse], CredentialSource]]] = {
    "amps-default-authenticator-module": _configured,
}
"""The modules that need no Modules entry, by the name that a configuration uses."""


AUTHENTICATOR_LIBRARIES: Final[Mapping[str, Callable[[ModuleUse], CredentialSource]]] = {
    EXEC_LIBRARY: _command,
}
"""Those that a configuration loads, by the base name of their library."""


def make_credential_source(
    use: ModuleUse | None, modules: Iterable[ModuleSpec]
) -> CredentialSource:
    """Make the authenticator that a configuration asks for; without one, the default module.

    Args:
        use: the Authenticator element, which has been checked.
        modules: the modules that the configuration loads.
    """
    if use is None:
        return ConfiguredCredentials()
    factory = AUTHENTICATOR_MODULES.get(use.module)
    if factory is None:
        module = next(one for one in modules if one.name == use.module)
        factory = AUTHENTICATOR_LIBRARIES[module.library_name]
    return factory(use)
